"""Every field of a CloudMatrixInstance changed in every state it can be in: it converges, or says why not.

Around each change the world is unkind: MatrixCompute ends and starts again, events are missed (time passes without the
operator looking), and the resource is reconciled by two at once, as by its timer and a watch. In the end the instance
follows the resource, the invariants hold, and deletion gives everything back.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from matrixcommon.model.errors import InvalidField, Unavailable
from matrixcontainer.client.client import INSTANCE
from tests.cluster import Cluster, SmallCluster
from tests.matrixresource.topology.three_cabinets import NODES

SMALL = {"nodes": 2, "spares": 1}

# path, new value, and what becomes of it: applied, refused by the API server, or without effect
MUTATIONS = [
    (("nodes",), 4, "applied"),
    (("nodes",), 1, "applied"),
    (("nodes",), 0, "refused"),
    (("nodes",), 10**9, "refused"),
    (("spares",), 0, "applied"),
    (("spares",), 3, "applied"),
    (("spares",), -1, "refused"),
    (("project",), "other", "refused"),
    (("project",), "", "refused"),
    (("placement", "policy"), "spread", "applied"),
    (("placement", "policy"), "anyhow", "refused"),
    (("placement", "level"), "supernode", "applied"),
    (("placement", "required"), True, "applied"),
    (("placement", "maxPerDomain"), 1, "refused"),
    (("placement", "blocks"), [{"nodes": 1, "level": "cabinet"}], "applied"),
    (("placement", "blocks"), [{"nodes": 5, "level": "cabinet"}], "refused"),
    (("affinity",), {"instances": ["nobody"]}, "unfit"),
    (("affinity",), {"instances": []}, "refused"),
    (("antiAffinity",), {"instances": ["nobody"], "level": "node", "required": True}, "applied"),
    (("priority",), 7, "applied"),
    (("priority",), 10**10, "refused"),
    (("preemption",), "LowerPriority", "applied"),
    (("preemption",), "HigherPriority", "refused"),
    (("leaseS",), 10**7, "applied"),
    (("leaseS",), -1, "refused"),
    (("network", "ub", "floorGbpsPerNpu"), 60, "applied"),
    (("network", "ub", "qosClass"), "Guaranteed", "applied"),
    (("network", "ub", "ceilingGbpsPerNpu"), 200, "applied"),
    (("network", "ub", "ceilingGbpsPerNpu"), 1, "refused"),
    (("network", "rdma", "floorGbpsPerNpu"), 10, "applied"),
    (("network", "rdma", "qosClass"), "BestEffort", "refused"),
    (("network", "vpc", "floorGbpsPerNpu"), 2, "refused"),
    (("network", "vpc", "qosClass"), "Burstable", "applied"),
    (("network", "vpc", "qosClass"), "Platinum", "refused"),
    (("dryRun",), True, "planned"),
]

STATES = ("Pending", "Provisioning", "Active", "Updating", "Repairing", "Deleting")


def changed(spec: dict, path: tuple[str, ...], value) -> dict:
    if not path[1:]:
        return {**spec, path[0]: value}
    return {**spec, path[0]: changed(spec.get(path[0], {}), path[1:], value)}


def at(spec: dict, path: tuple[str, ...]):
    for step in path:
        spec = spec[step]
    return spec


class Bench:
    """One instance in one state, in an unkind world."""

    def __init__(self, cluster: Cluster, name: str, random: Random) -> None:
        self.cluster = cluster
        self.name = name
        self.random = random

    async def compute_state(self) -> str:
        view = await self.cluster.compute.find_instance(self.name)
        return view.state if view is not None else "Gone"

    async def bring_to(self, state: str) -> dict:
        """The spec it then has."""
        cluster, spec = self.cluster, dict(SMALL)
        if state == "Pending":
            assert (await cluster.http["resource"].post(f"/v1/nodes/{NODES[-1]}:cordon", json={})).is_success
            spec["nodes"] = len(NODES) - spec["spares"]
        await cluster.apply_resource(INSTANCE, self.name, spec)
        await cluster.tick()
        if state in ("Active", "Updating", "Repairing", "Deleting"):
            await cluster.settles(INSTANCE, self.name, lambda b: b["status"]["state"] == "Active", "it is active")
        if state == "Updating":
            spec["nodes"] = 3
            await cluster.apply_resource(INSTANCE, self.name, spec)
            await cluster.tick()
        if state == "Repairing":
            view = await cluster.active(self.name)
            cluster.impair(f"{self.name}-lost", "node-down", view.members[0].node)
        if state == "Deleting":
            await cluster.kube.delete(INSTANCE, self.name, "default")
            await cluster.tick()
            return spec

        async def there() -> bool:
            return await self.compute_state() == state

        await cluster.until(there, f"{self.name} is {state}", within_s=900)
        return spec

    async def unkindness(self) -> None:
        cluster = self.cluster
        if self.random.random() < 0.5:
            await cluster.restart("compute")
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.uniform(0, 60))
        if self.random.random() < 0.5:
            reconcile = cluster.operator.instances.reconcile
            await asyncio.gather(reconcile(self.name), reconcile(self.name))

    async def follows(self, path, value, spec, effect: str) -> None:
        """The instance is as its resource says (or tells why it is not), and everything settles."""
        cluster = self.cluster

        def settled(body) -> bool:
            status = body["status"]
            conditions = {c["type"]: c for c in status["conditions"]}
            if effect == "planned":
                return status.get("plan", {}).get("generation") == body["metadata"]["generation"]
            if effect == "unfit":  # the slice is refused and the instance stays as it was, or waits
                reported = [conditions.get(type, {}).get("reason") for type in ("Progressing", "Scheduled")]
                return any(reason in ("InvalidField", "InsufficientBandwidth") for reason in reported) or (
                    status["state"] == "Active" and status.get("observedGeneration") == body["metadata"]["generation"]
                )
            return (
                status["state"] == "Active"
                and conditions["Ready"]["status"] == "True"
                and status["observedGeneration"] == body["metadata"]["generation"]
            )

        await cluster.settles(INSTANCE, self.name, settled, f"{self.name} follows {path}={value}", within_s=3600)
        if effect == "applied":
            view = await cluster.compute.find_instance(self.name)
            assert view is not None
            assert at(view.wire(), path) == value
        await cluster.check()

    async def leave(self) -> None:
        cluster = self.cluster
        for fault in list(cluster.fleet.faults):
            cluster.repair(fault)
        assert (await cluster.http["resource"].post(f"/v1/nodes/{NODES[-1]}:uncordon", json={})).is_success
        await cluster.kube.delete(INSTANCE, self.name, "default")
        await cluster.settles(INSTANCE, self.name, lambda b: b is None, f"{self.name} is gone")
        await cluster.nothing_left(recovering=True)  # the same nodes are lost again and again


async def try_one(cluster: Cluster, number: int, state: str, mutation, seed: int) -> None:
    path, value, effect = mutation
    bench = Bench(cluster, f"i{number}", Random(f"{seed}:{state}:{path}:{value}"))
    spec = await bench.bring_to(state)
    desired = changed(spec, path, value)
    if state == "Pending" and path != ("nodes",):
        desired["nodes"] = 2  # so that it can come up
    try:
        await cluster.apply_resource(INSTANCE, bench.name, desired)
        assert effect != "refused", f"{path}={value} was accepted"
    except (InvalidField, Unavailable):  # of a field that its schema does not have a real one says 500 as well
        assert effect == "refused", f"{path}={value} was refused"
        if state == "Pending":
            await cluster.apply_resource(INSTANCE, bench.name, SMALL)
        effect = "unchanged"
    if state != "Deleting":
        await bench.unkindness()
        await bench.follows(path, value, desired, effect)
    await bench.leave()


def pairs(seed: int, count: int | None):
    everything = [(state, mutation) for state in STATES for mutation in MUTATIONS]
    Random(seed).shuffle(everything)
    if count is None:
        return everything
    chosen = [next(pair for pair in everything if pair[0] == state) for state in STATES]
    return chosen[:count]


@pytest.mark.looptime
async def test_api_accepts_and_refuses_changes_as_the_soak_expects(tmp_path):
    async with SmallCluster(tmp_path) as cluster:
        for path, value, effect in MUTATIONS:
            await cluster.apply_resource(INSTANCE, "one", SMALL)
            refused = ""
            try:
                await cluster.apply_resource(INSTANCE, "one", changed(SMALL, path, value))
            except (InvalidField, Unavailable) as refusal:
                refused = refusal.message
            assert bool(refused) == (effect == "refused"), f"{path}={value}: {refused or 'accepted'}"


@pytest.mark.looptime
async def test_change_in_each_state_converges(tmp_path):
    async with SmallCluster(tmp_path) as cluster:
        for number, (state, mutation) in enumerate(pairs(seed=7, count=4)):
            await try_one(cluster, number, state, mutation, seed=7)


@pytest.mark.soak
@pytest.mark.looptime
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("state", STATES)
async def test_every_change_in_every_state_converges(tmp_path, state):
    async with SmallCluster(tmp_path) as cluster:
        for number, mutation in enumerate(MUTATIONS):
            await try_one(cluster, number, state, mutation, seed=number)
