"""Divides the load on a slice into pieces that each take one way, as the members' programs say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixlink.fabric.contention.patterns import Pattern, demands
from matrixlink.fabric.contention.port_groups import Floats, PortGroups

Ints = NDArray[np.int64]
Program = Mapping[str, Any]
"""What a link agent holds of a slice: plane, isolation_key, weight, floor_gbps and ceiling_gbps of the whole node,
peers, stripes, and detours for peers and dies that are reached differently."""

INTRA_NODE = -1
"""The group of a piece that stays inside its node."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What some members of a slice send in a pattern: GB/s out of each NPU. `programs`: of every member that has one,
    including receivers; `senders`: the members that offer traffic."""

    slice: str
    pattern: Pattern
    gbps_per_npu: float
    programs: Mapping[str, Program]
    senders: Sequence[str]
    targets: Collection[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Subflows:
    """The parts of a slice's traffic that take one way each: out of `source` by a group of ports and into `target` by
    the same group, in a sub-plane (-1: not on UB). One entry each; `part`: the share of all that the source sends in
    this pattern."""

    slice: str
    source: Ints
    target: Ints
    group: Ints
    sub_plane: Ints
    part: Floats
    gbps: Floats
    weight: Floats
    floor: Floats
    ceiling: Floats
    """For the slice on the whole source, GB/s."""

    def __len__(self) -> int:
        return len(self.source)


class OfferSplitter:
    """Converts offers into pieces on these ports. `index`: a node's row in the groups' arrays."""

    def __init__(self, groups: PortGroups, index: Mapping[str, int]) -> None:
        self.groups, self.index = groups, index
        self._known: dict[tuple[int, str], list[tuple[int, float]]] = {}
        self._kept: list[object] = []

    def of(self, offer: Offer) -> Subflows:
        """The pieces of an offer. A source sends nothing to a target to which it has no route, or whose key it does not
        have."""
        offered = offer.gbps_per_npu * self.groups.shape.npus
        rows = self._rows(offer, offered)
        return self.pieces(offer.slice, offer.programs, list(rows))

    def _rows(self, offer: Offer, offered: float) -> Iterator[tuple[str, str, int, float, float]]:
        programs = offer.programs
        peers = {node: frozenset(programs[node]["peers"]) for node in offer.senders}
        for source, target, gbps in demands(offer.pattern, sorted(offer.senders), offered, offer.targets):
            program = programs[source]
            there = programs.get(target)
            if there is None or target not in peers[source] or program["isolation_key"] != there["isolation_key"]:
                continue
            stripes = program["detours"].get(target, program["stripes"])
            share = gbps / offered if offered else 0.0
            for group, part in self.ways(program["plane"], stripes):
                yield source, target, group, share * part, gbps * part

    def ways(self, plane: str, stripes: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
        """Groups of ports and the part that stripes put on each, cached by the identity of the stripes."""
        key = id(stripes), plane
        if key not in self._known:
            self._known[key] = list(self.groups.ways(plane, stripes))
            self._kept.append(stripes)  # keep them, so that their id is not reused
        return self._known[key]

    def pieces(
        self,
        slice: str,
        programs: Mapping[str, Program],
        rows: Sequence[tuple[str, str, int, float, float]],
        planes: Sequence[int] | None = None,
    ) -> Subflows:
        """The pieces (source, target, group, part, GB/s); `planes`: sub-planes of those that are INSIDE a node."""
        source, target, group, part, gbps = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        terms = {
            node: (float(program["weight"]), float(program["floor_gbps"]), _ceiling_of(program))
            for node, program in programs.items()
        }
        weight, floor, ceiling = np.array([terms[node] for node in source], np.float64).reshape(-1, 3).T
        over = [self.groups.sub_plane(each) for each in group] if planes is None else planes
        return Subflows(
            slice,
            np.array([self.index[node] for node in source], np.int64),
            np.array([self.index[node] for node in target], np.int64),
            np.array(group, np.int64), np.array(over, np.int64),
            np.array(part, np.float64), np.array(gbps, np.float64), weight, floor, ceiling,
        )  # fmt: skip


def _ceiling_of(program: Program) -> float:
    found = program.get("ceiling_gbps")
    return np.inf if found is None else float(found)
