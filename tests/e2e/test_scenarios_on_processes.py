"""Scenarios that strike services and their databases, run by MatrixCompute on a stack of `matrixctl up`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcompute.scenarios.library import library
from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

RUN_WALL_S = 150.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    stack = RealStack(tmp_path_factory.mktemp("struck") / "state", scale=30.0)
    stack.up()
    eventually(lambda: nodes_not_available(stack) == [], "its nodes are prepared for use")
    yield stack
    stop_stack(stack.folder)


def nodes_not_available(stack: RealStack) -> list[str]:
    return [each["name"] for each in stack.client.list("resource", "/v1/nodes") if each["state"] != "Available"]


def run_of(stack: RealStack, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stack.client.get("compute", f"/v1/scenario-runs/{name}")
    return found


def on(service: str, scenario: str) -> dict[str, Any]:
    """One of the library, on another service."""
    found: dict[str, Any] = library()[scenario].wire()
    found["targets"]["service"]["select"]["names"] = [service]
    return found


@pytest.mark.parametrize(
    ("scenario", "run"),
    [
        ("resource-stands-still", {"scenario": "resource-stands-still"}),
        ("database-stalls", {"scenario": "database-stalls"}),
        ("database-takes-no-writes", {"definition": on("link", "database-takes-no-writes")}),
        ("killed-while-it-repairs", {"definition": on("resource", "compute-killed-while-it-repairs")}),
    ],
)
def test_services_are_struck_by_a_run_of_matrixcompute_and_all_is_undone(
    stack: RealStack, scenario: str, run: dict[str, Any]
) -> None:
    stack.client.call("compute", "PUT", f"/v1/scenario-runs/{scenario}", body=run)
    eventually(lambda: run_of(stack, scenario)["state"] == "Completed", "it is over", RUN_WALL_S)
    view = run_of(stack, scenario)
    assert view["verdict"] == "PASS", json.dumps(view["entries"][-8:])
    assert stack.client.list("agents", "/v1/process-faults") == []
    eventually(stack.all_ready, "every process is ready")
    eventually(lambda: nodes_not_available(stack) == [], "its nodes are prepared for use again", RUN_WALL_S)
    seen = {each["name"]: each for each in stack.client.list("agents", "/v1/processes")}
    assert all(each["running"] and each["writable"] for each in seen.values())


def test_matrixcompute_does_not_strike_itself_nor_the_agents_themselves(stack: RealStack) -> None:
    itself = {"scenario": "compute-killed-while-it-repairs"}
    with pytest.raises(InvalidField, match="plays this run") as refused:
        stack.client.call("compute", "PUT", "/v1/scenario-runs/itself", body=itself)
    assert refused.value.field == "scenario.method[1].target"
    striker = {"definition": on("agents", "resource-stands-still")}
    with pytest.raises(InvalidField, match="injects these faults itself"):
        stack.client.call("compute", "PUT", "/v1/scenario-runs/itself", body=striker)
