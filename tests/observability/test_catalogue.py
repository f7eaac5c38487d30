"""What a stack exports is what the catalogue declares: every name, unit and label, and each label within its bound."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from matrixcommon.telemetry.metric import Label, Metric
from services.catalogue import PROCESSES
from services.observability.catalogue import CATALOGUE, every_metric, metrics_of
from tests.golden import ROOT
from tests.stack import Stack
from tests.stories.repairs.serving import serving_under_load

INSTRUMENTS = ("Counter", "Gauge", "Histogram", "Summary", "Info", "Enum")
UNIT_ENDINGS = {
    "seconds (wall)": "_seconds",
    "seconds (emulated)": "_seconds",
    "bytes/s": "_bytes_per_second",
    "ratio": "_ratio",
}
ALONE = ("cloudmatrix_kube_", "console_", "apiserver_")
"""Of processes that do not run here; each is looked at where it does."""
LIKE_VLLM = "vllm:"
"""Its names are given: dashboards for vLLM know them."""


def complaints(process: str, text: str, supernodes: int = 1) -> Iterator[str]:
    """What a process's answer has that the catalogue does not allow."""
    declared = {metric.base: metric for metric in metrics_of(process)}
    for family in text_string_to_metric_families(text):
        metric = declared.get(family.name)
        if metric is None:
            yield f"{family.name} is not in the catalogue"
            continue
        if (family.type, family.documentation) != (metric.kind, metric.says):
            yield f"{family.name} is a {family.type} that says {family.documentation!r}"
        taken: dict[str, set[str]] = defaultdict(set)
        series = set()
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "le"}
            if set(labels) != set(metric.label_names):
                yield f"{sample.name} has the labels {sorted(labels)}"
            series.add(tuple(sorted(labels.items())))
            for name, value in labels.items():
                taken[name].add(value)
        if len(series) > metric.series_max(supernodes):
            yield f"{metric.name} has {len(series)} series, more than {metric.series_max(supernodes)}"
        for label in metric.labels:
            yield from (f"{metric.name}: {problem}" for problem in beyond(label, taken[label.name], supernodes))


def beyond(label: Label, values: set[str], supernodes: int) -> Iterator[str]:
    if label.values and values - set(label.values):
        yield f"{label.name} takes {sorted(values - set(label.values))}"
    if len(values) > label.bound(supernodes):
        yield f"{label.name} takes {len(values)} values, more than {label.bound(supernodes)}"


@pytest.mark.looptime
async def test_a_stack_in_use_exports_what_the_catalogue_has_and_nothing_else(tmp_path: Path) -> None:
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 4, spares=1)
        view = await stack.active("one", 4)
        await serving_under_load(stack, "one")
        refused = await stack.http["resource"].put("/v1/allocations/too-large", json={"nodes": 49})
        assert refused.status_code == 409
        await stack.http["link"].request("PROPFIND", "/v1/slices")
        stack.impair("dead", "node-down", view.members[0].node)
        stack.impair("dark", "link-down", view.members[1].node, port="ub-p3-k11")
        await stack.until(lambda: recovered(stack), "it is repaired, and that is counted", within_s=3600)
        seen = set()
        for process in stack.services:
            text = (await stack.http[process].get("/metrics")).text
            assert not list(complaints(process, text)), process
            seen |= {family.name for family in text_string_to_metric_families(text) if family.samples}
        silent = {metric.base for metric in every_metric() if not metric.name.startswith(ALONE)} - seen
        assert not silent, "declared, and never exported: a metric without samples is watched by nobody"


async def recovered(stack: Stack) -> bool:
    text = (await stack.http["compute"].get("/metrics")).text
    return 'matrixcompute_instance_recovery_seconds_count{part="total"} 1.0' in text


def test_what_is_not_declared_is_found() -> None:
    """The judge above can fail: another name, label, value, or too many of them."""
    good = "# HELP cloudmatrix_leads 1 while this replica is the leader, which does the background work.\n# TYPE cloudmatrix_leads gauge\ncloudmatrix_leads 1.0\n"
    assert not list(complaints("link", good))
    assert list(complaints("link", good.replace("cloudmatrix_leads", "leads")))
    assert list(complaints("link", good.replace("leads 1.0", 'leads{port="ub-p0-k00"} 1.0')))
    (below,) = (metric for metric in CATALOGUE["link"] if metric.name == "matrixlink_links_below")
    head = f"# HELP {below.name} {below.says}\n# TYPE {below.name} gauge\n"
    assert not list(complaints("link", head + f'{below.name}{{plane="ub",reason="PortDown"}} 1\n'))
    assert list(complaints("link", head + f'{below.name}{{plane="sn0-c00-n1/ub",reason="PortDown"}} 1\n'))
    slices = [f'matrixlink_slice_utilisation_ratio{{slice="s{n}",project="p",plane="ub"}} 0\n' for n in range(257)]
    ratio = "# HELP matrixlink_slice_utilisation_ratio Part of the capacity that the busier direction takes, by slice.\n# TYPE matrixlink_slice_utilisation_ratio gauge\n"
    assert not list(complaints("link", ratio + "".join(slices[:256])))
    assert list(complaints("link", ratio + "".join(slices)))


@pytest.mark.parametrize("metric", list(every_metric()), ids=lambda metric: metric.name)
def test_names_follow_prometheus_and_end_in_their_unit(metric: Metric) -> None:
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert metric.says.endswith(".")
    if not metric.name.startswith(LIKE_VLLM):
        assert metric.base.endswith(UNIT_ENDINGS.get(metric.unit, ""))
        assert not metric.base.endswith(("_seconds", "_ratio", "_per_second")) or metric.unit in UNIT_ENDINGS


def test_no_name_is_declared_twice() -> None:
    names = [metric.name for metric in every_metric()]
    assert sorted(names) == sorted(set(names))


def test_instruments_are_made_from_declarations_alone() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split() if not name.startswith(("tests/", "benchmarks/"))]
    made = {str(file.relative_to(ROOT)) for file in files if file.exists() and makes_instruments(file.read_text())}
    assert made == {"matrixcommon/telemetry/metric.py"}


def makes_instruments(source: str) -> bool:
    """Whether a module calls, or keeps to call, a class of the client library that holds values."""
    if "prometheus_client" not in source:
        return False
    tree = ast.parse(source)
    modules = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    classes = {
        alias.asname or alias.name
        for node in modules
        if node.module and node.module.startswith("prometheus_client")
        for alias in node.names
        if alias.name in INSTRUMENTS or alias.name.endswith("MetricFamily")
    }
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return bool(classes & called) or any(name.endswith("MetricFamily") for name in classes)


def test_the_page_on_prometheus_has_it_ask_every_process_over_http() -> None:
    page = (ROOT / "docs" / "how-to" / "watch-a-stack.md").read_text()
    asked = {int(port) for port in re.findall(r'"127\.0\.0\.1:(\d+)"', page)}
    assert asked == {process.port for process in PROCESSES if process.scheme == "http"}


def test_the_page_on_serving_gives_a_front_end_a_port_of_its_own() -> None:
    page = (ROOT / "docs" / "how-to" / "serving.md").read_text()
    [port] = re.findall(r"services\.infer\.front_end .*--port (\d+)", page)
    assert int(port) not in {process.port for process in PROCESSES}
