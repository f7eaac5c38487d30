"""How a set of transfers is spread over L2 chips: by the tables, by a plan, by a hash, or over all of them.

A policy divides a transfer into `ways` pieces per sub-plane and gives each its L2 chip. It only uses the transfers and
what is left of the sub-plane, so that the same condition always gives the same paths.

- `static`: the tables' entry, which all unplanned traffic uses.
- `planned`: matchings made for exactly these transfers, one per L2 chip (`matchings.py`).
- `ecmp`: among the working chips the one with the highest hash of seed, transfer, sub-plane and chip (rendezvous
  hashing, Thaler and Ravishankar): as even as a hash is, and a lost chip only moves what was on it. For comparison.
- `spray`: over all working chips evenly, as switches do that spray packet by packet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixlink.forwarding.clos_shape import NONE, ClosShape, Ints, Words
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.matchings import chips_around_faults, matchings
from matrixlink.forwarding.paths import Floats, even_weight, table_chips, table_weight

STATIC, PLANNED, ECMP, SPRAY = "static", "planned", "ecmp", "spray"
POLICIES = (STATIC, PLANNED, ECMP, SPRAY)


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Transfers between endpoints, numbered throughout the plane. `ceiling`: the most GB/s each is offered, inf for
    unlimited. `seed` is for ECMP."""

    source: Ints
    target: Ints
    ceiling: Floats
    policy: str = STATIC
    seed: int = 0

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(
        cls,
        shape: ClosShape,
        source: Ints,
        target: Ints,
        *,
        policy: str = STATIC,
        ceiling: Floats | float = np.inf,
        seed: int = 0,
    ) -> Transfers:
        """Validated transfers on this plane; InvalidField names what is not valid."""
        if policy not in POLICIES:
            raise InvalidField(f"{policy!r} is not a routing; use {', '.join(POLICIES)}", field="routing")
        made = [np.ascontiguousarray(ends, np.int64) for ends in (source, target)]
        for name, ends in zip(("source", "target"), made, strict=True):
            if len(ends) and not (ends.min() >= 0 and ends.max() < shape.all_nodes * shape.ends):
                raise InvalidField(f"endpoints must be from 0 to {shape.all_nodes * shape.ends - 1}", field=name)
        if len(made[0]) != len(made[1]):
            raise InvalidField("there must be as many targets as sources", field="target")
        offered = np.ascontiguousarray(np.broadcast_to(np.asarray(ceiling, float), len(made[0])))
        if not (offered > 0).all():
            raise InvalidField("must be more than 0 GB/s", field="offeredGbps")
        return cls(made[0], made[1], offered, policy, seed)


class PathSpread:
    """The transfers of one policy over one plane's tables: `chips(plane)` is [transfer, way], NONE where a way has no
    path; `weight(plane)` what the sub-plane can carry of each transfer, before the shares of its links."""

    def __init__(self, transfers: Transfers, tables: ForwardingTables) -> None:
        self.transfers, self.tables = transfers, tables
        ends = tables.shape.ends
        self._source_node, self._to = transfers.source // ends, transfers.target // ends
        self._within = self._source_node == self._to
        self.ways = tables.shape.chips if transfers.policy == SPRAY else 1
        if transfers.policy == PLANNED:
            self._planned_colour = np.zeros(len(transfers), np.int64)
            across = ~self._within
            self._planned_colour[across] = matchings(self._source_node[across], self._to[across], tables.shape.chips)

    def words(self, plane: int) -> Words:
        return self.tables.left.pairs[plane, self._source_node, self._to]

    def weight(self, plane: int) -> Floats:
        words = self.words(plane)
        by_rule = table_weight if self.transfers.policy == STATIC else even_weight
        return np.where(self._within, 1.0, by_rule(self.tables.shape, words))

    def chips(self, plane: int) -> Ints:
        chosen = _CHOOSERS[self.transfers.policy](self, plane)
        chosen[self._within, 1:] = NONE
        chosen[self._within, 0] = 0
        return chosen

    def _static_chips(self, plane: int) -> Ints:
        planes = np.full(len(self.transfers), plane)
        return table_chips(self.tables, planes, self.transfers.source, self.transfers.target)[:, None]

    def _planned_chips(self, plane: int) -> Ints:
        chosen, across = np.zeros(len(self.transfers), np.int64), ~self._within
        colour, words, chips = self._planned_colour[across], self.words(plane)[across], self.tables.shape.chips
        chosen[across] = chips_around_faults(colour, self._source_node[across], self._to[across], words, chips)
        return chosen[:, None]

    def _hashed_chips(self, plane: int) -> Ints:
        words = self.words(plane)
        transfer = hash_mix(hash_mix(self.transfers.source, self.transfers.seed), self.transfers.target)
        best, chosen = np.zeros(len(words), np.uint64), np.full(len(words), NONE, np.int64)
        for chip in range(self.tables.shape.chips):
            score = hash_mix(transfer, (plane << 8) + chip + 1)
            better = ((words >> np.uint32(chip)) & 1).astype(bool) & ((score > best) | (chosen == NONE))
            best[better], chosen[better] = score[better], chip
        return chosen[:, None]

    def _sprayed_chips(self, plane: int) -> Ints:
        chip = np.arange(self.tables.shape.chips)
        return np.where((self.words(plane)[:, None] >> chip.astype(np.uint32)) & 1, chip, NONE)


_CHOOSERS: dict[str, Callable[[PathSpread, int], Ints]] = {
    STATIC: PathSpread._static_chips,
    PLANNED: PathSpread._planned_chips,
    ECMP: PathSpread._hashed_chips,
    SPRAY: PathSpread._sprayed_chips,
}


def hash_mix(a: NDArray[np.uint64] | Ints, b: NDArray[np.int64] | int) -> NDArray[np.uint64]:
    """Mixes two numbers into one (the finaliser of splitmix64, Steele et al.)."""
    step = np.uint64(0x9E3779B97F4A7C15)
    x = np.asarray(a).astype(np.uint64) * step + np.asarray(b).astype(np.uint64) + step
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
