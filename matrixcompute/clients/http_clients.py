"""The port to the neighbours, filled by their clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import project_of, resolve
from matrixcompute.contract import SliceSummary
from matrixcompute.model.composition import OWNER_LABEL, SliceSpec, slice_name
from matrixlink.client import LinkClient
from matrixlink.contract.slices import SliceRequest, SliceView
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import DefragmentationView, MoveRefused, RelocateRequest


def summary(view: SliceView) -> SliceSummary:
    """What MatrixCompute wants to know of a slice."""
    reported = {current.type: current for current in view.conditions}
    programmed = reported.get("RoutesProgrammed")
    return SliceSummary(
        name=view.name,
        plane=view.plane,
        state=view.state,
        generation=view.generation,
        programmed=programmed is not None and programmed.status == "True",
        floors_kept=view.floor_kept_gbps_per_npu >= view.floor_gbps_per_npu,
        message=programmed.message if programmed is not None else "",
    )


@contextmanager
def in_words_of_instances() -> Iterator[None]:
    """A refusal names the field that the user of an instance wrote: it is near instances, not allocations."""
    try:
        yield
    except MatrixError as refused:
        if refused.field in ("affinity.allocations", "antiAffinity.allocations"):
            refused.field = refused.field.replace("allocations", "instances")
        raise


class HttpClients:
    """Neighbours through ResourceClient and LinkClient."""

    def __init__(self, resource: ResourceClient, link: LinkClient) -> None:
        self._resource = resource
        self._link = link

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        with in_words_of_instances():
            return await self._resource.reserve(name, request, validate_only)

    async def bind(self, name: str) -> AllocationView:
        return await self._resource.bind(name)

    async def replace(self, name: str, node: str, reason: str) -> AllocationView:
        return await self._resource.replace(name, node, reason)

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        with in_words_of_instances():
            return await self._resource.move(name, request, validate_only)

    async def relocate(self, name: str, request: RelocateRequest) -> AllocationView:
        return await self._resource.relocate(name, request)

    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        with in_words_of_instances():
            return await self._resource.cut_over(name, request)

    async def renew(self, name: str, lease_s: float, validate_only: bool = False) -> AllocationView:
        return await self._resource.renew(name, lease_s, validate_only)

    async def draining(self) -> list[str]:
        return [domain.name for domain in await self._resource.domains("state=Draining")]

    async def abort_move(self, name: str) -> AllocationView:
        return await self._resource.abort_move(name)

    async def release(self, name: str) -> bool:
        return await self._resource.release(name)

    async def allocation(self, name: str) -> AllocationView | None:
        return await self._resource.find_allocation(name)

    async def allocations(self) -> list[AllocationView]:
        return await self._resource.allocations()

    async def admit(self, instance: str, spec: SliceSpec, members: list[str]) -> SliceSummary:
        request = SliceRequest.model_validate(
            {
                "project": project_of(instance),
                "labels": {OWNER_LABEL: instance},
                "allocation": instance,
                "instance": instance,
                "plane": spec.plane,
                "members": members,
                **spec.share.wire(),
            }
        )
        return summary(await self._link.admit(spec.name, request))

    async def program(self, name: str) -> SliceSummary:
        return summary(await self._link.program(name))

    async def withdraw(self, name: str) -> bool:
        return await self._link.withdraw(name)

    async def slices_of(self, instance: str) -> list[SliceSummary]:
        found = [await self._link.find_slice(slice_name(instance, plane)) for plane in Plane]
        return [summary(view) for view in found if view is not None]

    async def slices(self) -> dict[str, list[SliceSummary]]:
        found: dict[str, list[SliceSummary]] = {}
        for view in await self._link.slices():
            found.setdefault(resolve(view.instance, view.project), []).append(summary(view))
        return found

    async def defragmentations(self) -> list[DefragmentationView]:
        return await self._resource.defragmentations("state=Running")

    async def refuse_move(self, defragmentation: str, reported: MoveRefused) -> None:
        await self._resource.refuse_move(defragmentation, reported)

    def changes(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        return (
            self._link.watch(collection, since) if collection == "slices" else self._resource.watch(collection, since)
        )
