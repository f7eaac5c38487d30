"""A DisruptionBudget of Kubernetes is MatrixCompute's budget of that name, for as long as the resource exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from matrixcommon.model.errors import InvalidField
from matrixcontainer.client.client import DISRUPTION_BUDGET
from tests.cluster import Cluster
from tests.stories.maintenance.running import put, until

pytestmark = pytest.mark.looptime

EXAMPLES = Path(__file__).parents[3] / "examples" / "disruption-budget.yaml"


def ready(body: dict[str, Any] | None) -> dict[str, Any]:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "Ready"), {})


async def test_budget_resource_blocks_maintenances_until_deleted(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(DISRUPTION_BUDGET, "quiet", {"nodes": "0", "supernode": "sn0"})
        declared = await cluster.settles(DISRUPTION_BUDGET, "quiet", lambda b: ready(b).get("status") == "True", "held")
        assert declared["status"]["state"] == "Active"
        assert ready(declared)["message"] == (
            "at most 0 nodes of sn0 may be out of service for Service or Firmware, at all times"
        )
        await put(cluster, "fan", target={"node": "sn0-c00-n0"}, serviceS=60)
        await until(cluster, "fan", "Running", "NoBudget")

        await cluster.http["compute"].delete("/v1/disruption-budgets/quiet")  # somebody, behind its back
        await cluster.tick()
        assert (await cluster.get("compute", "/v1/disruption-budgets/quiet")).json()["nodes"] == "0"

        await cluster.apply_resource(DISRUPTION_BUDGET, "share", {"nodes": "10%"})
        declared = await cluster.settles(DISRUPTION_BUDGET, "share", lambda b: ready(b).get("status") == "True", "held")
        assert ready(declared)["message"].startswith("at most 10% of the nodes of each supernode may be out of service")

        await cluster.kube.delete(DISRUPTION_BUDGET, "quiet")
        await cluster.settles(DISRUPTION_BUDGET, "quiet", lambda b: b is None, "it is gone")
        assert (await cluster.get("compute", "/v1/disruption-budgets/quiet")).status_code == 404
        await until(cluster, "fan", "Completed", within_s=3600)


async def test_invalid_resource_is_refused_with_its_field(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        for spec, field in (
            ({"nodes": "a few"}, "nodes"),
            ({"nodes": "101%"}, "nodes"),
            ({"nodes": "1", "schedule": "0 9 * * *"}, "schedule"),
            ({"nodes": "1", "reasons": ["Moon"]}, "reasons"),
            ({"nodes": "1", "reasons": []}, "reasons"),
            ({"reasons": ["Firmware"]}, "nodes"),
        ):
            with pytest.raises(InvalidField, match=f"spec.{field}"):
                await cluster.apply_resource(DISRUPTION_BUDGET, "wrong", spec)
        await cluster.apply_resource(
            DISRUPTION_BUDGET, "wrong", {"nodes": "1", "schedule": "61 * * * *", "durationS": 60}
        )
        refused = await cluster.settles(
            DISRUPTION_BUDGET, "wrong", lambda b: ready(b).get("status") == "False", "MatrixCompute cannot read it"
        )
        assert refused["status"]["state"] == "Refused"
        assert ready(refused)["message"].startswith("spec.schedule: Bad minute")
        assert (await cluster.get("compute", "/v1/disruption-budgets")).json()["items"] == []


async def test_changed_resource_changes_the_budget(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        for body in yaml.safe_load_all(EXAMPLES.read_text()):
            await cluster.kube.apply(DISRUPTION_BUDGET, body)
        await cluster.tick()
        listed = (await cluster.get("compute", "/v1/disruption-budgets")).json()["items"]
        assert {each["name"]: (each["nodes"], each["reasons"], each.get("schedule")) for each in listed} == {
            "firmware": ("10%", ["Firmware"], None),
            "office-hours": ("0", ["Service", "Firmware"], "0 9 * * mon-fri"),
        }
        await cluster.apply_resource(DISRUPTION_BUDGET, "firmware", {"nodes": "3", "reasons": ["Firmware"]})
        await cluster.tick()
        changed = (await cluster.get("compute", "/v1/disruption-budgets/firmware")).json()
        assert (changed["nodes"], changed["generation"]) == ("3", 2)
        shown = await cluster.kube.find(DISRUPTION_BUDGET, "firmware", None)
        assert shown is not None
        assert shown["status"]["observedGeneration"] == shown["metadata"]["generation"] == 2
