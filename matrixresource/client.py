"""ResourceClient: MatrixResource's verbs over HTTP, for the other services and the agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matrixcommon.api.client import ServiceClient, WatchEvent, at, call
from matrixcommon.model.hardware_names import NodeName
from matrixresource.contract.agents import NodeReport, ReportAnswer
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import DefragmentationView, MoveRefused, RelocateRequest
from matrixresource.contract.nodes import CordonRequest, CordonView, NodeView, Power, SupernodeView
from matrixresource.contract.topology import DomainView, SupernodeWiring, TopologyVersionView


class ResourceClient(ServiceClient):
    """It also watches `nodes`, `allocations`, `assignments`, `defragmentations` and `topology-versions`."""

    async def _allocation(
        self, method: str, name: str, verb: str = "", body: Any = None, validate_only: bool = False
    ) -> AllocationView:
        path = at("allocations", name, verb)
        return await self._ask(AllocationView, method, path, body, validate_only=validate_only)

    async def nodes(self, filter: str | None = None) -> list[NodeView]:
        return await self._all(NodeView, "nodes", filter)

    async def cordon(self, node: str, by: str, cordoned: bool = True) -> NodeView:
        """Set one owner's cordon, or take it back."""
        path = at("nodes", node, ":cordon" if cordoned else ":uncordon")
        return NodeView.model_validate(await call(self._http, "POST", path, params={"by": by}))

    async def cordon_all(self, nodes: Sequence[str], by: str, cabinets: Sequence[str] = ()) -> list[NodeName]:
        """Set one owner's cordon on all of them, and of these cabinets, at once; those that exist."""
        request = CordonRequest.model_validate({"nodes": nodes, "cabinets": cabinets, "by": by})
        return (await self._ask(CordonView, "POST", "/v1/node-cordons", request)).nodes

    async def ask_node(self, node: str, verb: str, reason: str, firmware: str | None = None) -> NodeView:
        """One of the verbs of a node's life: service, recover, update to a firmware ..."""
        body = {"reason": reason} | ({"firmware": firmware} if firmware is not None else {})
        return await self._ask(NodeView, "POST", at("nodes", node, f":{verb}"), body)

    async def allocations(self) -> list[AllocationView]:
        return await self._all(AllocationView, "allocations")

    async def find_allocation(self, name: str) -> AllocationView | None:
        return await self._find(AllocationView, at("allocations", name))

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        return await self._allocation("PUT", name, "", request, validate_only)

    async def bind(self, name: str, power: Power = "On") -> AllocationView:
        """Have its nodes deployed, or switched off and kept."""
        return await self._allocation("PUT", name, "/binding", {"power": power})

    async def replace(self, name: str, node: str, reason: str, validate_only: bool = False) -> AllocationView:
        return await self._allocation("POST", name, ":replace", {"node": node, "reason": reason}, validate_only)

    async def repair(self, name: str, node: str, task: str) -> AllocationView:
        """Have a member's agent repair it where it stands."""
        return await self._allocation("POST", name, ":repair", {"node": node, "task": task})

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        """Take successors for what would lie elsewhere; with `validate_only`, show the layout in the end."""
        return await self._allocation("PUT", name, "/move", request, validate_only)

    async def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Take a successor for one member on a node that is named."""
        return await self._allocation("POST", name, ":relocate", request)

    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        return await self._allocation("POST", name, ":changeOver", request)

    async def renew(self, name: str, lease_s: float, validate_only: bool = False) -> AllocationView:
        """Let a lease start again, for this long."""
        return await self._allocation("POST", name, ":renew", {"leaseS": lease_s}, validate_only)

    async def abort_move(self, name: str) -> AllocationView:
        """Give a move up."""
        return await self._allocation("DELETE", name, "/move")

    async def release(self, name: str) -> bool:
        """Ask for release; True once the allocation is gone."""
        return await self._delete(at("allocations", name))

    async def topology_version(self) -> str:
        """The name of the newest version; empty before the first."""
        found = await self._find(TopologyVersionView, "/v1/topology-versions/current")
        return "" if found is None else found.name

    async def wiring(self, supernode: str) -> SupernodeWiring | None:
        """All that it takes to draw a supernode's graph."""
        return await self._find(SupernodeWiring, f"/v1/supernodes/{supernode}/wiring")

    async def supernodes(self) -> list[SupernodeView]:
        return await self._all(SupernodeView, "supernodes")

    async def domains(self, filter: str | None = None) -> list[DomainView]:
        """Cabinets and supernodes, and whether they take newcomers."""
        return await self._all(DomainView, "domains", filter)

    async def defragmentations(self, filter: str | None = None) -> list[DefragmentationView]:
        return await self._all(DefragmentationView, "defragmentations", filter)

    async def refuse_move(self, defragmentation: str, reported: MoveRefused) -> DefragmentationView:
        """Say that the move under way cannot be carried out."""
        path = f"/v1/defragmentations/{defragmentation}:refuse"
        return await self._ask(DefragmentationView, "POST", path, reported)

    async def report(self, reports: list[NodeReport]) -> list[ReportAnswer]:
        return await self._report(ReportAnswer, "/v1/node-reports", reports)


class NewestTopology:
    """The name of the newest version of the topology, asked for where a watch of the versions tells of another, and
    each time while there is no such watch. `hear` is what the watch tells; `changed` is called whenever it tells."""

    def __init__(self, resource: ResourceClient) -> None:
        self._resource = resource
        self._heard, self._times = False, 0
        self._known: str | None = None
        self.changed: Callable[[], None] = lambda: None

    async def hear(self, event: WatchEvent | None) -> None:
        """A version, or None: the watch broke off, and something may have been missed."""
        self._heard, self._known = event is not None, None
        self._times += 1
        self.changed()

    async def name(self) -> str:
        """Empty before the first version. Raises Unavailable."""
        if self._known is not None:
            return self._known
        times = self._times
        found = await self._resource.topology_version()
        if self._heard and times == self._times:  # else what was heard meanwhile may be of a version after it
            self._known = found
        return found
