"""ElementState: what of a UB plane is lost, degraded or drained, and what is left to route over.

Events set the state of single elements (`ClosShape.sizes` has their kinds and numbers): the share of its rate from 0,
lost, to 1, full; and whether it is being drained, so that traffic should leave it while it still works. `Availability`
is what the tables are made from: for every choice, the set of eligible chips, as bits of a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixlink.forwarding.clos_shape import Bools, ClosShape, Ints, Words


@dataclass(frozen=True, slots=True)
class ElementEvent:
    """The new state of one element. `share` or `drained` None: unchanged."""

    kind: str
    at: tuple[int, ...]
    share: float | None = None
    drained: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Availability:
    """What may be used. `pairs[p, n, m]`: the L2 numbers by which node n reaches node m; a node reaches itself by all
    of them. `spines[p, s, k]`: the third-level chips that L2 chip k of supernode s reaches. `ends`: endpoints with a
    link that may be used. Elements that work can still deliver, drained or not: `endpoints_alive`, `cables_alive`,
    `trunks_alive`."""

    pairs: Words
    spines: Words
    ends: Bools
    endpoints_alive: Bools
    cables_alive: Bools
    trunks_alive: Bools

    def of(self, planes: Ints) -> Availability:
        """Copies of some sub-planes."""
        return Availability(*(getattr(self, name)[planes] for name in self.__dataclass_fields__))

    def put(self, planes: Ints, now: Availability) -> None:
        """Replace some sub-planes."""
        for name in self.__dataclass_fields__:
            getattr(self, name)[planes] = getattr(now, name)


class ElementState:
    """The shares and drains of every element, as arrays by kind."""

    def __init__(self, shape: ClosShape) -> None:
        self.shape = shape
        self.share = {kind: np.ones(size) for kind, size in shape.sizes.items()}
        self.drained = {kind: np.zeros(size, bool) for kind, size in shape.sizes.items()}

    def take(self, events: Iterable[ElementEvent]) -> None:
        """Apply the events in order. InvalidField names the first invalid one, and then none is applied."""
        events = list(events)
        for number, event in enumerate(events):
            self._check(event, f"events[{number}]")
        for event in events:
            if event.share is not None:
                self.share[event.kind][event.at] = event.share
            if event.drained is not None:
                self.drained[event.kind][event.at] = event.drained

    def _check(self, event: ElementEvent, field: str) -> None:
        sizes = self.shape.sizes
        if event.kind not in sizes:
            raise InvalidField(
                f"{event.kind!r} is not a kind of element; use {', '.join(sizes)}", field=f"{field}.kind"
            )
        size = sizes[event.kind]
        if len(event.at) != len(size) or not all(0 <= n < most for n, most in zip(event.at, size, strict=True)):
            text = f"a {event.kind} is identified by {len(size)} numbers from 0, below {size}"
            raise InvalidField(text, field=f"{field}.at")
        if event.share is not None and not 0 <= event.share <= 1:
            raise InvalidField("must be from 0 (lost) to 1 (full rate)", field=f"{field}.share")

    def left(self, planes: Ints) -> Availability:
        """What is left of some sub-planes; the first axis of every array runs over them."""
        up = {kind: share[planes] > 0 for kind, share in self.share.items()}
        ends, cables, trunks = self._with_chips(up)
        open_now = {kind: status & ~self.drained[kind][planes] for kind, status in up.items()}
        ends_open, cables_open, trunks_open = self._with_chips(open_now)
        spines = _pack_bits(trunks_open)
        return Availability(self._pairs(_pack_bits(cables_open), spines), spines, ends_open, ends, cables, trunks)

    def _with_chips(self, each: Mapping[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Endpoint links, cables and trunks, each multiplied by the state of the chips at its ends."""
        l2_of_node = np.repeat(each["l2"], self.shape.nodes, axis=1)
        ends = each["end"] * each["l1"][:, :, None]
        cables = each["cable"] * each["l1"][:, :, None] * l2_of_node
        trunks = each["trunk"] * each["l2"][..., None] * each["l3"][:, None]
        return ends, cables, trunks

    def _pairs(self, chips: Words, spines: Words) -> Words:
        pairs: Words = chips[:, :, None] & chips[:, None, :]
        shape = self.shape
        if shape.supernodes > 1:
            joined = _pack_bits((spines[:, :, None, :] & spines[:, None, :, :]) != 0)
            own = np.arange(shape.supernodes)
            joined[:, own, own] = low_bits(shape.chips)
            pairs = pairs.reshape(-1, shape.supernodes, shape.nodes, shape.supernodes, shape.nodes)
            pairs &= joined[:, :, None, :, None]
            pairs = pairs.reshape(-1, shape.all_nodes, shape.all_nodes)
        own = np.arange(shape.all_nodes)
        pairs[:, own, own] = low_bits(shape.chips)
        return pairs

    def link_shares(self, planes: Ints) -> NDArray[np.float64]:
        """[sub-plane, link]: the share of its built rate that each directed link has left, drained or not. Both
        directions of a cable have the same."""
        kinds = self._with_chips({kind: share[planes] for kind, share in self.share.items()})
        each = [share.reshape(len(planes), -1) for share in kinds for _ in ("up", "down")]
        return np.concatenate(each, axis=1)


def low_bits(count: int) -> np.uint32:
    return np.uint32((1 << count) - 1)


def _pack_bits(bits: Bools) -> Words:
    """The last axis as bits of a word, lowest first."""
    powers = np.left_shift(np.uint32(1), np.arange(bits.shape[-1], dtype=np.uint32))
    return (bits * powers).sum(-1, dtype=np.uint32)
