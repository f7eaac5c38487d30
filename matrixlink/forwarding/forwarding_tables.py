"""ForwardingTables: the table of every chip of a UB plane, updated event by event.

`l1[p, n, m, e]` is the port by which the L1 chip of node n in sub-plane p sends to endpoint e of node m, `l2[p, s, k,
m, e]` that of L2 chip k of supernode s, `l3[p, k, j, m, e]` that of third-level chip j of L2 number k; `NONE` means no
way. An event is processed in its own sub-plane only and touches only the entries of pairs of nodes whose choice it
changes; the result is exactly the entries that differ now. Rebuilt from the same condition, the tables are identical
bit by bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from matrixlink.forwarding.clos_shape import NONE, Bools, ClosShape, Ints, Ports
from matrixlink.forwarding.dmod_k import l1_entries, l2_ports, l3_ports, to_endpoints
from matrixlink.forwarding.element_state import Availability, ElementEvent, ElementState, low_bits

ROWS_PER_BATCH = 1 << 16
"""Rows of the L1 tables computed at a time, to limit memory."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryDiff:
    """Changed entries of one kind of table: their positions as flat numbers in rising order, and the port before and
    after."""

    at: Ints
    before: Ports
    after: Ports

    def __len__(self) -> int:
        return len(self.at)


NO_CHANGE = EntryDiff(np.empty(0, np.int64), np.empty(0, np.int8), np.empty(0, np.int8))


@dataclass(frozen=True, slots=True, eq=False)
class TableChange:
    """What one batch of events changed. `planes`: the sub-planes in which any entries or rates changed."""

    l1: EntryDiff
    l2: EntryDiff
    l3: EntryDiff
    planes: Ints

    def __len__(self) -> int:
        return len(self.l1) + len(self.l2) + len(self.l3)


class ForwardingTables:
    """The tables, the condition they follow, and `link_shares[p, l]`, the share of its built rate that each directed
    link has left."""

    def __init__(self, shape: ClosShape, condition: ElementState | None = None) -> None:
        self.shape = shape
        self.condition = condition or ElementState(shape)
        planes, nodes = np.arange(shape.sub_planes), shape.all_nodes
        self.left: Availability = self.condition.left(planes)
        self.link_shares = self.condition.link_shares(planes)
        self.l1: Ports = np.empty((len(planes), nodes, nodes, shape.ends), np.int8)
        self.l1[:] = shape.ends + shape.chip_of_endpoint
        own = np.arange(nodes)
        self.l1[:, own, own] = np.arange(shape.ends)
        whole = self.left.pairs == low_bits(shape.chips)
        self._rebuild_l1(planes, self.left, _affected_rows(~whole, ~self.left.ends, ~self.left.endpoints_alive))
        self._l2_ports = l2_ports(shape, self.left)
        self.l2: Ports = to_endpoints(self._l2_ports, self.left.endpoints_alive)
        self._l3_ports = self._ports_of_spines(self.left)
        self.l3: Ports = to_endpoints(self._l3_ports, self.left.endpoints_alive)

    @property
    def entries(self) -> int:
        return self.l1.size + self.l2.size + self.l3.size

    @property
    def version(self) -> str:
        """Names the present tables: the same text for the same condition, whatever came before."""
        reported = hashlib.blake2b(digest_size=8)
        for name in ("pairs", "spines", "ends", "endpoints_alive", "cables_alive", "trunks_alive"):
            reported.update(np.ascontiguousarray(getattr(self.left, name)).tobytes())
        return reported.hexdigest()

    def take(self, events: Iterable[ElementEvent]) -> TableChange:
        """Apply events. Raises InvalidField, and changes nothing, if one is invalid."""
        events = list(events)
        self.condition.take(events)
        if not events:
            return TableChange(NO_CHANGE, NO_CHANGE, NO_CHANGE, np.empty(0, np.int64))
        planes = np.array(sorted({event.at[0] for event in events}), np.int64)
        before, now = self.left.of(planes), self.condition.left(planes)
        self.left.put(planes, now)
        shares = self.condition.link_shares(planes)
        changed = (shares != self.link_shares[planes]).any(1)
        self.link_shares[planes] = shares
        ends = now.endpoints_alive != before.endpoints_alive
        rows = _affected_rows(now.pairs != before.pairs, now.ends != before.ends, ends)
        changed |= rows.any((1, 2)) | (now.spines != before.spines).any((1, 2))
        l1 = self._rebuild_l1(planes, now, rows)
        l2 = _rebuild(self.l2, self._l2_ports, l2_ports(self.shape, now), planes, ends, now.endpoints_alive)
        l3 = _rebuild(self.l3, self._l3_ports, self._ports_of_spines(now), planes, ends, now.endpoints_alive)
        return TableChange(l1, l2, l3, planes[changed])

    def _ports_of_spines(self, left: Availability) -> Ports:
        if not self.shape.spines:
            return np.empty((len(left.pairs), self.shape.chips, 0, self.shape.all_nodes), self.shape.port_type)
        return l3_ports(self.shape, left)

    def _rebuild_l1(self, planes: Ints, left: Availability, rows: Bools) -> EntryDiff:
        """Make the rows [p, n, m] by the rule, p running over `planes`, and return what changed."""
        found, nodes = np.flatnonzero(rows), self.shape.all_nodes
        table = self.l1.reshape(-1, self.shape.ends)
        changes = []
        for first in range(0, len(found), ROWS_PER_BATCH):
            pair = found[first : first + ROWS_PER_BATCH]
            plane, source, target = pair // (nodes * nodes), pair // nodes % nodes, pair % nodes
            made = l1_entries(self.shape, left, plane, source, target)
            changes.append(_write_rows(table, (planes[plane] * nodes + source) * nodes + target, made))
        return _merged(changes)


def _affected_rows(pairs: Bools, ends: Bools, ends_alive: Bools) -> Bools:
    """The rows [p, n, m] of the L1 tables that are affected: through the pair, or through an endpoint [p, m, e] of
    m."""
    own = np.arange(pairs.shape[1])
    rows: Bools = pairs | np.asarray(ends.any(2))[:, None, :]
    rows[:, own, own] |= ends_alive.any(2)
    return rows


def _rebuild(table: Ports, before: Ports, ports: Ports, planes: Ints, ends: Bools, ends_alive: Bools) -> EntryDiff:
    """Update a table from its ports towards nodes [p, ..., m] of some sub-planes, and return the changed entries.
    `ends` are the endpoints [p, m, e] whose link appeared or disappeared."""
    spread = (slice(None), *(None,) * (ports.ndim - 2))
    rows = np.flatnonzero((ports != before[planes]) | np.asarray(ends.any(2))[spread])
    of_plane = max(int(np.prod(ports.shape[1:])), 1)
    plane, node = rows // of_plane, rows % ports.shape[-1]
    made = np.where(ends_alive[plane, node], ports.reshape(-1)[rows][:, None], np.int8(NONE))
    before[planes] = ports
    return _write_rows(table.reshape(-1, table.shape[-1]), planes[plane] * of_plane + rows % of_plane, made)


def _write_rows(table: Ports, rows: Ints, made: Ports) -> EntryDiff:
    """Write rows, and return the entries that changed."""
    current = table[rows].ravel()
    news = np.flatnonzero(current != made.ravel())
    row, end = np.divmod(news, table.shape[1])
    at, after = rows[row] * table.shape[1] + end, made.ravel()[news]
    table.reshape(-1)[at] = after
    return EntryDiff(at, current[news], after)


def _merged(changes: list[EntryDiff]) -> EntryDiff:
    if len(changes) == 1:
        return changes[0]
    if not changes:
        return NO_CHANGE
    parts = (np.concatenate([getattr(change, name) for change in changes]) for name in ("at", "before", "after"))
    return EntryDiff(*parts)
