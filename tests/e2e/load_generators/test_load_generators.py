"""The load generators that people point at such endpoints, as they are installed from the index, drive this one.

guidellm 0.3.1 is the light one and runs with the other end-to-end tests; aiperf and inference-perf are a gigabyte each
and run with the soak. Each finds every request answered, and what it counted is what was metered.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.load_generators.endpoint import Endpoint, endpoint
from tests.e2e.load_generators.installed import installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
REQUESTS, TOKENS_IN, TOKENS_OUT = 32, 256, 32
RUN_WALL_S = 600.0


def tokenizer(tool: Path, hub: Path) -> Path:
    """A tokenizer that counts as the endpoint does, made by the tool's own Python; its folder."""
    texts = [path for name in ("*pride*.txt.gz", "*hakespeare*.txt") for path in tool.parent.glob(f"lib/**/{name}")]
    made = run([str(tool / "python"), str(HERE / "make_tokenizer.py"), str(hub), "cloudmatrix/words", *map(str, texts)])
    return Path(made.strip().splitlines()[-1])


def run(command: list[str], **environment: str) -> str:
    """What it prints; it must end well. It has no way to a proxy and none to a hub."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_WALL_S, env=kept | {"NO_COLOR": "1"} | environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def metered(running: Endpoint) -> dict[str, Any]:
    (used,) = running.usage(groupBy="")
    return used


def test_guidellm(tmp_path: Path) -> None:
    tool = installed("guidellm")
    words = tokenizer(tool, tmp_path / "hub")
    with endpoint(tmp_path, scale=60.0) as running:
        running.serve()
        report = tmp_path / "guidellm.json"
        command = [str(tool / "guidellm"), "benchmark", "--target", running.url, "--rate-type", "concurrent"]
        command += ["--rate", "4", "--max-requests", str(REQUESTS), "--processor", str(words)]
        command += ["--data", f"prompt_tokens={TOKENS_IN},output_tokens={TOKENS_OUT}"]
        run([*command, "--output-path", str(report), "--disable-progress"], HF_HUB_OFFLINE="1")
        found = json.loads(report.read_text())["benchmarks"][0]
        made = found["run_stats"]["requests_made"]
        assert (made["successful"], made["errored"]) == (REQUESTS, 0)
        used = metered(running)
        assert used["requests"] >= REQUESTS
        assert used["completionTokens"] >= REQUESTS * TOKENS_OUT
        assert used["promptTokens"] == pytest.approx(REQUESTS * TOKENS_IN, rel=0.05), "both count alike"


@pytest.mark.soak
def test_aiperf(tmp_path: Path) -> None:
    tool = installed("aiperf")
    tokenizer(tool, tmp_path / "hub")
    with endpoint(tmp_path, scale=10.0) as running:
        running.serve()
        command = [str(tool / "aiperf"), "profile", "--model", "r1", "--url", running.url, "--endpoint-type", "chat"]
        command += ["--streaming", "--tokenizer", "cloudmatrix/words", "--concurrency", "4", "--ui", "none"]
        command += ["--request-count", str(REQUESTS), "--isl", str(TOKENS_IN), "--osl", str(TOKENS_OUT)]
        run([*command, "--artifact-dir", str(tmp_path / "out")], HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")
        (report,) = (tmp_path / "out").glob("**/profile_export_aiperf.json")
        found = json.loads(report.read_text())
        assert found["request_count"]["avg"] == REQUESTS
        assert not found.get("error_summary")
        assert metered(running)["requests"] >= REQUESTS


@pytest.mark.soak
def test_inference_perf(tmp_path: Path) -> None:
    tool = installed("inference-perf", python="python3.12")
    words = tokenizer(tool, tmp_path / "hub")
    with endpoint(tmp_path, scale=10.0) as running:
        running.serve()
        settings = {
            "load": {"type": "poisson", "stages": [{"rate": 8, "duration": 4}]},
            "api": {"type": "completion", "streaming": True},
            "server": {"type": "vllm", "model_name": "r1", "base_url": running.url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(words)},
            "data": {
                "type": "random",
                "input_distribution": {
                    "min": 16,
                    "max": TOKENS_IN,
                    "mean": 128,
                    "std_dev": 32,
                    "total_count": REQUESTS,
                },
                "output_distribution": {"min": 8, "max": TOKENS_OUT, "mean": 16, "std_dev": 4, "total_count": REQUESTS},
            },
            "storage": {"local_storage": {"path": str(tmp_path / "reports")}},
        }
        config = tmp_path / "inference-perf.yml"
        config.write_text(json.dumps(settings))
        run([str(tool / "inference-perf"), "-c", str(config)], HF_HUB_OFFLINE="1")
        (report,) = (tmp_path / "reports").glob("**/summary_lifecycle_metrics.json")
        found = json.loads(report.read_text())
        assert found["successes"]["count"] == REQUESTS
        assert found["failures"]["count"] == 0
        assert metered(running)["requests"] == REQUESTS
