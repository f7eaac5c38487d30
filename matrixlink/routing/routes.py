"""Routes: weights over sub-planes and paths, and what a floor under them takes of each link.

A demand has a vector per node (and per RDMA leaf): what one GB/s of floor per NPU takes of each of its ports, in the
order of `PortOrder`. Vectors are shared between nodes in the same condition and read-only.
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
    """The part on one sub-plane: `weight` of all traffic; `spread` over its paths, empty if even over all."""

    sub_plane: int
    weight: float
    spread: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRoutes:
    """One node's routes: `stripes` in general, `detours` for peers or own endpoints with lost ports."""

    stripes: tuple[Stripe, ...]
    detours: dict[str, tuple[Stripe, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BandwidthNeeds:
    """What one GB/s of floor per NPU takes of each link now (`need`); the most it can take now or after any one failure
    that must be survived (`reserve`, never less); and which members have no path between them, now and then."""

    need: Demand
    reserve: Demand
    cut: tuple[tuple[str, str], ...] = ()
    cut_by_failure: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Routes:
    """All members' routes on one plane, and the pairs that cannot reach each other."""

    plane: Plane
    nodes: dict[str, NodeRoutes]
    cut: tuple[tuple[str, str], ...] = ()
