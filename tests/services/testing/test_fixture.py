"""The `cloudmatrix` fixture, as somebody who tests an operator uses it."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from matrixcommon.model.errors import InvalidField, MatrixError, NotFound
from services.snapshots import archive
from services.testing.cloudmatrix import CloudMatrix
from services.testing.durations import seconds
from services.testing.virtual_time import run_in_virtual_time

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "deepseek-r1.yaml"
INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: llm}
spec: {nodes: 4, spares: 1}
"""


async def test_an_instance_survives_a_lost_node(cloudmatrix: CloudMatrix) -> None:
    await cloudmatrix.apply(INSTANCE)
    llm = cloudmatrix.cmi("llm")
    await cloudmatrix.clock.until(lambda world: world.cmi("llm").condition("Ready"), within="20m")
    assert len(llm.members()) == 4
    lost = llm.members()[0]
    await cloudmatrix.fault("node-down", lost)
    await cloudmatrix.clock.until(lambda world: lost not in llm.members() and llm.condition("Ready"), within="30m")
    await cloudmatrix.delete("cmi", "llm")
    await cloudmatrix.clock.until(lambda world: not llm.exists(), within="30m")
    with pytest.raises(NotFound):
        await cloudmatrix.delete("cmi", "llm")


async def test_the_example_of_the_docs_serves(cloudmatrix: CloudMatrix) -> None:
    await cloudmatrix.apply(EXAMPLE)
    served = cloudmatrix.objects("cminf")[0]["metadata"]["name"]
    await cloudmatrix.clock.until(lambda world: world.resource("cminf", served).condition("Ready"), within="1h")


async def test_an_hour_passes_where_it_is_let_pass(cloudmatrix: CloudMatrix) -> None:
    began = cloudmatrix.clock.now()
    await asyncio.sleep(0)
    assert cloudmatrix.clock.now() == began
    await cloudmatrix.clock.advance("1h")
    assert cloudmatrix.clock.now() == began + 3600
    assert all(each["status"]["conditions"] for each in cloudmatrix.objects("nodes"))
    assert len(cloudmatrix.objects("nodes")) == len(cloudmatrix.nodes()) == 48


async def test_it_begins_again_with_nothing_or_with_a_snapshot(cloudmatrix: CloudMatrix, tmp_path: Path) -> None:
    await cloudmatrix.apply(INSTANCE)
    await cloudmatrix.clock.until(lambda world: world.cmi("llm").condition("Ready"), within="20m")
    file, members = tmp_path / "ready.snapshot", cloudmatrix.cmi("llm").members()
    manifest = await cloudmatrix.snapshot(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(manifest.databases) == {"agents", "compute", "infer", "kube", "link", "resource"}

    await cloudmatrix.reset()
    assert cloudmatrix.get("cmi", "llm") is None
    await cloudmatrix.reset(file)
    assert cloudmatrix.clock.now() >= manifest.emulated_s
    assert (cloudmatrix.cmi("llm").state, cloudmatrix.cmi("llm").members()) == ("Active", members)
    await cloudmatrix.fault("node-down", members[0])
    await cloudmatrix.clock.until(lambda world: members[0] not in world.cmi("llm").members(), within="30m")


@pytest.mark.cloudmatrix(seed=5, time_scale=1)
async def test_a_marker_says_how_precisely_time_passes(cloudmatrix: CloudMatrix) -> None:
    assert (cloudmatrix.seed, cloudmatrix.time_scale) == (5, 1)
    await cloudmatrix.apply(INSTANCE)
    await cloudmatrix.clock.until(lambda world: world.cmi("llm").condition("Ready"), within="20m")
    lost = cloudmatrix.cmi("llm").members()[0]
    await cloudmatrix.fault("node-down", lost)
    took_s = await cloudmatrix.clock.until(lambda world: world.cmi("llm").status["repairs"] == 1, within="3m")
    assert took_s > 30, "a lease of 30 s was given up early"


async def test_a_seed_chooses_among_nodes(cloudmatrix: CloudMatrix) -> None:
    first = await cloudmatrix.fault("node-down", "sn0-c03-*", seed=7, name="one")
    await cloudmatrix.repair(first)
    again = await cloudmatrix.fault("node-down", "sn0-c03-*", seed=7, name="two")
    faults = {each["name"]: each for each in (await cloudmatrix.http["agents"].get("/v1/faults")).json()["items"]}
    chosen = faults[again]["target"]
    assert chosen.startswith("sn0-c03-")
    assert chosen == "sn0-c03-n2", "seed 7 chooses another node than it did"


async def test_a_failure_shows_what_is_there(cloudmatrix: CloudMatrix) -> None:
    await cloudmatrix.apply(INSTANCE)
    with pytest.raises(AssertionError, match=r"not within 30s: no such luck\n  cmi llm: (.|\n)*"):
        await cloudmatrix.clock.until(lambda world: False, within="30s", message="no such luck")


REFUSED = [
    (lambda world: world.fault("node-dwon", "sn0-c00-n0"), "there is no kind 'node-dwon'"),
    (lambda world: world.fault("node-down", "sn9-*"), "no node is like 'sn9-\\*'"),
    (lambda world: world.apply("missing.yaml"), "there is no file missing.yaml"),
    (lambda world: world.apply("kind: [\n"), "the manifest is not valid YAML"),
    (lambda world: world.apply({"apiVersion": "v1", "kind": "Pony"}), "the API serves no kind 'Pony'"),
    (lambda world: world.clock.advance("soon"), "'soon' is no duration such as 90s"),
    (lambda world: world.reset("nowhere.snapshot"), "there is no file nowhere.snapshot"),
]


async def test_what_makes_no_sense_is_said(cloudmatrix: CloudMatrix) -> None:
    for ask, sentence in REFUSED:
        with pytest.raises(InvalidField, match=sentence):
            await ask(cloudmatrix)


async def test_a_snapshot_of_another_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def taken() -> None:
        async with CloudMatrix() as world:
            await world.snapshot(tmp_path / "a.snapshot")
            monkeypatch.setattr(archive.Migrations, "revisions", lambda self: ({"v9_0001"}, "v9_0001"))
            with pytest.raises(MatrixError, match="database has the tables of another version"):
                await world.reset(tmp_path / "a.snapshot")
            assert world.nodes(), "the world ended with the refusal"

    await asyncio.to_thread(run_in_virtual_time, taken)


def test_durations_are_read_as_people_write_them() -> None:
    assert [seconds(each) for each in ("90s", "20m", "1h30m", "1.5h", 7, "250ms")] == [90, 1200, 5400, 5400, 7, 0.25]
    for wrong in ("", "1", "1x", "-5m", -1, "5 m"):
        with pytest.raises(InvalidField):
            seconds(wrong)
