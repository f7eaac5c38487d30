"""Two replicas of MatrixCompute on one PostgreSQL: one carries the work, whichever is asked, killed or paused.

Real processes: MatrixResource, MatrixLink and the agents once each, MatrixCompute twice.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import eventually
from tests.e2e.service_process import ServiceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), needs_postgres]

SCALE = 60.0
LEASE_WALL_S = 0.8


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServiceProcess]]:
    folder = tmp_path_factory.mktemp("replicas")
    began = ["--time-scale", str(SCALE), "--time-anchor-wall", str(time.time())]
    began += ["--time-anchor-emulated", "1790000000"]
    with a_postgres() as database:
        found: dict[str, ServiceProcess] = {}
        try:
            found["resource"] = ServiceProcess("resource", folder, began)
            found["link"] = ServiceProcess("link", folder, [*began, "--resource-url", found["resource"].url])
            neighbours = ["--resource-url", found["resource"].url, "--link-url", found["link"].url]
            found["agents"] = ServiceProcess("node_agent", folder, [*began, *neighbours])
            own = ["--database", database, "--leader-lease", str(LEASE_WALL_S)]
            for name in ("one", "two"):
                found[name] = ServiceProcess("compute", folder, [*began, *neighbours, *own])
            for name, process in found.items():
                eventually(process.ready, f"{name} is ready")
            resource = found["resource"]
            eventually(lambda: {n["state"] for n in resource.items("nodes")} == {"Available"}, "nodes are there")
            yield found
        finally:
            for process in found.values():
                process.kill()


def roles(processes: dict[str, ServiceProcess]) -> tuple[ServiceProcess, ServiceProcess]:
    """Who leads, and who stands by; exactly one leads."""
    both = [processes["one"], processes["two"]]
    eventually(lambda: sum(each.leads() for each in both) == 1, "one of two leads")
    leader = next(each for each in both if each.leads())
    return leader, both[1 - both.index(leader)]


def test_what_the_standby_is_asked_the_leader_does(processes: dict[str, ServiceProcess]) -> None:
    leader, standby = roles(processes)
    standby.put("asked", 2)
    eventually(lambda: standby.state("asked") == leader.state("asked") == "Active", "Active, as both show it")
    running = standby.items("operations")[-1]
    assert running["done"], running
    standby.put("asked", 30)
    operation = eventually(
        lambda: next((each["name"] for each in standby.items("operations") if not each["done"]), ""), "under way"
    )
    answer = standby.http.post(f"/v1/operations/{operation}:cancel")
    if answer.is_success:  # it may have been quicker
        eventually(lambda: standby.state("asked") == "Active", "rolled back by the leader")
    standby.http.delete("/v1/instances/asked")
    eventually(lambda: standby.state("asked") == "gone", "deleted")


def test_another_carries_on_what_a_killed_leader_began(processes: dict[str, ServiceProcess]) -> None:
    leader, standby = roles(processes)
    leader.put("killed", 6)
    eventually(lambda: standby.state("killed") == "Provisioning", "begun")
    leader.kill()
    eventually(standby.leads, "the other leads")
    eventually(lambda: standby.state("killed") == "Active", "Active")
    leader.start()
    eventually(leader.ready, "started again")
    assert roles(processes) == (standby, leader), "whoever comes back stands by"
    leader.http.delete("/v1/instances/killed")
    eventually(lambda: standby.state("killed") == "gone", "deleted")


def test_a_paused_leader_that_wakes_up_changes_nothing(processes: dict[str, ServiceProcess]) -> None:
    leader, standby = roles(processes)
    leader.put("paused", 6)
    eventually(lambda: standby.state("paused") == "Provisioning", "begun")
    leader.signal(signal.SIGSTOP)
    try:
        eventually(standby.leads, "the other leads")
        eventually(lambda: standby.state("paused") == "Active", "Active")
        standby.http.delete("/v1/instances/paused")
        eventually(lambda: standby.state("paused") == "gone", "deleted")
        operations = {each["name"]: each["state"] for each in standby.items("operations")}
    finally:
        leader.signal(signal.SIGCONT)
    eventually(lambda: leader.ready() and not leader.leads(), "it has found out")
    assert roles(processes) == (standby, leader)
    assert not processes["resource"].items("allocations")
    assert not processes["link"].items("slices")
    assert {each["name"]: each["state"] for each in standby.items("operations")} == operations
    assert standby.state("paused") == "gone"
