"""Every field of the other kinds changed in every state they can be in: followed, refused with the reason, or put back.

As in test_operator_mutations.py the world is unkind around each change: services end and start again, time passes
unobserved, two reconcile at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcompute.clients.inference import Inference
from matrixcontainer.client.client import FAULT, INFER, INSTANCE, NETWORK_SLICE, NODE, SUPERNODE, Kind
from matrixcontainer.mirrors.mirrors import RESYNC_S
from tests.cluster import Cluster, SmallCluster

NODES = 10

# field, new value, and what becomes of it; "unfit" is accepted by the API and refused by CloudMatrix-Infer
INFER_CHANGES = [
    ("instance", "other", "refused"),
    ("instance", "", "refused"),
    ("model", "another", "refused"),
    ("prefillNpus", 16, "applied"),
    ("prefillNpus", 12, "refused"),
    ("prefillNpus", 0, "refused"),
    ("decodeNpus", 40, "applied"),
    ("decodeNpus", 32768, "unfit"),
    ("decodeNpus", -8, "refused"),
    ("blockTokens", 256, "applied"),
    ("blockTokens", 64, "refused"),
    ("blockTokens", 1024, "refused"),
]
INFER_STATES = ("Pending", "Loading", "Serving", "Repairing", "Deleting")

FAULT_CHANGES = [
    ("kind", "agent-hang", "refused"),
    ("kind", "gremlins", "refused"),
    ("target", "sn0-c00-n1", "refused"),
    ("target", "moon", "refused"),
    ("parameters", {"npu": "3"}, "refused"),
]
FAULT_STATES = ("Injected", "Healing", "Refused", "Deleting")


def reported(body, type: str) -> tuple[str, str]:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == type), ("", ""))


async def unkindness(cluster: Cluster, random: Random, again) -> None:
    if random.random() < 0.5:
        await cluster.restart(random.choice(["compute", "link", "resource"]))
    if random.random() < 0.5:
        await asyncio.sleep(random.uniform(0, 60))
    if random.random() < 0.5:
        with contextlib.suppress(MatrixError):  # who is away, says so
            await asyncio.gather(again(), again())


async def bring_infer_to(cluster: Cluster, state: str) -> None:
    if state == "Pending":
        return
    await cluster.apply_resource(INSTANCE, "one", {"nodes": NODES, "spares": 1})
    await cluster.settles(INSTANCE, "one", lambda b: reported(b, "Ready")[0] == "True", "the instance is ready")
    wanted = "Serving" if state not in ("Loading", "Pending") else "Loading"
    await cluster.settles(INFER, "one", lambda b: (b.get("status") or {}).get("state") == wanted, f"it is {wanted}")
    if state == "Repairing":
        view = await cluster.compute.find_instance("one")
        assert view is not None
        cluster.impair("lost", "node-down", view.members[0].node)
        await asyncio.sleep(20)
    if state == "Deleting":
        await cluster.kube.delete(INFER, "one", "default")


async def try_infer(folder, state: str, change, seed: int) -> None:
    field, value, effect = change
    async with SmallCluster(folder) as cluster:
        random = Random(f"{seed}:{state}:{field}:{value}")
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        await cluster.tick()
        await bring_infer_to(cluster, state)
        try:
            await cluster.apply_resource(INFER, "one", {"instance": "one", field: value})
            assert effect != "refused", f"{field}={value} was accepted"
        except InvalidField:
            assert effect == "refused", f"{field}={value} was refused"
        await unkindness(cluster, random, lambda: cluster.operator.infers.reconcile("one"))
        if state == "Pending":
            await cluster.apply_resource(INSTANCE, "one", {"nodes": NODES, "spares": 1})
        if state != "Deleting":
            await cluster.settles(INFER, "one", lambda b: follows(b, effect, state), f"{state}: {field}={value}")
        deployment = await Inference(cluster.http["infer"]).find("one")
        if state != "Deleting" and effect == "applied":
            assert deployment is not None
            assert deployment[field] == value
        await cluster.check()
        for fault in list(cluster.fleet.faults):
            cluster.repair(fault)
        for kind in (INFER, INSTANCE):
            await cluster.kube.delete(kind, "one", "default")
            await cluster.settles(kind, "one", lambda b: b is None, f"{kind.kind} is gone")
        await cluster.nothing_left()
        assert await cluster.pods() == []


def follows(body, effect: str, state: str) -> bool:
    status = body["status"]
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return False
    if effect == "unfit" and state in ("Pending", "Loading"):  # nothing that could go on serving
        return status["state"] != "Serving" or reported(body, "Progressing")[1] != "Settled"
    if effect == "unfit":
        return status["state"] == "Serving" and reported(body, "Progressing") not in (("", ""), ("False", "Settled"))
    return status["state"] == "Serving" and reported(body, "Progressing") == ("False", "Settled")


async def try_fault(cluster: Cluster, number: int, state: str, change, seed: int) -> None:
    field, value, _ = change
    random, name = Random(f"{seed}:{state}:{field}"), f"f{number}"
    spec = {"kind": "node-down", "target": "sn0-c02-n0"}
    if state == "Refused":
        spec = {"kind": "link-down", "target": "sn0-c02-n0", "parameters": {"port": "nowhere"}}
    if state == "Healing":
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 3, "spares": 1})
        body = await cluster.settles(INSTANCE, "one", lambda b: reported(b, "Ready")[0] == "True", "it is ready")
        spec["target"] = body["status"]["members"][0]["node"]
    await cluster.apply_resource(FAULT, name, spec)
    wanted = "Refused" if state == "Refused" else "Injected"
    await cluster.settles(FAULT, name, lambda b: (b.get("status") or {}).get("state") == wanted, wanted)
    if state == "Deleting":
        await cluster.kube.delete(FAULT, name)
    with pytest.raises(InvalidField):
        await cluster.apply_resource(FAULT, name, spec | {field: value})
    await unkindness(cluster, random, lambda: cluster.operator.faults.reconcile(name))
    assert cluster.fleet is not None
    if state == "Healing":
        await cluster.settles(
            INSTANCE, "one", lambda b: reported(b, "Ready")[0] == "True" and b["status"]["repairs"] == 1, "it healed"
        )
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.settles(INSTANCE, "one", lambda b: b is None, "it is gone")
    if state != "Deleting":
        body = await cluster.kube.find(FAULT, name)
        assert body is not None
        assert (body["status"]["state"], body["spec"]["kind"]) == (wanted, spec["kind"])
        assert (name in cluster.fleet.faults) == (wanted == "Injected")
        await cluster.kube.delete(FAULT, name)
    await cluster.settles(FAULT, name, lambda b: b is None, "the fault is gone")
    assert name not in cluster.fleet.faults
    await cluster.nothing_left(recovering=True)  # the same nodes are lost again and again


@pytest.mark.looptime
async def test_api_accepts_and_refuses_changes_as_the_soak_expects(tmp_path):
    async with SmallCluster(tmp_path) as cluster:
        for field, value, effect in INFER_CHANGES:
            await cluster.apply_resource(INFER, "one", {"instance": "one"})
            refused = ""
            try:
                await cluster.apply_resource(INFER, "one", {"instance": "one", field: value})
            except InvalidField as refusal:
                refused = refusal.message
            assert bool(refused) == (effect == "refused"), f"{field}={value}: {refused or 'accepted'}"


@pytest.mark.looptime
async def test_workload_change_in_some_states_converges(tmp_path):
    sample = [("Serving", INFER_CHANGES[7]), ("Loading", INFER_CHANGES[3])]
    for number, (state, change) in enumerate(sample):
        (tmp_path / str(number)).mkdir()
        await try_infer(tmp_path / str(number), state, change, seed=number)


@pytest.mark.looptime
async def test_fault_change_is_refused_in_every_state(tmp_path):
    async with SmallCluster(tmp_path) as cluster:
        for number, state in enumerate(FAULT_STATES):
            await try_fault(cluster, number, state, FAULT_CHANGES[number], seed=7)


MIRRORED: list[tuple[Kind, str, dict]] = [
    (SUPERNODE, "sn0", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}),
    (NETWORK_SLICE, "one-ub", {"spec": {"floorGbpsPerNpu": 1000}}),
    (NETWORK_SLICE, "one-ub", {"spec": {"plane": "vpc", "instance": "other", "qosClass": "Guaranteed"}}),
    (NODE, "sn0-c00-n0", {"metadata": {"labels": {"cloudmatrix.io/cabinet": "moon"}}}),
    (NODE, "sn0-c00-n0", {"spec": {"taints": None}}),
]


@pytest.mark.soak
@pytest.mark.looptime
async def test_changed_or_deleted_mirror_is_restored(tmp_path):
    async with SmallCluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", lambda b: reported(b, "Ready")[0] == "True", "it is ready")
        await cluster.tick()
        for kind, name, change in MIRRORED:
            before = await cluster.kube.find(kind, name)
            assert before is not None
            await cluster.kube.merge(kind, name, change)
            await asyncio.sleep(RESYNC_S)

            def as_before(body, before=before) -> bool:
                return (body["spec"], body["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])

            await cluster.settles(kind, name, as_before, f"{kind.kind} {name} is put back", within_s=30)
        for kind, name in ((SUPERNODE, "sn0"), (NETWORK_SLICE, "one-rdma"), (NODE, "sn0-c00-n0")):
            await cluster.kube.delete(kind, name)
            await asyncio.sleep(RESYNC_S)
            await cluster.settles(kind, name, lambda b: b is not None and b.get("status"), "it is there", within_s=30)


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", INFER_STATES)
async def test_every_workload_change_in_every_state_converges(tmp_path, state):
    for number, change in enumerate(INFER_CHANGES):
        (tmp_path / str(number)).mkdir()
        await try_infer(tmp_path / str(number), state, change, seed=number)


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", FAULT_STATES)
async def test_every_fault_change_is_refused_in_every_state(tmp_path, state):
    async with SmallCluster(tmp_path) as cluster:
        for number, change in enumerate(FAULT_CHANGES):
            await try_fault(cluster, number, state, change, seed=number)
