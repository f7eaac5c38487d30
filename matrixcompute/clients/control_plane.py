"""The client of MatrixResource and MatrixLink for MatrixCompute."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_key import key_of, name_of, project_of, resolve
from matrixcompute.model.composition import OWNER_LABEL, SliceSpec
from matrixcompute.model.observation import ObservedSlice
from matrixcompute.recovery.policy import nodes_out
from matrixlink.client import LinkClient
from matrixlink.contract.drains import DrainView
from matrixlink.contract.slices import SliceRequest, SliceView
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationRequest, AllocationView


def observed_slice(view: SliceView) -> ObservedSlice:
    """The part of a slice's view that MatrixCompute uses."""
    reported = {current.type: current for current in view.conditions}
    programmed = reported.get("RoutesProgrammed")
    return ObservedSlice(
        name=view.name,
        plane=view.plane,
        state=view.state,
        generation=view.generation,
        programmed=programmed is not None and programmed.status == "True",
        floors_kept=view.floor_kept_gbps_per_npu >= view.floor_gbps_per_npu,
        message=programmed.message if programmed is not None else "",
        members=tuple(view.members),
    )


@contextmanager
def translate_affinity_fields() -> Iterator[None]:
    """Make a refusal name the field that the user of an instance wrote: affinity is to instances, not allocations."""
    try:
        yield
    except MatrixError as refused:
        if refused.field in ("affinity.allocations", "antiAffinity.allocations"):
            refused.field = refused.field.replace("allocations", "instances")
        raise


class ControlPlane(ResourceClient):
    """The client of MatrixResource, in terms of instances, with the calls to MatrixLink.

    Verbs are idempotent and raise MatrixError; Unavailable if the service does not answer.
    """

    def __init__(self, resource: httpx.AsyncClient, link: LinkClient) -> None:
        super().__init__(resource)
        self._link = link

    async def announce(self) -> None:
        """Send a request to each service, so that they learn of this leader and refuse requests of an older one."""
        await asyncio.gather(self.draining(), self._link.slices("name=none"))

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        with translate_affinity_fields():
            return await super().reserve(name, request, validate_only)

    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView:
        with translate_affinity_fields():
            return await super().move(name, request, validate_only)

    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView:
        with translate_affinity_fields():
            return await super().cut_over(name, request)

    async def draining(self) -> list[str]:
        """The cabinets and supernodes that are draining."""
        return [domain.name for domain in await self.domains("state=Draining")]

    async def out_of_service(self) -> list[str]:
        """Every node that counts for the safety stop, whether allocated or not."""
        found = await asyncio.gather(self.nodes("state=Quarantined"), self.nodes("agent!=Connected"))
        return nodes_out({node.name: node for nodes in found for node in nodes}.values())

    async def admit(self, instance: str, spec: SliceSpec) -> ObservedSlice:
        request = SliceRequest.model_validate(
            {
                "project": project_of(instance),
                "labels": {OWNER_LABEL: instance},
                "allocation": instance,
                "instance": instance,
                "plane": spec.plane,
                "members": list(spec.members),
                **spec.share.wire(),
            }
        )
        return observed_slice(await self._link.admit(spec.name, request))

    async def program(self, name: str) -> ObservedSlice:
        return observed_slice(await self._link.program(name))

    async def withdraw(self, name: str) -> bool:
        """Returns whether the slice is gone."""
        return await self._link.withdraw(name)

    async def slices_of(self, instance: str) -> list[ObservedSlice]:
        """The instance's own slices that exist."""
        return [observed_slice(view) for view in await self._owned(instance)]

    async def owned_slices(self, instance: str) -> list[str]:
        """The keys of the instance's own slices that exist."""
        return [view.key for view in await self._owned(instance)]

    async def _owned(self, instance: str) -> list[SliceView]:
        found = await self._link.slices(f"instance={name_of(instance)}")
        owned = [view for view in found if view.project == project_of(instance)]
        return [view for view in owned if view.labels.get(OWNER_LABEL) == instance]

    async def fabric_generation(self, instance: str) -> int:
        """The generation of the instance's fabric view; 0 while it has no slice."""
        view = await self._link.fabric_view(instance)
        return 0 if view is None else view.generation

    async def slices(self) -> dict[str, list[ObservedSlice]]:
        """The own slices of every instance, without slices that others created for it."""
        found: dict[str, list[ObservedSlice]] = {}
        for view in await self._link.slices():
            owner = view.labels.get(OWNER_LABEL)
            if owner is not None and owner == resolve(view.instance, view.project):
                found.setdefault(owner, []).append(observed_slice(view))
        return found

    async def slice_owners(self) -> dict[str, str]:
        """The instance that each slice was created for, by the slice's key, without slices that others created."""
        return {each.key: owner for each in await self._link.slices() if (owner := each.labels.get(OWNER_LABEL))}

    async def knows_switch(self, name: str) -> bool:
        return await self._link.knows_switch(name)

    async def routed_over(self, switch: str) -> list[str]:
        """The instances whose routes would change without a switch."""
        impact, owners = await asyncio.gather(self._link.evaluate_drain([switch]), self.slice_owners())
        return sorted({owners[key] for each in impact.slices if (key := key_of(each.project, each.slice)) in owners})

    async def ensure_drain(self, name: str, switch: str, reason: str) -> DrainView:
        return await self._link.ensure_drain(name, [switch], reason)

    async def find_drain(self, name: str) -> DrainView | None:
        return await self._link.find_drain(name)

    async def delete_drain(self, name: str) -> bool:
        """Returns whether the drain is gone."""
        return await self._link.delete_drain(name)

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Changes of `allocations`, `defragmentations`, `nodes` or `slices`."""
        return self._link.watch(collection, since) if collection == "slices" else super().watch(collection, since)
