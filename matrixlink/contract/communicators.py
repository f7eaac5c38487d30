"""Communicators and forwarding tables: requests and views. Rates are GB/s (10^9 bytes per second)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import DieName
from matrixcommon.model.resource_model import ApiModel, ResourceView

RANKS_MAX = 768
FLOWS_MAX = 200_000
"""The most flows that the communicators of one supernode may have together: up to here, path changes and new rates are
worked out within a tenth of a second."""


class Pattern(StrEnum):
    """Who sends to whom. `permutation`: every rank to one other, drawn from `seed`, or `shift` ranks further on.
    `ring`: to the next rank. `incast`: all to rank 0. `pull`: each rank from `holders` on pulls from one of the first
    `holders` ranks."""

    ALL_TO_ALL = "allToAll"
    PERMUTATION = "permutation"
    RING = "ring"
    INCAST = "incast"
    PULL = "pull"


class Routing(StrEnum):
    """How flows are assigned to L2 chips: by the `static` tables, `planned` for exactly this pattern, hashed (`ecmp`),
    or spread over all working chips (`spray`)."""

    STATIC = "static"
    PLANNED = "planned"
    ECMP = "ecmp"
    SPRAY = "spray"


class CommunicatorRequest(ApiModel):
    """A traffic pattern among dies of one UB slice. `ranks` lists the dies in order; by default, every die of the
    slice's members. `offered_gbps` caps what one rank sends over all its transfers together; by default there is no
    cap."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"slice": "deepseek-r1-ub", "pattern": "ring"},)

    project: str = Field("default", min_length=1, max_length=63)
    labels: dict[str, str] = Field(default_factory=empty_dict, max_length=64)
    slice: str = Field(min_length=1, max_length=253)
    pattern: Pattern
    routing: Routing = Routing.STATIC
    ranks: list[DieName] | None = Field(None, min_length=2, max_length=RANKS_MAX)
    offered_gbps: Annotated[float, Field(gt=0, le=1e6)] | None = None
    shift: int | None = Field(None, ge=1, lt=RANKS_MAX)
    holders: int | None = Field(None, ge=1, lt=RANKS_MAX)
    seed: int = Field(0, ge=0, lt=2**31)

    REFERENCES: ClassVar = ("slice",)


class LastChange(ApiModel):
    """The newest event that changed this communicator's flows since this process started. `event` is the number of that
    event among those that changed ports, `ports` how many it changed. `repathed` counts flows with a new path,
    `rerated` those with a new rate."""

    event: int
    at: str
    ports: int
    repathed: int
    rerated: int


class CommunicatorTraffic(ApiModel):
    """The current flows. A rank's rate is the sum over its outgoing flows, or over its incoming ones if it only
    receives; `cut` counts transfers that have no path left."""

    ranks: int
    transfers: int
    flows: int
    cut: int
    mean_gbps: float
    slowest_gbps: float
    tables_version: str
    last_change: LastChange | None = None


class CommunicatorView(ResourceView):
    """A communicator: its spec and, except with validateOnly, its current traffic."""

    slice: str
    pattern: Pattern
    routing: Routing
    ranks: list[str] | None = None
    offered_gbps: float | None = None
    shift: int | None = None
    holders: int | None = None
    seed: int = 0
    traffic: CommunicatorTraffic | None = None


class FlowView(ApiModel):
    """One flow: the part of a transfer that uses one sub-plane, and with spray one L2 chip of it. `path` names its
    links in order, the first two going up and the others down; empty if there is no path."""

    name: str
    source: str
    target: str
    sub_plane: int
    path: list[str]
    gbps: float
    weight: float


class FlowChangeView(ApiModel):
    """One flow that the last event changed, before and after."""

    name: str
    source: str
    target: str
    sub_plane: int
    path_before: list[str]
    path: list[str]
    gbps_before: float
    gbps: float


class ForwardingTableView(ResourceView):
    """The forwarding table of one chip: the number of endpoints it has entries for, how many of those entries differ
    from the ones of an undamaged plane (`aside`), and how many have no way out (`nowhere`)."""

    kind: str
    sub_plane: int
    node: str | None = None
    entries: int
    aside: int
    nowhere: int
    version: str


class ForwardingEntryView(ApiModel):
    """One entry: to reach endpoint `name`, send out of `port` towards `to`; both are unset when there is no way.
    `aside`: it differs from the entry of an undamaged plane."""

    name: str
    port: str | None = None
    to: str | None = None
    aside: bool = False
