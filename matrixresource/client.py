"""ResourceClient: MatrixResource's verbs over HTTP, for the other services and the agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matrixcommon.api.client import ServiceClient, WatchEvent, call, resource_path
from matrixcommon.model.hardware_names import NodeName
from matrixresource.contract.agents import NodeReport, ReportAnswer
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import DefragmentationView, MoveRefused, RelocateRequest
from matrixresource.contract.nodes import CordonRequest, CordonView, NodeView, Power, SupernodeView
from matrixresource.contract.topology import DomainView, SupernodeWiring, TopologyVersionView


class ResourceClient(ServiceClient):
    """It also provides watches of `nodes`, `allocations`, `assignments`, `defragmentations` and `topology-versions`."""

    async def _allocation(
        self, method: str, name: str, verb: str = "", body: Any = None, validate_only: bool = False
    ) -> AllocationView:
        path = resource_path("allocations", name, verb)
        return await self._ask(AllocationView, method, path, body, validate_only=validate_only)

    async def nodes(self, filter: str | None = None) -> list[NodeView]:
        return await self._all(NodeView, "nodes", filter)

    async def cordon(self, node: str, by: str, cordoned: bool = True) -> NodeView:
        """Set or lift one owner's cordon."""
        path = resource_path("nodes", node, ":cordon" if cordoned else ":uncordon")
        return NodeView.model_validate(await call(self._http, "POST", path, params={"by": by}))

    async def cordon_all(self, nodes: Sequence[str], by: str, cabinets: Sequence[str] = ()) -> list[NodeName]:
        """Set one owner's cordon on these nodes and on all nodes of these cabinets at once. Return those that exist."""
        request = CordonRequest.model_validate({"nodes": nodes, "cabinets": cabinets, "by": by})
        return (await self._ask(CordonView, "POST", "/v1/node-cordons", request)).nodes

    async def call_node_verb(self, node: str, verb: str, reason: str, firmware: str | None = None) -> NodeView:
        """Call one of a node's verbs: service, recover, update to a firmware ..."""
        body = {"reason": reason} | ({"firmware": firmware} if firmware is not None else {})
        return await self._ask(NodeView, "POST", resource_path("nodes", node, f":{verb}"), body)

    async def allocations(self) -> list[AllocationView]:
        return await self._all(AllocationView, "allocations")

    async def find_allocation(self, name: str) -> AllocationView | None:
        return await self._find(AllocationView, resource_path("allocations", name))

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        return await self._allocation("PUT", name, "", request, validate_only)

    async def bind(self, name: str, power: Power = "On") -> AllocationView:
        """Deploy its nodes, or switch them off and keep them."""
        return await self._allocation("PUT", name, "/binding", {"power": power})

    async def replace(self, name: str, node: str, reason: str, validate_only: bool = False) -> AllocationView:
        return await self._allocation("POST", name, ":replace", {"node": node, "reason": reason}, validate_only)

    async def repair(self, name: str, node: str, task: str) -> AllocationView:
        """Have a member's agent repair it in place."""
        return await self._allocation("POST", name, ":repair", {"node": node, "task": task})

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        """Begin a move by taking successors; with `validate_only`, return the final layout."""
        return await self._allocation("PUT", name, "/move", request, validate_only)

    async def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        """Begin moving one member to a named node."""
        return await self._allocation("POST", name, ":relocate", request)

    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        return await self._allocation("POST", name, ":changeOver", request)

    async def renew(self, name: str, lease_s: float, validate_only: bool = False) -> AllocationView:
        """Restart the lease with this length."""
        return await self._allocation("POST", name, ":renew", {"leaseS": lease_s}, validate_only)

    async def abort_move(self, name: str) -> AllocationView:
        """Cancel a move."""
        return await self._allocation("DELETE", name, "/move")

    async def release(self, name: str) -> bool:
        """Request the release; return True once the allocation is gone."""
        return await self._delete(resource_path("allocations", name))

    async def topology_version(self) -> str:
        """The name of the newest version; empty before the first."""
        found = await self._find(TopologyVersionView, "/v1/topology-versions/current")
        return "" if found is None else found.name

    async def wiring(self, supernode: str) -> SupernodeWiring | None:
        """Everything needed to draw a supernode's graph; None if there is no such supernode."""
        return await self._find(SupernodeWiring, f"/v1/supernodes/{supernode}/wiring")

    async def supernodes(self) -> list[SupernodeView]:
        return await self._all(SupernodeView, "supernodes")

    async def domains(self, filter: str | None = None) -> list[DomainView]:
        """Cabinets and supernodes, and whether they are open for new work."""
        return await self._all(DomainView, "domains", filter)

    async def defragmentations(self, filter: str | None = None) -> list[DefragmentationView]:
        return await self._all(DefragmentationView, "defragmentations", filter)

    async def refuse_move(self, defragmentation: str, reported: MoveRefused) -> DefragmentationView:
        """Report that the current move cannot be carried out."""
        path = f"/v1/defragmentations/{defragmentation}:refuse"
        return await self._ask(DefragmentationView, "POST", path, reported)

    async def report(self, reports: list[NodeReport]) -> list[ReportAnswer]:
        return await self._report(ReportAnswer, "/v1/node-reports", reports)


class TopologyVersionCache:
    """The name of the newest topology version. It is fetched again after the watch of versions announced a new one, and
    on every call while there is no watch. `handle_event` receives the watch's events; `changed` is called for each."""

    def __init__(self, resource: ResourceClient) -> None:
        self._resource = resource
        self._watching, self._event_count = False, 0
        self._cached: str | None = None
        self.changed: Callable[[], None] = lambda: None

    async def handle_event(self, event: WatchEvent | None) -> None:
        """A version, or None if the watch broke off and events may have been missed."""
        self._watching, self._cached = event is not None, None
        self._event_count += 1
        self.changed()

    async def name(self) -> str:
        """The name; empty before the first version. Raises Unavailable."""
        if self._cached is not None:
            return self._cached
        event_count = self._event_count
        found = await self._resource.topology_version()
        if (
            self._watching and event_count == self._event_count
        ):  # otherwise a newer version may have been announced meanwhile
            self._cached = found
        return found
