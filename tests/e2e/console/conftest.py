"""A stack and a Chromium for each file of tests of the console in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from services.matrixctl.demo.step_runner import wait_until
from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually
from tests.screenshots import browser

SETTLE_MS = 15_000
"""How long a page may take to show what a test waits for, on a machine that others use too."""
INSTANCE = "demo"


def report(finished: int, ttft: tuple[float, float, float], busy: float) -> dict[str, Any]:
    """A report such as `matrixctl experiment run --keep` keeps, with figures that no change of the model moves."""
    p50, p90, last = ttft
    return {
        "experiment": "run", "title": "60 requests on 6 nodes",
        "command": "matrixctl experiment run --generate=60 --nodes=6", "html": "<!doctype html><title>60</title>",
        "document": {"workload": "60 requests", "finished": finished, "ttft": {"p50": p50, "p90": p90},
                     "prefill_busy": busy, "notes": [{"second": 12, "what": "a node is lost"}]},
        "plots": [
            {"title": "Time to first token", "x": "seconds", "y": "share of requests",
             "lines": {"TTFT": [[0.1, 0.0], [p50, 0.5], [p90, 0.9], [last, 1.0]]}},
            {"title": "Requests", "x": "emulated seconds", "y": "requests a second",
             "lines": {"arrive": [[0, 4.0], [10, 6.5], [20, 0.0]], "finish": [[0, 0.0], [10, 3.0], [20, 2.5]]}},
        ],
    }  # fmt: skip


REPORTS = {"before": report(60, (0.4, 1.2, 2.5), 0.61), "after": report(57, (0.9, 1.2, 4.0), 0.8)}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium_or_skip() as running:
        yield running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[RealStack]:
    """A stack with an instance of two nodes and a spare."""
    running = RealStack(tmp_path_factory.mktemp("console") / "state", scale=60.0)
    running.up()
    try:
        wait_until("all nodes are there", lambda: _available(running.client) == 48, 60.0)
        running.client.call("compute", "PUT", f"/v1/instances/{INSTANCE}", body={"nodes": 2, "spares": 1})
        for name, body in REPORTS.items():
            running.client.call("infer", "PUT", f"/v1/reports/{name}", body=body)
        eventually(lambda: ready(running), "the instance is ready")
        yield running
    finally:
        stop_stack(running.folder)


def ready(stack: RealStack) -> bool:
    view = stack.client.call("compute", "GET", f"/v1/instances/{INSTANCE}")
    settled = any(each["type"] == "Progressing" and each["status"] == "False" for each in view["conditions"])
    return bool(view["state"] == "Active" and view["readyNodes"] == 2 and settled)


@pytest.fixture
def open_page(stack: RealStack, chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function that opens an address of the console, logged in; a script that fails fails the test."""
    problems: list[str] = []
    contexts = []

    def opening(path: str = "/", token: str = "", **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        given = token or stack.folder.admin_token()
        context.add_init_script(f"sessionStorage.setItem('cloudmatrix-token', '{given}')")
        page = context.new_page()
        page.set_default_timeout(SETTLE_MS)
        page.on("pageerror", lambda wrong: problems.append(str(wrong)))
        page.goto(stack.client.url("console") + path)
        page.get_by_role("group", name="State of the machine").get_by_text("largest block").wait_for()
        return page

    yield opening
    for context in contexts:
        context.close()
    assert problems == []


def _available(reach: Any) -> int:
    """Nodes that an instance may have; one that is asked for before has waited, and its page says so."""
    return sum(node["state"] == "Available" for node in reach.list("resource", "/v1/nodes"))
