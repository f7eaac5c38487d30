"""A scenario applied as a Kubernetes resource: the library's file is run, shows its verdict, and is stopped by deletion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrixcompute.scenarios.library import library
from matrixcontainer.client.client import EVENT, SCENARIO
from tests.cluster import Cluster
from tests.matrixcompute.scenarios.test_runs import NODE_DOWN_SCENARIO

pytestmark = pytest.mark.looptime

NAME = "free-node-lacks-an-npu"
STRUCK = {"names": ["sn0-c11-n3"]}
NO_SUCH = {"victim": {"type": "node", "select": {"names": ["sn0-c99-n0"]}}}


def state(body: dict[str, Any]) -> str:
    return str((body.get("status") or {}).get("state"))


def because(body: dict[str, Any]) -> str:
    return next(each["reason"] for each in body["status"]["conditions"] if each["type"] == "Ready")


async def test_applied_scenario_runs_once_and_its_deletion_stops_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        spec = library()[NAME].wire()
        await cluster.apply_resource(SCENARIO, NAME, spec)
        body = await cluster.settles(SCENARIO, NAME, lambda b: state(b) == "Completed", "it is over")
        status = body["status"]
        assert (status["verdict"], because(body)) == ("PASS", "Pass"), status
        assert status["phases"][-1]["name"] == "RollingBack"
        assert len(status["targets"]["victim"]) == 1
        assert all(each["passed"] for each in status["expectations"])
        events = [
            each for each in (await cluster.kube.list(EVENT))[0] if each["involvedObject"]["kind"] == SCENARIO.kind
        ]
        assert {"Running", "Pass"} <= {each["reason"] for each in events}

        await cluster.kube.merge(SCENARIO, NAME, {"metadata": {"labels": {"seen-by": "me"}}})
        await cluster.tick()
        labelled = await cluster.kube.find(SCENARIO, NAME, None)
        assert labelled is not None
        assert because(labelled) == "Pass", "other labels are no other scenario"
        await cluster.kube.merge(SCENARIO, NAME, {"spec": {"seed": 77}})
        body = await cluster.settles(SCENARIO, NAME, lambda b: because(b) == "Changed", "it is not run again")
        assert body["status"]["verdict"] == "PASS", "what was run keeps its verdict"
        assert (await cluster.http["compute"].delete(f"/v1/scenario-runs/{NAME}")).status_code == 204
        await cluster.tick()
        assert (await cluster.get("compute", "/v1/scenario-runs")).json()["items"] == [], "it was run once"
        await deleted(cluster, NAME)
        assert (await cluster.get("compute", "/v1/scenario-runs")).json()["items"] == []

        dark = {**NODE_DOWN_SCENARIO, "given": {}, "targets": {"victim": {"type": "node", "select": STRUCK}}}
        never = [{"metric": "nodes.lost", "above": 47, "within": "2h"}]
        await cluster.apply_resource(SCENARIO, "dark", {**dark, "expect": never, "suspend": True})
        await cluster.settles(SCENARIO, "dark", lambda b: state(b) == "Suspended", "it waits")
        await cluster.kube.merge(SCENARIO, "dark", {"spec": {"suspend": False}})
        assert cluster.fleet is not None
        await cluster.settles(SCENARIO, "dark", lambda b: b["status"].get("phase") == "Method", "it runs")
        await cluster.until(lambda: struck(cluster), "the node is dark")
        await deleted(cluster, "dark")
        assert not cluster.fleet.faults, "gone is only what was rolled back"
        assert (await cluster.get("compute", "/v1/scenario-runs")).json()["items"] == []

        await cluster.apply_resource(SCENARIO, "nowhere", {**dark, "targets": NO_SUCH})
        body = await cluster.settles(SCENARIO, "nowhere", lambda b: state(b) == "Refused", "no target")
        message = next(each["message"] for each in body["status"]["conditions"])
        assert message == "spec.targets.victim.select: the selection matches nothing"


async def test_scenario_changed_during_its_run_completes(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(SCENARIO, NAME, library()[NAME].wire())
        await cluster.settles(SCENARIO, NAME, lambda b: state(b) == "Running", "it runs")
        await cluster.kube.merge(SCENARIO, NAME, {"spec": {"seed": 77}})
        body = await cluster.settles(SCENARIO, NAME, lambda b: because(b) == "Changed", "it is run as it was")
        assert state(body) == "Running"
        body = await cluster.settles(SCENARIO, NAME, lambda b: state(b) == "Completed", "it is over")
        assert (body["status"]["verdict"], because(body)) == ("PASS", "Changed")


async def deleted(cluster: Cluster, name: str) -> None:
    await cluster.kube.delete(SCENARIO, name)
    await cluster.settles(SCENARIO, name, lambda body: body is None, "nothing is left of it")


async def struck(cluster: Cluster) -> bool:
    assert cluster.fleet is not None
    return bool(cluster.fleet.faults)
