"""The peerings according to their rows: by slice, which of them members must hold, and which keys are used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matrixlink.store.tables import PEERED, PEERING_DELETING, PROGRAMMING_PEERS, PeeringRow


@dataclass(frozen=True, slots=True)
class ActivePeering:
    """A peering that members must hold, seen from one of its slices."""

    name: str
    partner: str
    isolation_key: int
    rules: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _PeeringEntry:
    """What a row said when it was last read."""

    slices: tuple[str, str]
    state: str
    isolation: str
    isolation_key: int
    rules: list[dict[str, Any]]


class PeeringIndex:
    """A change costs time in proportion to its own peering only, however many others there are."""

    def __init__(self) -> None:
        self._known: dict[str, _PeeringEntry] = {}
        self._of: dict[str, set[str]] = {}
        self.keys: dict[str, set[int]] = {}
        """By kind of key, the keys of peerings in any state."""
        self.open: set[str] = set()
        """Peerings that wait for agents."""

    def replace(self, rows: Iterable[PeeringRow]) -> None:
        """Replace all entries by these."""
        for kept in (self._known, self._of, self.keys, self.open):
            kept.clear()
        for row in rows:
            self.put(row)

    def put(self, row: PeeringRow) -> None:
        """Apply a row. Its slices and its key never change."""
        one, other = row.slices
        known = _PeeringEntry((one, other), row.state, row.isolation, row.isolation_key, row.security_rules)
        self._known[row.name] = known
        for slice in known.slices:
            self._of.setdefault(slice, set()).add(row.name)
        self.keys.setdefault(row.isolation, set()).add(row.isolation_key)
        if row.state in (PROGRAMMING_PEERS, PEERING_DELETING):
            self.open.add(row.name)
        else:
            self.open.discard(row.name)

    def drop(self, name: str) -> None:
        known = self._known.pop(name)
        for slice in known.slices:
            self._of[slice].discard(name)
            if not self._of[slice]:
                del self._of[slice]
        self.keys[known.isolation].discard(known.isolation_key)
        self.open.discard(name)

    def slices(self) -> list[str]:
        return list(self._of)

    def of(self, slice: str) -> list[str]:
        """The peerings of a slice in any state, sorted by name."""
        return sorted(self._of.get(slice, ()))

    def active(self, slice: str) -> list[ActivePeering]:
        """The peerings that the slice's members must hold."""
        found = []
        for name in self.of(slice):
            known = self._known[name]
            if known.state in (PROGRAMMING_PEERS, PEERED):
                partner = known.slices[1] if known.slices[0] == slice else known.slices[0]
                found.append(ActivePeering(name, partner, known.isolation_key, known.rules))
        return found
