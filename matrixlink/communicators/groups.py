"""From a spec and a slice's members to a group of transfers."""

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
    """A communicator's place in the flows: its supernode, what it was made from, its endpoints by rank, and its
    transfers as pairs of ranks."""

    supernode: str
    made_from: tuple[object, ...]
    ends: Ints
    source: Ints
    target: Ints

    def same(self, other: TrafficGroup) -> bool:
        return self.supernode == other.supernode and self.made_from == other.made_from


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
    """InvalidField for terms that do not go together."""
    if request.shift is not None and request.pattern != Pattern.PERMUTATION:
        raise InvalidField("only a permutation has a shift", field="shift")
    if request.holders is not None and request.pattern != Pattern.PULL:
        raise InvalidField("only a pull has holders", field="holders")
    if request.routing == Routing.PLANNED and request.pattern == Pattern.ALL_TO_ALL:
        raise InvalidField("an all-to-all is even by the static tables; there is nothing to plan", field="routing")
