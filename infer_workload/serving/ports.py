"""Ports: the interfaces that CloudMatrix-Infer needs from MatrixLink, MatrixResource and the emulated hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from infer_workload.timing.contention import MeasuredContention
from matrixlink.fabric.contention.patterns import Pattern
from matrixlink.fabric.contention.ports_left import AvailablePorts
from matrixresource.contract.allocations import AllocationRequest, AllocationView

RELATIVE_CHANGE_MIN = 0.1
"""Relative change of a rate below which it is not reported again."""
CHANGE_MIN_GBPS = 0.01
"""The same as an absolute change, GB/s per NPU: a five-thousandth of its UB ports."""


@dataclass(frozen=True)
class WorkloadLoad:
    """The traffic of one pool on a plane of its instance: GB/s leaving the node, per NPU of `nodes`. A pull goes from
    `nodes` to `targets`."""

    instance: str
    plane: str
    pattern: Pattern
    nodes: tuple[str, ...]
    gbps_per_npu: float
    targets: tuple[str, ...] = ()

    def close_to(self, other: WorkloadLoad | None) -> bool:
        """Whether the loads differ too little to be reported again."""
        if other is None or replace(self, gbps_per_npu=0.0) != replace(other, gbps_per_npu=0.0):
            return False
        differs = abs(self.gbps_per_npu - other.gbps_per_npu)
        return differs <= max(CHANGE_MIN_GBPS, RELATIVE_CHANGE_MIN * other.gbps_per_npu)


@dataclass(frozen=True)
class Burst:
    """The bandwidth of a load sent as one burst, beside the present traffic of others: for an all-to-all, the rate of
    its slowest die, GB/s (None: not known), and the free capacity of each node's ports."""

    gbps_per_die: float | None = None
    ports: Mapping[str, AvailablePorts] = field(default_factory=dict)


def contention_of(loads: Mapping[str, WorkloadLoad], bursts: Mapping[str, Burst]) -> MeasuredContention:
    """The contention of one deployment's loads, as input for its timing. Where several loads use a plane, the pull's
    ports count: it covers both sides."""
    exchanges: dict[frozenset[str], float] = {}
    ports: dict[tuple[str, str], AvailablePorts] = {}
    for name, load in loads.items():
        burst = bursts.get(name)
        if burst is None:
            continue
        if load.pattern == "all-to-all" and burst.gbps_per_die is not None:
            exchanges[frozenset(load.nodes)] = burst.gbps_per_die
        ports |= {(load.plane, node): left for node, left in burst.ports.items()}
    return MeasuredContention(exchanges, ports)


class FabricViews(Protocol):
    """MatrixLink, as far as the workload needs it."""

    async def fabric_view(self, instance: str) -> Any | None:
        """The instance's FabricView; None while it has no slice. Raises Unavailable if the service does not answer."""


class ServerMemory(Protocol):
    """MatrixResource, as far as the caches need it. Each verb raises the MatrixError that MatrixResource raised, or
    Unavailable."""

    async def find_allocation(self, name: str) -> AllocationView | None:
        """An allocation by its key."""

    async def allocations(self) -> list[AllocationView]:
        """All allocations."""

    async def reserve(self, name: str, request: AllocationRequest) -> AllocationView:
        """Create the allocation, or change it to this; idempotent."""

    async def release(self, name: str) -> bool:
        """Request the release of an allocation; True once it is gone."""


class Hardware(Protocol):
    """The emulated machine under the workload, observed directly: a rank without power stops answering at once, long
    before the control plane misses its agent's heartbeats."""

    async def unpowered(self) -> frozenset[str]:
        """Nodes without power now. Raises Unavailable if the emulated hardware does not answer."""

    async def up_and_off(self) -> tuple[frozenset[str], frozenset[str]]:
        """Nodes booted as members, on which a rank can start; and nodes kept for their instance that are switched off,
        or about to be. Raises Unavailable as `unpowered` does."""

    async def offer(self, name: str, load: WorkloadLoad | None) -> None:
        """Put a load on the ports under that name, replacing the one before; None removes it."""

    async def bursts(self) -> Mapping[str, Burst]:
        """The burst bandwidth of each present load, by name."""

    async def traffic_names(self) -> frozenset[str]:
        """The names of all loads on the ports."""
