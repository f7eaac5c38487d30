"""A stack on supernodes of another model serves with that machine's dies, and with no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from matrixresource.machines import DEFAULT_FILE
from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def test_what_is_served_on_another_supernode_is_timed_on_its_machine(tmp_path: Path) -> None:
    spec = tmp_path / "atlas.yaml"
    spec.write_text(yaml.safe_dump(yaml.safe_load(DEFAULT_FILE.read_text()) | {"model": "Atlas 950"}))
    async with Stack(tmp_path, spec=spec, infer=True) as stack:
        infer = stack.http["infer"]
        await stack.apply("i", 4)
        await stack.active("i", 4)
        refused = await infer.put("/v1/deployments/r1", json={"instance": "i", "machine": "cloudmatrix384"})
        assert (refused.status_code, refused.json()["field"]) == (422, "machine")
        assert "instance i lies on a supernode of Atlas 950" in refused.json()["detail"]
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
