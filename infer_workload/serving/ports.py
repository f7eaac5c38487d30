"""What CloudMatrix-Infer asks of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from infer_workload.timing.contention import MeasuredContention
from matrixlink.fabric.contention.patterns import Pattern
from matrixlink.fabric.contention.ports_left import PortsLeft
from matrixresource.contract.allocations import AllocationRequest, AllocationView

CHANGED_FROM = 0.1
"""A rate that differs by less is the same."""
LEAST_GBPS = 0.01
"""And so is one that differs by less than this of an NPU: a five-thousandth of its UB ports."""


@dataclass(frozen=True)
class WorkloadLoad:
    """What one pool sends on a plane of its instance: GB/s that leave the node, per NPU of `nodes`. A pull goes from
    `nodes` to `targets`."""

    instance: str
    plane: str
    pattern: Pattern
    nodes: tuple[str, ...]
    gbps_per_npu: float
    targets: tuple[str, ...] = ()

    def close_to(self, other: WorkloadLoad | None) -> bool:
        """Whether the other needs not be reported anew."""
        if other is None or replace(self, gbps_per_npu=0.0) != replace(other, gbps_per_npu=0.0):
            return False
        differs = abs(self.gbps_per_npu - other.gbps_per_npu)
        return differs <= max(LEAST_GBPS, CHANGED_FROM * other.gbps_per_npu)


@dataclass(frozen=True)
class Burst:
    """What a load gets that comes all at once, beside what others send now: of an all-to-all what its slowest die
    sends, GB/s (None: not known), and what each node's ports have left."""

    gbps_per_die: float | None = None
    ports: Mapping[str, PortsLeft] = field(default_factory=dict)


def contention_of(loads: Mapping[str, WorkloadLoad], bursts: Mapping[str, Burst]) -> MeasuredContention:
    """What the loads of one deployment get, as its timing takes it. Of a plane, what the pull says counts: it has the
    ports of both sides."""
    exchanges: dict[frozenset[str], float] = {}
    ports: dict[tuple[str, str], PortsLeft] = {}
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
        """The instance's FabricView; None while it holds no slice. Raises Unavailable where the service is away."""


class ServerMemory(Protocol):
    """MatrixResource, as far as the caches need it. Each verb raises the MatrixError that MatrixResource raised, or
    Unavailable."""

    async def find_allocation(self, name: str) -> AllocationView | None:
        """An allocation by its key."""

    async def allocations(self) -> list[AllocationView]:
        """All of them."""

    async def reserve(self, name: str, request: AllocationRequest) -> AllocationView:
        """Hold this, or hold what is held already so."""

    async def release(self, name: str) -> bool:
        """Ask for its end; True once it is gone."""


class Hardware(Protocol):
    """The machine the workload runs on, observed and not reported: a rank without power answers nobody at once, long
    before the control plane has missed its agent's heartbeats."""

    async def unpowered(self) -> frozenset[str]:
        """Nodes without power now. Raises Unavailable where the emulated hardware cannot be asked."""

    async def up_and_off(self) -> tuple[frozenset[str], frozenset[str]]:
        """Nodes that have booted as members: a rank can start there; and nodes that are kept for their instance and
        switched off, or about to be. Raises Unavailable as `unpowered` does."""

    async def offer(self, name: str, load: WorkloadLoad | None) -> None:
        """Put what the workload sends on the ports under that name, in place of what was there; None: no more."""

    async def bursts(self) -> Mapping[str, Burst]:
        """By name, what each of the loads that are there gets when it comes all at once."""

    async def traffic_names(self) -> frozenset[str]:
        """The names of all that is put there."""
