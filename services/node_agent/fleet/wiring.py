"""RackWiring: the emulated cables follow the topology graph; the fleet asks MatrixResource how supernodes are wired.

The racks are wired as drawn. Deviations that agents find are reported by them, and not applied here.
"""

from __future__ import annotations

from matrixresource.client import ResourceClient, TopologyVersionCache
from matrixresource.topology.compiled import compile_stored
from matrixresource.topology.supernode import Supernode
from services.node_agent.fleet.fleet import Fleet


class RackWiring:
    """Run `reconcile` periodically beside the fleet."""

    def __init__(self, fleet: Fleet, client: ResourceClient) -> None:
        self._fleet = fleet
        self._client = client
        self.newest = TopologyVersionCache(client)
        self._applied_versions: dict[str, str] = {}

    async def reconcile(self) -> None:
        """If the topology has a new version, rewire what it changes."""
        version = await self.newest.name()
        supernodes = self._fleet.supernodes()
        self._applied_versions = {name: seen for name, seen in self._applied_versions.items() if name in supernodes}
        for name in supernodes:
            if self._applied_versions.get(name) == version:
                continue
            wiring = await self._client.wiring(name)
            if wiring is not None:
                topology = compile_stored({"spec": wiring.spec, "drawn": wiring.drawn})
                if topology.spec.fingerprint == self._fleet.spec.fingerprint:
                    self._fleet.rewire(Supernode(name, topology=topology))
            self._applied_versions[name] = version
