"""SliceIndex: what decisions need to know of slices, in memory.

Rows are read from the tables when they are changed; decisions read these entries. `terms_of` makes one from a row, and
`SliceIndex` holds them by name and by node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.planes import Plane
from matrixlink.model.protection import Protection
from matrixlink.model.qos import TERMS, QosClass
from matrixlink.model.slice_states import ADMITTED, WITHDRAWING
from matrixlink.store.tables import SliceRow


@dataclass(frozen=True, slots=True)
class SliceState:
    """One slice. `kept`: the share of its floor that it has; `unprotected`: why its protection is lost; `seen`: the
    impaired ports that its routes were made around; `view`: what it was told it may use, by node."""

    name: str
    project: str
    plane: Plane
    members: tuple[str, ...]
    floor_gbps: float
    ceiling_gbps: float | None
    weight: float
    rank: tuple[int, int]
    protection: Protection
    isolation: str
    isolation_key: int
    kept: float
    unprotected: str
    seen: dict[str, dict[str, float]]
    view: dict[str, Any] = field(repr=False)
    withdrawing: bool = False
    asked: bool = False
    """Whether agents were asked to program the present spec."""


def slice_state_of(row: SliceRow) -> SliceState:
    # SQLAlchemy's attribute access would dominate the cost; a missing entry has no value yet.
    current = row.__dict__
    get, state = current.get, current.get("state")
    withdrawing = state == WITHDRAWING
    kept, qos = get("kept"), QosClass(current["qos_class"])
    return SliceState(
        current["name"], get("project") or "default", Plane(current["plane"]), tuple(current["members"]),
        current["floor_gbps"], get("ceiling_gbps"), current["weight"], (TERMS[qos].rank, get("admitted_order") or 0),
        Protection(get("protection") or Protection.NONE), get("isolation") or "", get("isolation_key") or 0,
        1.0 if kept is None else kept, get("unprotected") or "", get("ports_seen") or {},
        (get("fabric_view") or {}).get("nodes", {}), withdrawing,
        bool(get("program_generation")) and not withdrawing and state != ADMITTED,
    )  # fmt: skip


class SliceIndex:
    """All slices by name, by plane and node, and by isolation key."""

    def __init__(self) -> None:
        self._by_name: dict[str, SliceState] = {}
        self._on: defaultdict[tuple[Plane, str], dict[str, None]] = defaultdict(dict)
        self._keys: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self.degraded: set[str] = set()
        """Slices that have less than they were promised."""

    def __iter__(self) -> Iterator[SliceState]:
        return iter(self._by_name.values())

    def get(self, name: str) -> SliceState | None:
        return self._by_name.get(name)

    def __getitem__(self, name: str) -> SliceState:
        return self._by_name[name]

    def on(self, plane: Plane, node: str) -> list[SliceState]:
        """The slices with this member on this plane, in the order they came."""
        return [self._by_name[name] for name in self._on.get((plane, node), ())]

    def names_at(self, plane: Plane, nodes: Iterable[str]) -> list[str]:
        return sorted({name for node in nodes for name in self._on.get((plane, node), ())})

    def keys(self, isolation: str) -> dict[int, str]:
        """The holder of each key of a kind."""
        return self._keys[isolation]

    def put(self, terms: SliceState) -> None:
        current = self._by_name.get(terms.name)
        if current is None or (current.members, current.isolation_key) != (terms.members, terms.isolation_key):
            self.drop(terms.name)
            for node in terms.members:
                self._on[terms.plane, node][terms.name] = None
            if terms.isolation:
                self._keys[terms.isolation][terms.isolation_key] = terms.name
        self._by_name[terms.name] = terms
        less = not terms.withdrawing and (terms.kept < 1 or bool(terms.unprotected))
        (self.degraded.add if less else self.degraded.discard)(terms.name)

    def drop(self, name: str) -> None:
        current = self._by_name.pop(name, None)
        if current is None:
            return
        for node in current.members:
            self._on[current.plane, node].pop(name, None)
        self._keys[current.isolation].pop(current.isolation_key, None)
        self.degraded.discard(name)

    def clear(self) -> None:
        self._by_name.clear()
        self._on.clear()
        self._keys.clear()
        self.degraded.clear()
