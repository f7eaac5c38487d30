"""Stack: the stack in one process (`services/testing/stack.py`), with what stories say and what must always hold."""

from __future__ import annotations

import json
from typing import Any

import httpx
from sqlalchemy import text

from matrixcommon.api.client import list_all
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixresource.agent.hardware import InjectedFault
from matrixresource.contract.allocations import DEPLOYMENT_LABEL
from matrixresource.nodes.states import NODE_STATES
from services.testing.clocks import EPOCH_S
from services.testing.stack import AGENTS, SERVICES, InProcessStack, ServiceSlot
from tests.matrixcompute.client import WholeComputeClient
from tests.matrixlink.client import FullLinkClient
from tests.matrixresource.client import WholeResourceClient

__all__ = ["AGENTS", "EPOCH_S", "SERVICES", "ServiceSlot", "Stack"]

LEGAL = NODE_STATES.moves


class Stack(InProcessStack):
    """`async with Stack(tmp_path) as stack`."""

    resource_client = WholeResourceClient
    link_client = FullLinkClient
    compute_client = WholeComputeClient

    resource: WholeResourceClient
    link: FullLinkClient
    compute: WholeComputeClient

    async def __aenter__(self) -> Stack:
        await super().__aenter__()
        return self

    async def apply(self, name: str, nodes: int, spares: int = 0, **more: Any) -> InstanceView:
        request = InstanceRequest.model_validate({"nodes": nodes, "spares": spares, **more})
        return await self.compute.ensure_instance(name, request)

    async def active(self, name: str, nodes: int | None = None, within_s: float = 3600) -> InstanceView:
        """The instance once it is Active, ready, settled on its spec (and of that many nodes)."""
        seen: list[InstanceView] = []

        async def settled() -> bool:
            view = await self.compute.find_instance(name)
            assert view is not None
            seen.append(view)
            ready = any(c.type == "Ready" and c.status == "True" for c in view.conditions)
            whole = view.state == "Active" and ready and view.observed_generation == view.generation
            return whole and (nodes is None or view.ready_nodes == nodes)

        await self.until(settled, f"{name} is active", within_s)
        return seen[-1]

    async def gone(self, name: str, within_s: float = 3600) -> None:
        async def absent() -> bool:
            return await self.compute.find_instance(name) is None

        await self.until(absent, f"{name} is gone", within_s)

    def impair(self, name: str, kind: str, target: str, **parameters: Any) -> None:
        """Break emulated hardware."""
        assert self.fleet is not None
        fault = {"name": name, "kind": kind, "target": target, "parameters": parameters}
        self.fleet.inject(InjectedFault.model_validate(fault))

    def repair(self, name: str) -> None:
        assert self.fleet is not None
        self.fleet.clear(name)

    # -- what must always hold -----------------------------------------------------------------------------------

    async def check(self) -> None:
        """The invariants, read through the services' own views."""
        instances = {each.name for each in await self.compute.instances()}
        nodes = await self.resource.nodes()
        allocations = {each.name: each for each in await self.resource.allocations()}
        current: dict[str, list[str]] = {}
        for node in nodes:
            if node.allocation is not None:
                current.setdefault(node.allocation, []).append(node.name)
        for name, members in current.items():
            assert name in allocations, f"{members} are held by {name}, which does not exist"
        caches = {name: each for name, each in allocations.items() if DEPLOYMENT_LABEL in each.labels}
        allocations = {name: each for name, each in allocations.items() if name not in caches}
        assert {member.role for each in caches.values() for member in each.members} <= {"pool"}, "memory and no NPUs"
        for name, allocation in allocations.items():
            listed = sorted(member.node for member in allocation.members)
            assert listed == sorted(current.get(name, [])), f"{name} lists other nodes than it holds"
            ranks = [member.rank for member in allocation.members if member.role == "member"]
            assert len(ranks) == len(set(ranks)), f"{name} gives a rank twice"
        self.node_moves()
        slices = await self.link.slices()
        promised = 0
        for of in [{"plane": "rdma"}, *({"node": node} for members in current.values() for node in members)]:
            # Floors lie on what leaves the members of a slice, and on leaves and spines.
            for link in await list_all(self.http["link"], "/v1/links", of):
                assert link["floorsGbps"] <= link["gbps"] + 1e-6 or link["gbps"] < link["builtGbps"], link
                promised += link["floorsGbps"] > 0
        still = {each.name for each in await self.link.slices() if each.state == "Active"}
        floors = [each.name for each in slices if each.state == "Active" and each.floor_gbps_per_npu]
        assert promised or not still & set(floors), f"{floors} have floors, but no link has"
        # Who came or went while the rest was read is in one of the two lists: until everything of it is given back, an
        # instance is there, also while it is being deleted.
        instances |= {each.name for each in await self.compute.instances()}
        for name in allocations:
            assert name in instances, f"allocation {name} is an orphan"
        for slice in slices:
            assert slice.instance in instances, f"slice {slice.name} is an orphan"

    def node_moves(self) -> set[tuple[str, str]]:
        """The moves between states that nodes made, as far as the journal reaches back; each is in the table."""
        database = self.slots["resource"].database
        assert database is not None
        with database.engine.connect() as connection:
            rows = connection.execute(text("SELECT name, body FROM changes WHERE kind = 'node' ORDER BY rv")).all()
        at: dict[str, str] = {}
        moves = set()
        for name, body in rows:
            state = json.loads(body)["state"]
            if at.get(name, state) != state:
                moves.add((at[name], state))
            at[name] = state
        assert not (illegal := {f"{before} -> {after}" for before, after in moves if after not in LEGAL[before]}), (
            illegal
        )
        return moves

    async def nothing_left(self, recovering: bool = False) -> None:
        """After a deletion: no allocation, no slice, no program, every node clean again. `recovering`: nodes that came and
        went too often stay out until somebody has looked at them (decision 481), who does so here."""
        found = await self.resource.allocations()
        assert [each.name for each in found if DEPLOYMENT_LABEL not in each.labels] == []
        assert await self.link.slices() == []
        await self.until(self._nothing_lent, "the memory of caches is given back")
        await self.until(self._recovered if recovering else self._enrolled, "every node is available again")

    async def _recovered(self) -> bool:
        for node in await self.resource.nodes():
            if (node.state, node.state_reason) == ("Quarantined", "Flapping"):
                await self.resource.call_node_verb(node.name, "recover", "it was looked at")
        return await self._enrolled()

    async def _nothing_lent(self) -> bool:
        return await self.resource.allocations() == []

    async def get(self, service: str, path: str, **more: Any) -> httpx.Response:
        return await self.http[service].get(path, **more)
