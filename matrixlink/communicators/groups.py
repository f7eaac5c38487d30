"""Makes a group of transfers from a communicator's spec and its slice's members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixcommon.model.errors import InvalidField
from matrixlink.communicators.patterns import transfers
from matrixlink.communicators.ub_traffic import UbTraffic
from matrixlink.contract.communicators import CommunicatorRequest, Pattern, Routing
from matrixlink.forwarding.clos_shape import Ints
from matrixlink.store.communicators import CommunicatorRow


@dataclass(frozen=True, slots=True, eq=False)
class TrafficGroup:
    """A communicator among the flows: its supernode, its parameters, its endpoints by rank, and its transfers as pairs
    of ranks."""

    supernode: str
    terms: tuple[object, ...]
    ends: Ints
    source: Ints
    target: Ints

    def same(self, other: TrafficGroup) -> bool:
        return self.supernode == other.supernode and self.terms == other.terms


def group_of(row: CommunicatorRow, members: list[str], traffic: UbTraffic) -> TrafficGroup:
    """The group of a communicator among these members; ranks that are on none of them are left out."""
    current = set(members)
    dies = [die for node in members for die in traffic.supernode.dies(node)] if row.ranks is None else row.ranks
    names = [die for die in dies if die.rpartition("-npu")[0] in current]
    ends = np.array([traffic.end_number[name] for name in names], np.int64)
    source, target = transfers(
        Pattern(row.pattern), len(ends), shift=row.shift, holders=row.holders, seed=row.seed or 0
    )
    return TrafficGroup(traffic.supernode.name, (row.terms, ends.tobytes()), ends, source, target)


def check_terms(request: CommunicatorRequest) -> None:
    """Raises InvalidField for parameters that exclude each other."""
    if request.shift is not None and request.pattern != Pattern.PERMUTATION:
        raise InvalidField("shift is only valid for a permutation", field="shift")
    if request.holders is not None and request.pattern != Pattern.PULL:
        raise InvalidField("holders is only valid for a pull", field="holders")
    if request.routing == Routing.PLANNED and request.pattern == Pattern.ALL_TO_ALL:
        raise InvalidField(
            "an all-to-all is already even with the static tables, so there is nothing to plan", field="routing"
        )
