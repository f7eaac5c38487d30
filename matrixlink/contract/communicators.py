"""What communicators and forwarding tables take and show on the wire. Rates are GB/s (10^9 bytes per second)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import DieName
from matrixcommon.model.resource_model import ApiModel, ResourceView

RANKS_MAX = 768
FLOWS_MAX = 200_000
"""Flows of all communicators of one supernode: what is still followed and rated anew within a tenth of a second."""


class Pattern(StrEnum):
    """Who sends to whom. `permutation`: every rank to one other, drawn by `seed`, or `shift` ranks on. `ring`: to the
    next. `incast`: all to rank 0. `pull`: ranks from `holders` on each pull from one of the first `holders`."""

    ALL_TO_ALL = "allToAll"
    PERMUTATION = "permutation"
    RING = "ring"
    INCAST = "incast"
    PULL = "pull"


class Routing(StrEnum):
    """How flows are given L2 chips: by the `static` tables, `planned` for just this pattern, hashed (`ecmp`), or over
    all living chips (`spray`)."""

    STATIC = "static"
    PLANNED = "planned"
    ECMP = "ecmp"
    SPRAY = "spray"


class CommunicatorRequest(ApiModel):
    """A pattern of traffic among dies of one UB slice. `ranks`, in order; left out: every die of the slice's members.
    `offered_gbps` is what a rank sends at most, all its transfers together; left out: as much as it gets."""

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
    """The newest event that changed this communicator's flows, since this process started. `event` counts the events
    that changed ports; `ports` how many did. `repathed` flows take another path, `rerated` ones have another rate."""

    event: int
    at: str
    ports: int
    repathed: int
    rerated: int


class CommunicatorTraffic(ApiModel):
    """How the flows are now. A rank's rate is the sum over its flows, out of it, or into it for a rank that only
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
    """A communicator: what was asked and, unless it is only judged, how its flows are."""

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
    """One flow: the part of a transfer that takes one sub-plane, and under spray one L2 chip of it. `path` names the
    links in order, the first and second up, the others down; empty: no path."""

    name: str
    source: str
    target: str
    sub_plane: int
    path: list[str]
    gbps: float
    weight: float


class FlowChangeView(ApiModel):
    """One flow that the last event changed: how it was and how it is."""

    name: str
    source: str
    target: str
    sub_plane: int
    path_before: list[str]
    path: list[str]
    gbps_before: float
    gbps: float


class ForwardingTableView(ResourceView):
    """The table of one chip: to how many endpoints it has entries, how many of them are not where the rule would have
    them when all is whole, and how many lead nowhere."""

    kind: str
    sub_plane: int
    node: str | None = None
    entries: int
    aside: int
    nowhere: int
    version: str


class ForwardingEntryView(ApiModel):
    """One entry: to the endpoint `name`, out of `port`, towards `to`; neither when there is no way. `aside`: not where
    the rule would have it when all is whole."""

    name: str
    port: str | None = None
    to: str | None = None
    aside: bool = False
