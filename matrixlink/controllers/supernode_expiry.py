"""Forgets supernodes that no longer exist. They are discovered by their agents' reports, and only silence tells that
they are gone.

A supernode is known from the first report of one of its agents, or because MatrixLink was started with it; the latter
are never forgotten. Hardware that was only without power returns and is discovered again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from matrixlink.controllers.agent_leases import Leases
from matrixlink.slices.slice_controller import SliceController

EXPIRY_S = 600.0
"""A supernode is forgotten after ten minutes without a report from any of its agents, if it has no slice."""


class NodeMemory(Protocol):
    """Something that keeps data about nodes in memory."""

    def forget_nodes(self, nodes: Collection[str]) -> None: ...


class SupernodeExpiry:
    """`kept`: supernodes that are never forgotten. `memories`: what has to forget a supernode's nodes too, besides the
    leases."""

    def __init__(
        self, slice_controller: SliceController, leases: Leases, kept: Iterable[str], *memories: NodeMemory
    ) -> None:
        self._slice_controller = slice_controller
        self._leases = leases
        self._memories = (leases, *memories)
        self._kept = frozenset(kept)

    async def watch(self) -> str:
        fabric, store = self._slice_controller.fabric, self._slice_controller.store
        silent = [
            name
            for name, supernode in fabric.supernodes.items()
            if name not in self._kept and all(self._leases.silent_s(node) > EXPIRY_S for node in supernode.nodes())
        ]
        gone = []
        if silent:
            with self._slice_controller.promises.transaction() as session:
                used = {member for row in store.slices(session) for member in row.members}
                gone = [name for name in silent if used.isdisjoint(fabric.supernodes[name].nodes())]
                for name in gone:
                    store.forget_supernode(session, name)
            for name in gone:
                nodes = fabric.supernodes[name].nodes()
                fabric.forget_supernode(name)
                for memory in self._memories:
                    memory.forget_nodes(nodes)
            if gone:
                self._slice_controller.promises.load()
        return f"{len(gone)} supernodes forgotten"
