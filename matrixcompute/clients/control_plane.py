"""What MatrixCompute asks of MatrixResource and MatrixLink, in its own words.

The protagonist sees this port; in a process it is filled by the two clients, in a test by the services themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from matrixcommon.api.client import WatchEvent
from matrixcompute.contract import SliceSummary
from matrixcompute.model.composition import SliceSpec
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.defragmentations import DefragmentationView, MoveRefused, RelocateRequest


class ControlPlaneClients(Protocol):
    """Verbs are idempotent and raise MatrixError; Unavailable where a neighbour is away."""

    async def reserve(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView: ...
    async def bind(self, name: str) -> AllocationView: ...
    async def replace(self, name: str, node: str, reason: str) -> AllocationView: ...
    async def move(self, name: str, request: AllocationRequest, validate_only: bool = False) -> AllocationView: ...
    async def relocate(self, name: str, request: RelocateRequest) -> AllocationView: ...
    async def cut_over(self, name: str, request: AllocationRequest) -> AllocationView: ...
    async def renew(self, name: str, lease_s: float, validate_only: bool = False) -> AllocationView: ...
    async def draining(self) -> list[str]:
        """Cabinets and supernodes that whoever lies there is to leave."""

    async def abort_move(self, name: str) -> AllocationView: ...
    async def release(self, name: str) -> bool:
        """True once the allocation is gone."""

    async def allocation(self, name: str) -> AllocationView | None: ...
    async def allocations(self) -> list[AllocationView]: ...
    async def admit(self, instance: str, spec: SliceSpec, members: list[str]) -> SliceSummary: ...
    async def program(self, name: str) -> SliceSummary: ...
    async def withdraw(self, name: str) -> bool:
        """True once the slice is gone."""

    async def slices_of(self, instance: str) -> list[SliceSummary]:
        """The instance's own slices, as far as they are there."""

    async def slices(self) -> dict[str, list[SliceSummary]]:
        """Every slice by the instance it belongs to."""

    async def defragmentations(self) -> list[DefragmentationView]:
        """Those that are running."""

    async def refuse_move(self, defragmentation: str, reported: MoveRefused) -> None: ...

    def changes(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Changes of `allocations`, `defragmentations` or `slices`."""
