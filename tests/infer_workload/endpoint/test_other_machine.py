"""A stack on supernodes of another model serves with that machine's dies, and with no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from matrixresource.machines import DEFAULT_FILE
from tests.infer_workload.conftest import NODES, FakeFabricViews, InferServer
from tests.stack import Stack


def conditions(view: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in view["conditions"]}


async def test_a_plane_that_the_machine_lacks_is_reported_once_the_instance_exists(fresh: Path) -> None:
    """While there is no instance nobody knows which machine it will lie on, and the plane is taken."""
    views = FakeFabricViews(nodes=[])
    views.machine = "Atlas 800I A2"
    async with InferServer(fresh, views) as server:
        taken = await server.ensure(cachePlane="ub")
        assert taken.status_code == 200, taken.text
        waits = ("False", "NoLayout", "instance i has no network slices")
        assert conditions(taken.json())["LaidOut"] == (*waits[:2], waits[2] + " yet")
        views.gain(*NODES)
        why = "the context cache cannot be read over ub: the machine's nodes are connected by rdma, vpc"
        while conditions(view := (await server.http.get("/v1/deployments/r1")).json())["Ready"][2] != why:
            await asyncio.sleep(0.01)
        assert (view["state"], view["machine"]) == ("Pending", "atlas-800i-a2")
        assert conditions(view) == {
            "Ready": ("False", "Pending", why),
            "LaidOut": ("False", "NoLayout", why),
            "Progressing": ("False", "NoLayout", why),
        }
        refused = await server.ensure(cachePlane="ub")
        assert (refused.status_code, refused.json()["field"], refused.json()["detail"]) == (422, "cachePlane", why)
        assert refused.json()["blocking"] == [{"domain": "cachePlane", "needs": "ub", "has": "rdma, vpc"}]
        assert (await server.ensure(cachePlane="vpc")).status_code == 200
        view = await server.until("Serving")
        assert conditions(view)["Progressing"] == ("False", "Settled", "")


@pytest.mark.looptime
async def test_what_is_served_on_another_supernode_is_timed_on_its_machine(tmp_path: Path) -> None:
    spec = tmp_path / "atlas.yaml"
    spec.write_text(yaml.safe_dump(yaml.safe_load(DEFAULT_FILE.read_text()) | {"model": "Atlas 950"}))
    async with Stack(tmp_path, spec=spec, infer=True) as stack:
        infer = stack.http["infer"]
        await stack.apply("i", 4)
        await stack.active("i", 4)
        refused = await infer.put("/v1/deployments/r1", json={"instance": "i", "machine": "cloudmatrix384"})
        assert (refused.status_code, refused.json()["field"]) == (422, "machine")
        assert "instance i is on a supernode of Atlas 950" in refused.json()["detail"]
        taken = await infer.put("/v1/deployments/r1", json={"instance": "i"})
        assert (taken.status_code, taken.json()["machine"]) == (200, "atlas-950"), taken.text

        async def serving() -> bool:
            return bool((await stack.get("infer", "/v1/deployments/r1")).json()["state"] == "Serving")

        await stack.until(serving, "it serves")
        shown = (await stack.get("infer", "/v1/deployments/r1")).json()["pools"]
        theirs, others = (
            lay_out(healthy_fabric(4, machine), load_model(), machine).kv_tokens_per_die
            for machine in (load_calibration("atlas-950"), load_calibration())
        )
        assert shown["kvTokensPerDie"] == theirs != others
        answer = await infer.post("/v1/completions", json={"model": "r1", "prompt": "a long way", "max_tokens": 4})
        assert answer.is_success, answer.text
