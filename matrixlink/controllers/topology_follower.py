"""Follows the supernodes' graphs: fetches them from MatrixResource whenever there is a new topology version.

The drawn graph is adopted completely, with the cables that agents found to lead elsewhere; what is dark or has failed
is learnt sooner from MatrixLink's own agents. Graphs are stored, so that a restart begins with them. While
MatrixResource does not answer, the fabric stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import WiringRow
from matrixresource.client import ResourceClient, TopologyVersionCache
from matrixresource.contract.topology import SupernodeWiring
from matrixresource.topology import Supernode
from matrixresource.topology.compiled import compile_stored
from matrixresource.topology.deviations import Deviation

log = logging.getLogger(__name__)

CABLE_MOVED = "CableMoved"


class TopologyFollower:
    """Each run fetches what is not known yet, and reroutes slices that used a changed cable."""

    def __init__(self, slice_controller: SliceController, resource: ResourceClient) -> None:
        self._slice_controller = slice_controller
        self._resource = resource
        self.newest = TopologyVersionCache(resource)
        self._known: dict[str, str] = {}
        """By supernode, the topology version at which its graph was fetched."""

    async def watch(self) -> str:
        version = await self.newest.name()
        fabric = self._slice_controller.fabric
        self._known = {name: seen for name, seen in self._known.items() if name in fabric.supernodes}
        behind = [name for name in fabric.supernodes if self._known.get(name) != version]
        learnt = []
        for name in behind:
            wiring = await self._resource.wiring(name)
            if wiring is not None and name in fabric.supernodes and self._take(name, wiring):
                learnt.append(name)
            self._known[name] = version
        if learnt:
            self._slice_controller.reroute()
        return f"rewired: {', '.join(learnt) or 'nothing'}"

    def _take(self, name: str, wiring: SupernodeWiring) -> bool:
        document: dict[str, Any] = {"spec": wiring.spec, "drawn": wiring.drawn, "found": _moved_cables(wiring)}
        supernode = supernode_from_document(name, document)
        try:
            news = self._slice_controller.promises.apply_topology(supernode)
        except InvalidField as refused:
            log.warning("graph refused", extra={"supernode": name, "why": refused.message})
            return False
        if news:
            with self._slice_controller.store.transaction() as session:
                row = session.get(WiringRow, name)
                if row is None:
                    row = WiringRow(supernode=name)
                    session.add(row)
                row.document = document
            log.info("graph adopted", extra={"supernode": name, "version": wiring.topology_version})
        return news


def _moved_cables(wiring: SupernodeWiring) -> list[dict[str, str]]:
    return [each for each in wiring.found if each["kind"] == CABLE_MOVED]


def supernode_from_document(name: str, document: Mapping[str, Any]) -> Supernode:
    """A supernode from its stored graph."""
    supernode = Supernode(name, topology=compile_stored(document))
    return supernode.with_deviations(Deviation(**each).qualified(name) for each in document["found"])
