"""Who has been promised how much of which link.

A ledger books, per owner, an amount on each of a set of links, all or nothing, and never more on a link than it has. It
knows nothing of slices or routes; admission decides with it, the oracle cases test it. Amounts are GB/s each way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from matrixlink.fabric.flow import Number

ROUNDING = 1e-9
"""How far floats may exceed a link, relative to its capacity, by rounding alone."""


class Ledger:
    """`capacity(link)` is asked anew each time, so a link may change under its bookings (`overbooked` tells)."""

    def __init__(self, capacity: Callable[[Hashable], Number]) -> None:
        self._capacity = capacity
        self._on: dict[Hashable, dict[Hashable, Number]] = {}  # by link, then owner
        self._held: dict[Hashable, dict[Hashable, Number]] = {}  # by owner, then link

    def residual(self, link: Hashable) -> Number:
        """What nobody has been promised; negative when the link has lost capacity under its bookings."""
        return self._capacity(link) - self.booked(link)

    def booked(self, link: Hashable) -> Number:
        """All promises on a link, summed anew each time: floats must not drift over a life of bookings."""
        return sum(self._on.get(link, {}).values())

    def owners(self, link: Hashable) -> list[Hashable]:
        return list(self._on.get(link, ()))

    def all_owners(self) -> set[Hashable]:
        return set(self._held)

    def held(self, owner: Hashable) -> Mapping[Hashable, Number]:
        return self._held.get(owner, {})

    def short(self, need: Mapping[Any, Number], instead_of: Hashable = None) -> list[Hashable]:
        """Links that cannot carry `need`, counting what `instead_of` holds as given back. Empty means it fits."""
        back = self._held.get(instead_of, {})
        return [link for link, amount in need.items() if self._lacks(link, amount - back.get(link, 0))]

    def book(self, owner: Hashable, need: Mapping[Any, Number]) -> list[Hashable]:
        """Book `need` for `owner` in place of what it held. Where it does not fit nothing changes and the links that
        are short are returned."""
        if short := self.short(need, owner):
            return short
        self.put(owner, need)
        return []

    def put(self, owner: Hashable, need: Mapping[Any, Number]) -> None:
        """Write `need` down without asking whether it fits: for what was admitted before, or kept through a loss."""
        self.release(owner)
        self._held[owner] = {link: amount for link, amount in need.items() if amount}
        for link, amount in self._held[owner].items():
            self._on.setdefault(link, {})[owner] = amount

    def release(self, owner: Hashable) -> None:
        """Give back all that `owner` holds; nothing happens if it holds nothing."""
        for link in self._held.pop(owner, {}):
            left = self._on[link]
            del left[owner]
            if not left:
                del self._on[link]

    def overbooked(self) -> list[Hashable]:
        """Links promised beyond what they have."""
        return [link for link in self._on if self._lacks(link, 0)]

    def _lacks(self, link: Hashable, more: Number) -> bool:
        capacity = self._capacity(link)
        load = self.booked(link) + more
        if isinstance(load, float):
            return load > capacity + ROUNDING * max(abs(float(capacity)), 1.0)
        return load > capacity
