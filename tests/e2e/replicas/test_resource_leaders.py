"""Two replicas of MatrixResource on one PostgreSQL, and a defragmentation: one carries it, killed or paused in its midst.

Real processes: MatrixResource twice, MatrixLink and the agents once each. Agents report to the replica that stands by.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import eventually
from tests.e2e.service_process import ServiceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), needs_postgres]

SCALE = 60.0
LEASE_WALL_S = 0.8
SERVING = "abcd"


@pytest.fixture
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServiceProcess]]:
    folder = tmp_path_factory.mktemp("leaders")
    began = ["--time-scale", str(SCALE), "--time-anchor-wall", str(time.time())]
    began += ["--time-anchor-emulated", "1790000000"]
    with a_postgres() as database:
        found: dict[str, ServiceProcess] = {}
        own = [*began, "--database", database, "--leader-lease", str(LEASE_WALL_S)]
        try:
            found["leader"] = ServiceProcess("resource", folder, own)
            eventually(found["leader"].leads, "whoever starts first leads")
            found["standby"] = ServiceProcess("resource", folder, own)
            neighbours = ["--resource-url", found["standby"].url]
            found["link"] = ServiceProcess("link", folder, [*began, *neighbours])
            found["agents"] = ServiceProcess(
                "node_agent", folder, [*began, *neighbours, "--link-url", found["link"].url]
            )
            for name, process in found.items():
                eventually(process.ready, f"{name} is ready")
            standby = found["standby"]
            eventually(lambda: {n["state"] for n in standby.items("nodes")} == {"Available"}, "nodes are there")
            yield found
        finally:
            for process in found.values():
                process.kill()


def asked(process: ServiceProcess, method: str, path: str, body: Any = None) -> Any:
    answer = process.http.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json() if answer.content else None


def scattered(process: ServiceProcess) -> None:
    """Ten cabinets full; a and b in one of the last two, c and d in the other."""
    for name, nodes in (("full", 40), ("a", 1), ("b", 1), ("x", 2), ("c", 1), ("d", 1), ("y", 2)):
        asked(process, "PUT", f"/v1/allocations/{name}", {"nodes": nodes})
    for name in SERVING:
        asked(process, "PUT", f"/v1/allocations/{name}/binding")
    states = lambda: {each["name"]: each["state"] for each in process.items("allocations")}  # noqa: E731
    eventually(lambda: all(states()[name] == "Bound" for name in SERVING), "they serve")
    for gap in "xy":
        asked(process, "DELETE", f"/v1/allocations/{gap}")
    free = lambda: [each for each in process.items("nodes") if each["state"] == "Available"]  # noqa: E731
    eventually(lambda: len(free()) == 4, "two nodes are free in each of two cabinets")


def plan(process: ServiceProcess) -> str:
    return str(asked(process, "GET", "/v1/defragmentations/p")["state"])


def begin(processes: dict[str, ServiceProcess]) -> tuple[ServiceProcess, ServiceProcess]:
    """A defragmentation under way, asked of the one that does not lead."""
    leader, standby = processes["leader"], processes["standby"]
    scattered(standby)
    asked(standby, "POST", "/v1/defragmentations", {"name": "p", "nodes": 4})
    asked(standby, "POST", "/v1/defragmentations/p:approve")
    eventually(lambda: plan(standby) == "Running", "a move is under way")
    eventually(lambda: leader.leads() != standby.leads(), "one of them leads")
    # On a busy machine a lease may have run out meanwhile.
    return (leader, standby) if leader.leads() else (standby, leader)


def test_another_carries_on_what_a_killed_leader_began(processes: dict[str, ServiceProcess]) -> None:
    leader, standby = begin(processes)
    leader.kill()
    eventually(standby.leads, "the other leads")
    eventually(lambda: plan(standby) == "Done", "room is made")
    leader.start()
    eventually(leader.ready, "started again")
    assert standby.leads(), "whoever comes back stands by"
    assert not leader.leads()


def test_a_paused_leader_that_wakes_up_changes_nothing(processes: dict[str, ServiceProcess]) -> None:
    leader, standby = begin(processes)
    leader.signal(signal.SIGSTOP)
    try:
        eventually(standby.leads, "the other leads")
        eventually(lambda: plan(standby) == "Done", "room is made")
        before = [standby.items(each) for each in ("operations", "defragmentations", "allocations")]
    finally:
        leader.signal(signal.SIGCONT)
    eventually(lambda: leader.ready() and not leader.leads(), "it has found out")
    assert standby.leads()
    assert [standby.items(each) for each in ("operations", "defragmentations", "allocations")] == before
    assert all(each["done"] for each in before[0])
