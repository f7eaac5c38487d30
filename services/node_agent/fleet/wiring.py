"""The emulated cables follow the drawn graph: the fleet asks MatrixResource how its supernodes are wired.

What stands in the racks is what was drawn; what agents find to be otherwise is their own news, and not taken from here.
"""

from __future__ import annotations

from matrixresource.client import NewestTopology, ResourceClient
from matrixresource.topology.compiled import compiled_document
from matrixresource.topology.supernode import Supernode
from services.node_agent.fleet.fleet import Fleet


class RackWiring:
    """Run beside the fleet, again and again: `look`."""

    def __init__(self, fleet: Fleet, client: ResourceClient) -> None:
        self._fleet = fleet
        self._client = client
        self.newest = NewestTopology(client)
        self._known: dict[str, str] = {}

    async def look(self) -> None:
        """Whether the topology has another version; what that wires otherwise is wired."""
        version = await self.newest.name()
        here = self._fleet.supernodes()
        self._known = {name: seen for name, seen in self._known.items() if name in here}
        for name in here:
            if self._known.get(name) == version:
                continue
            wiring = await self._client.wiring(name)
            if wiring is not None:
                topology = compiled_document({"spec": wiring.spec, "drawn": wiring.drawn})
                if topology.spec.fingerprint == self._fleet.spec.fingerprint:
                    self._fleet.rack(Supernode(name, topology=topology))
            self._known[name] = version
