"""A RecoveryPolicy of Kubernetes is MatrixCompute's policy of that name, of the project that its namespace is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from matrixcommon.model.errors import InvalidField
from matrixcontainer.client.client import INSTANCE, RECOVERY_POLICY
from tests.cluster import Cluster
from tests.stories.repairs.test_recovery_policies import RESTART, rungs, until_condition
from tests.stories.test_two_namespaces import NAMESPACE

pytestmark = pytest.mark.looptime

EXAMPLE = Path(__file__).parents[3] / "examples" / "recovery-policy.yaml"


def ready(body: dict[str, Any] | None) -> dict[str, Any]:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "Ready"), {})


def is_ready(body: dict[str, Any] | None) -> bool:
    return ready(body).get("status") == "True"


async def test_recovery_policy_resource_limits_recovery_until_deleted(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        spec = {"instance": "one", "rungs": ["reset-npu", "restart"], "onExhausted": "Stop", "drainSeconds": 0}
        await cluster.apply_resource(RECOVERY_POLICY, "gentle", spec)
        declared = await cluster.settles(RECOVERY_POLICY, "gentle", is_ready, "it is declared")
        assert ready(declared)["message"] == "for one: restart, reset-npu; then wait for a manual retry"
        assert declared["status"]["ladders"]["Restart"] == ["reset-npu"]
        node = (await cluster.active("one", 2)).members[0].node
        cluster.impair("npu", "npu-fault", node, npu=3, code=RESTART, endsWith="none")
        await until_condition(cluster, "Progressing", "RecoveryStopped")
        assert await rungs(cluster) == [["reset-npu"]]

        await cluster.http["compute"].delete("/v1/recovery-policies/gentle")  # somebody, behind its back
        await cluster.tick()
        kept = (await cluster.get("compute", "/v1/recovery-policies/gentle")).json()
        assert (kept["instance"], kept["onExhausted"]) == ("one", "Stop")

        await cluster.kube.delete(RECOVERY_POLICY, "gentle", "default")
        await cluster.settles(RECOVERY_POLICY, "gentle", lambda b: b is None, "it is gone")
        assert (await cluster.get("compute", "/v1/recovery-policies/gentle")).status_code == 404


async def test_second_policy_for_an_instance_is_refused(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        example = yaml.safe_load(EXAMPLE.read_text())
        await cluster.kube.apply(RECOVERY_POLICY, {**example, "metadata": {"name": "a", "namespace": "default"}})
        await cluster.settles(RECOVERY_POLICY, "a", is_ready, "the first has it")
        await cluster.apply_resource(RECOVERY_POLICY, "b", {"instance": "deepseek-r1"})
        refused = await cluster.settles(
            RECOVERY_POLICY, "b", lambda b: ready(b).get("status") == "False", "the second is refused"
        )
        assert refused["status"]["state"] == "Refused"
        assert ready(refused)["message"].startswith(
            "spec.instance: recovery policy 'a' already applies to instance 'deepseek-r1'"
        )
        await cluster.kube.apply(NAMESPACE, {"metadata": {"name": "other"}})
        await cluster.apply_resource(RECOVERY_POLICY, "c", {"instance": "deepseek-r1"}, namespace="other")
        await cluster.settles(RECOVERY_POLICY, "c", is_ready, "another namespace has its own", namespace="other")
        await cluster.kube.delete(RECOVERY_POLICY, "a", "default")
        await cluster.settles(RECOVERY_POLICY, "b", is_ready, "it is the second's turn")


async def test_invalid_resource_is_refused_with_its_field(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        for spec, field in (
            ({"rungs": ["pray"]}, "rungs"),
            ({"drainSeconds": -1}, "drainSeconds"),
            ({"onExhausted": "Cry"}, "onExhausted"),
        ):
            with pytest.raises(InvalidField, match=f"spec.{field}"):
                await cluster.apply_resource(RECOVERY_POLICY, "wrong", spec)
        await cluster.tick()
        assert (await cluster.get("compute", "/v1/recovery-policies")).json()["items"] == []
