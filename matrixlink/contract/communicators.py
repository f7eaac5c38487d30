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

    project: str = Field(
        "default", min_length=1, max_length=63, description="project that the communicator is to belong to"
    )
    labels: dict[str, str] = Field(
        default_factory=empty_dict, max_length=64, description="labels by key, for selection in filters; at most 64"
    )
    slice: str = Field(
        min_length=1, max_length=253, description="UB slice whose members communicate: its name, or `project/name`"
    )
    pattern: Pattern = Field(
        description="who sends to whom: each to all, to one other, to the next, all to rank 0, or pulls from the "
        "first ranks"
    )
    routing: Routing = Field(
        Routing.STATIC,
        description="how flows are assigned to L2 chips: static tables, planned for this pattern, hashed, or over all "
        "chips",
    )
    ranks: list[DieName] | None = Field(
        None,
        min_length=2,
        max_length=RANKS_MAX,
        description="dies by rank, each on a member of the slice; null: every die of its members",
    )
    offered_gbps: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="the most GB/s that one rank sends over all its transfers together; null: no limit"
    )
    shift: int | None = Field(
        None,
        ge=1,
        lt=RANKS_MAX,
        description="only for a permutation: how many ranks further on each rank sends; null: to one drawn from `seed`",
    )
    holders: int | None = Field(
        None,
        ge=1,
        lt=RANKS_MAX,
        description="only for pull: how many ranks, the first ones, are pulled from; null: half of them",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="seed of a permutation without `shift`, and of the hash of ecmp")

    REFERENCES: ClassVar = ("slice",)


class LastChange(ApiModel):
    """The newest event that changed this communicator's flows since this process started. `event` is the number of that
    event among those that changed ports, `ports` how many it changed. `repathed` counts flows with a new path,
    `rerated` those with a new rate."""

    event: int = Field(description="number of the event among those that changed ports since the service started")
    at: str = Field(description="when it changed these flows, in emulated time")
    ports: int = Field(description="number of ports that it changed")
    repathed: int = Field(description="number of flows that it gave a new path")
    rerated: int = Field(description="number of flows that it gave a new rate")


class CommunicatorTraffic(ApiModel):
    """The current flows. A rank's rate is the sum over its outgoing flows, or over its incoming ones if it only
    receives; `cut` counts transfers that have no path left."""

    ranks: int = Field(description="number of ranks on present members of the slice")
    transfers: int = Field(description="number of pairs of ranks between which data is sent")
    flows: int = Field(description="number of flows: transfers by sub-plane, with spray also by L2 chip")
    cut: int = Field(description="number of transfers without a path")
    mean_gbps: float = Field(
        description="mean rate of the ranks in GB/s: sent, or received by a rank that only receives"
    )
    slowest_gbps: float = Field(
        description="rate of the slowest rank in GB/s: sent, or received by a rank that only receives"
    )
    tables_version: str = Field(
        description="version of the forwarding tables that its paths come from; the same for the same condition"
    )
    last_change: LastChange | None = Field(
        None, description="the newest event that changed its flows since the service started; null if there was none"
    )


class CommunicatorView(ResourceView):
    """A communicator: its spec and, except with validateOnly, its current traffic."""

    state: str = Field(
        "",
        description="Flowing, Cut if a transfer has no path, Idle without flows, or Oversized if there are too many",
    )
    slice: str = Field(description="UB slice whose members communicate")
    pattern: Pattern = Field(description="who sends to whom: allToAll, permutation, ring, incast or pull")
    routing: Routing = Field(description="how flows are assigned to L2 chips: static, planned, ecmp or spray")
    ranks: list[str] | None = Field(None, description="dies by rank; null: every die of the members of the slice")
    offered_gbps: float | None = Field(
        None, description="the most GB/s that one rank sends over all its transfers together; null: no limit"
    )
    shift: int | None = Field(
        None, description="how many ranks further on each rank of a permutation sends; null: to one drawn from `seed`"
    )
    holders: int | None = Field(None, description="how many ranks, the first ones, are pulled from; null: half of them")
    seed: int = Field(0, description="seed of a permutation without `shift`, and of the hash of ecmp")
    traffic: CommunicatorTraffic | None = Field(
        None, description="present flows; null while it has none, and with validateOnly"
    )


class FlowView(ApiModel):
    """One flow: the part of a transfer that uses one sub-plane, and with spray one L2 chip of it. `path` names its
    links in order, the first two going up and the others down; empty if there is no path."""

    name: str = Field(description="name of the flow, unique within its communicator; sorts like its number")
    source: str = Field(description="die that sends")
    target: str = Field(description="die that receives")
    sub_plane: int = Field(description="number of the sub-plane that it uses")
    path: list[str] = Field(
        description="links in order, the first two going up and the others down; empty without a path"
    )
    gbps: float = Field(description="present rate in GB/s")
    weight: float = Field(
        description="weight in sharing links: what the sub-plane can carry of the transfer; 0 without a path"
    )


class FlowChangeView(ApiModel):
    """One flow that the last event changed, before and after."""

    name: str = Field(description="name of the flow, unique within its communicator")
    source: str = Field(description="die that sends")
    target: str = Field(description="die that receives")
    sub_plane: int = Field(description="number of the sub-plane that it uses")
    path_before: list[str] = Field(description="links of its path before the event; empty without a path")
    path: list[str] = Field(description="links of its path after the event; empty without a path")
    gbps_before: float = Field(description="rate in GB/s before the event")
    gbps: float = Field(description="rate in GB/s after the event")


class ForwardingTableView(ResourceView):
    """The forwarding table of one chip: the number of endpoints it has entries for, how many of those entries differ
    from the ones of an undamaged plane (`aside`), and how many have no way out (`nowhere`)."""

    state: str = Field("", description="Whole, or Changed if any entry differs from that of an undamaged plane")
    kind: str = Field(description="l1 for a chip in a node, l2 for one between nodes")
    sub_plane: int = Field(description="number of the sub-plane that the chip belongs to")
    node: str | None = Field(None, description="node that an L1 chip is in; null for an L2 chip")
    entries: int = Field(description="number of endpoints that it has a way to")
    aside: int = Field(description="number of these whose entry differs from that of an undamaged plane")
    nowhere: int = Field(description="number of endpoints that it has no way to")
    version: str = Field(description="version of the supernode's tables; the same for the same condition")


class ForwardingEntryView(ApiModel):
    """One entry: to reach endpoint `name`, send out of `port` towards `to`; both are unset when there is no way.
    `aside`: it differs from the entry of an undamaged plane."""

    name: str = Field(description="endpoint to reach: a die")
    port: str | None = Field(None, description="link to send out of; null if there is no way")
    to: str | None = Field(None, description="what is at the other end of that link; null if there is no way")
    aside: bool = Field(False, description="whether the entry differs from that of an undamaged plane")
