"""Every query of every dashboard names metrics and labels of the catalogue, and is PromQL."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from services.observability.catalogue import by_sample
from tests.observability.dashboards import DASHBOARDS, printed

FROM_PROMETHEUS = {"up": {"job", "instance"}}
SCRAPED = {"instance", "job", "service", "pod"}
"""Labels that Prometheus adds to whatever it scrapes."""
WORDS = {"sum", "max", "by", "rate", "increase", "topk", "histogram_quantile", "group"}
QUERIES = [
    (name, panel["title"], target["expr"], target["legendFormat"])
    for name in DASHBOARDS
    for panel in json.loads(printed(name))["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize(("name", "title", "query", "legend"), QUERIES)
def test_a_query_names_what_the_catalogue_has(name: str, title: str, query: str, legend: str) -> None:
    bare = re.sub(r"\[[^]]*\]", "", query)
    selected = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', bare))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", bare) for label in group.split(",")}
    bare = re.sub(r"\{[^}]*\}|by \([^)]*\)", "", bare)
    named = set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - WORDS
    known = by_sample()
    assert named, query
    assert named <= set(known) | set(FROM_PROMETHEUS), named
    labels = {"le"} | SCRAPED
    labels |= {label for each in named if each in known for label in known[each].label_names}
    assert (selected | grouped) <= labels, (name, title)
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert shown <= grouped | (set() if grouped else labels), legend


def test_every_metric_that_is_stable_and_of_use_on_a_picture_is_on_one() -> None:
    shown = " ".join(query for _, _, query, _ in QUERIES)
    missing = {
        metric.name for metric in by_sample().values() if metric.stability == "stable" and metric.name not in shown
    }
    assert missing == {
        "matrixresource_npus_free",  # nodes are on the same row, in eights
        "matrixlink_plane_received_bytes_per_second",  # what one end sent, another received
        "vllm:inter_token_latency_seconds",  # the time per output token is what objectives speak of
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:time_per_output_token_seconds",  # its former name
        "vllm:request_inference_time_seconds",
        "vllm:prefix_cache_queries_total",  # of a cache in HBM, which is not used here
        "vllm:prefix_cache_hits_total",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_success_total",
        "vllm:num_preemptions_total",
    }


def test_queries_are_promql(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here (Debian: prometheus): QUERIES WERE NOT PARSED")
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, (_, _, query, _) in enumerate(QUERIES)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
