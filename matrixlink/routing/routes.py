"""What routes are: weights over sub-planes and paths, and what a floor under them takes of each link.

A demand is a vector per node (and per RDMA leaf): what one GB/s of floor per NPU takes of each of its ports, in the
order of `fabric.ports.PortOrder`. Vectors are shared between nodes in the same condition; nobody writes into them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.planes import Plane

Vector = NDArray[np.float64]
Demand = dict[str, Vector]


@dataclass(frozen=True, slots=True)
class Stripe:
    """What goes over one sub-plane: `weight` of all traffic; `spread` over its paths, empty when even over all."""

    sub_plane: int
    weight: float
    spread: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """One node's routes: `stripes` for peers in order, `detours` for the peers or own endpoints that are not."""

    stripes: tuple[Stripe, ...]
    detours: dict[str, tuple[Stripe, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BandwidthNeeds:
    """What one GB/s of floor per NPU takes of each link now (`need`), the most it can take now or after any one failure
    that is to be survived (`reserve`, never less), and which members have no path between them, now and then."""

    need: Demand
    reserve: Demand
    cut: tuple[tuple[str, str], ...] = ()
    cut_by_failure: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Routes:
    """Everybody's routes on one plane, and who cannot be reached."""

    plane: Plane
    nodes: dict[str, NodeRoutes]
    cut: tuple[tuple[str, str], ...] = ()
