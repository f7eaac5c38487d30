"""UbPaths: the paths of collectives' steps over the UB plane, by its forwarding tables.

Dies of a step are numbered across the plane: die d of node n is 16 n + d on the published machine.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.fabric_traffic.collectives import CollectiveStep
from benchmarks.fabric_traffic.element_events import lost
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.traffic import Traffic, traffic
from matrixlink.forwarding.clos_shape import NONE, Bools, ClosShape, Ints
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.path_policies import ECMP, SPRAY, PathSpread, Transfers, hash_mix
from matrixlink.forwarding.paths import Floats, Paths, paths, table_chips


class UbPaths:
    """The paths by one plane's tables. Every method raises InvalidField if a move has no path left."""

    def __init__(self, tables: ForwardingTables) -> None:
        self.tables = tables

    @classmethod
    def for_nodes(cls, nodes: int, lost_chips: Iterable[tuple[int, int]] = ()) -> UbPaths:
        """The paths of a supernode with that many nodes and without the L2 chips lost, given as (sub-plane, chip)."""
        tables = ForwardingTables(ClosShape(nodes=nodes))
        tables.take(lost("l2", plane, 0, chip) for plane, chip in lost_chips)
        return cls(tables)

    def striped(self, step: CollectiveStep) -> Traffic:
        """Split every move equally over the sub-planes, in each by the entry of its table."""
        planes = self.tables.shape.sub_planes
        plane = np.tile(np.arange(planes), len(step.source))
        source, target = (np.repeat(self._ends(dies), planes) for dies in (step.source, step.target))
        chip = table_chips(self.tables, plane, source, target)
        return self._traffic(paths(self.tables, plane, source, target, chip), step.size / planes)

    def hashed(self, step: CollectiveStep, seed: int) -> Traffic:
        """Keep every move whole, on the sub-plane and healthy L2 chip that a hash selects, as ECMP does."""
        source, target = self._ends(step.source), self._ends(step.target)
        plane = (hash_mix(hash_mix(source, seed), target) % np.uint64(self.tables.shape.sub_planes)).astype(np.int64)
        chip = np.empty(len(source), np.int64)
        for number in np.unique(plane).tolist():
            here = np.flatnonzero(plane == number)
            moves = Transfers.of(self.tables.shape, source[here], target[here], policy=ECMP, seed=seed)
            chip[here] = PathSpread(moves, self.tables).chips(number)[:, 0]
        return self._traffic(paths(self.tables, plane, source, target, chip), step.size)

    def sprayed(self, step: CollectiveStep) -> Traffic:
        """Split every move equally over all L2 chips of all sub-planes that connect it, so that sub-planes with a lost
        chip carry less."""
        shape = self.tables.shape
        moves = Transfers.of(shape, self._ends(step.source), self._ends(step.target), policy=SPRAY)
        spread = PathSpread(moves, self.tables)
        chip = np.stack([spread.chips(plane) for plane in range(shape.sub_planes)], 1)  # [move, sub-plane, way]
        parts = (chip != NONE).sum((1, 2))
        _check_connected(parts == 0)
        move, plane, way = np.nonzero(chip != NONE)
        found = paths(self.tables, plane, moves.source[move], moves.target[move], chip[move, plane, way])
        return self._traffic(found, (step.size / parts)[move])

    def _ends(self, dies: Ints) -> Ints:
        """The endpoint numbers of dies: a node's CPUs are numbered between its dies and those of the next node."""
        shape = self.tables.shape
        return dies // shape.dies * shape.ends + dies % shape.dies

    def _traffic(self, found: Paths, size: Floats | float) -> Traffic:
        _check_connected(found[:, 0] == NONE)
        shape = self.tables.shape
        return traffic((shape.built_gbps * self.tables.link_shares).ravel(), found, size=size)


def _check_connected(moves: Bools) -> None:
    if moves.any():
        raise InvalidField("some of these dies have no path to each other", field="dies")
