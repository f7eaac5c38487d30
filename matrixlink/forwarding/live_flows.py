"""LiveFlows: ongoing transfers, their paths over the tables and their rates, updated with every change of the tables.

A transfer is divided into flows, one per sub-plane and way of its policy. Its weight in a sub-plane is what the
sub-plane can carry for the pair, so a sub-plane that lost a chip gets less of every transfer, and one without a path
for the pair gets nothing. Flows share links by these weights, max-min (`fabric/sharing/max_min_arrays.py`), and a
ceiling is divided over sub-planes by them. The rate of a transfer is the sum over its flows: pieces go to whichever
sub-plane is free.

After an event only flows of the affected sub-planes are checked, and only sub-planes in which a path, a weight, a
ceiling or a capacity changed are shared again, since they have no link in common. Paths are compared with the previous
ones, so the flows reported are exactly those that changed. Rereading the flows of a sub-plane as arrays costs less than
maintaining an index from entries and links to flows; `over` finds the flows of a link on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from matrixlink.fabric.sharing.rates import compute_rates
from matrixlink.fabric.sharing.traffic import traffic
from matrixlink.forwarding.clos_shape import NONE, Ints
from matrixlink.forwarding.forwarding_tables import ForwardingTables, TableChange
from matrixlink.forwarding.path_policies import PathSpread, Transfers
from matrixlink.forwarding.paths import Floats, Paths, path_share, paths

RATE_TOLERANCE = 1e-9
"""Rates this close, relatively, are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowChange:
    """Flows whose path changed and flows whose rate changed, with the values before and after."""

    repathed: Ints
    path_before: Paths
    path_after: Paths
    rerated: Ints
    rate_before: Floats
    rate_after: Floats


class LiveFlows:
    """Groups of transfers by name. Flow numbers run through the groups in the order of `groups`; the flow of transfer
    t, sub-plane p and way w of a group is its first + (t * sub_planes + p) * ways + w."""

    def __init__(self, tables: ForwardingTables) -> None:
        self.tables = tables
        self._groups: dict[str, PathSpread] = {}
        self._lay_out()

    def __len__(self) -> int:
        return len(self.rate)

    # ---- who there is -----------------------------------------------------------------------------------------------

    def put(self, groups: dict[str, Transfers]) -> None:
        """Add groups, replacing those of the same name; all flows are numbered and rated again."""
        for name, transfers in groups.items():
            self._groups[name] = PathSpread(transfers, self.tables)
        self._lay_out()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            del self._groups[name]
        self._lay_out()

    @property
    def groups(self) -> list[str]:
        return list(self._groups)

    def flows_of(self, name: str) -> slice:
        return self._at[name]

    def by_transfer(self, name: str, values: Floats) -> Floats:
        """Values of all flows, summed over the flows of each transfer of a group."""
        spread = self._groups[name]
        each: Floats = values[self._at[name]].reshape(len(spread.transfers), -1).sum(1)
        return each

    def over(self, link: int) -> Ints:
        """The flows that use a link."""
        return np.flatnonzero((self.path == link).any(1))

    def _lay_out(self) -> None:
        planes = self.tables.shape.sub_planes
        width = 6 if self.tables.shape.supernodes > 1 else 4
        first, self._at = 0, {}
        for name, spread in self._groups.items():
            count = len(spread.transfers) * planes * spread.ways
            self._at[name] = slice(first, first + count)
            first += count
        self.path: Paths = np.full((first, width), NONE, np.int32)
        self.plane = np.empty(first, np.int64)
        self.weight, self.ceiling, self.rate = np.zeros(first), np.full(first, np.inf), np.zeros(first)
        for name, spread in self._groups.items():
            cells = np.arange(self._at[name].start, self._at[name].stop)
            self.plane[cells] = (cells - self._at[name].start) // spread.ways % planes
        self._by_plane = [np.flatnonzero(self.plane == plane) for plane in range(planes)]
        self._follow(np.arange(planes))
        self._rate(np.arange(planes))

    # ---- following ---------------------------------------------------------------------------------------------------

    def take(self, change: TableChange) -> FlowChange:
        """Apply what the tables have just changed."""
        looked = np.sort(np.concatenate([np.empty(0, np.int64), *(self._by_plane[plane] for plane in change.planes)]))
        path, ceiling = self.path[looked], self.ceiling.copy()
        self._follow(change.planes)
        moved = (path != self.path[looked]).any(1)
        shared_anew = np.union1d(change.planes, self.plane[ceiling != self.ceiling]).astype(np.int64)
        rate = self.rate.copy()
        self._rate(shared_anew)
        rerated = np.flatnonzero(np.abs(self.rate - rate) > RATE_TOLERANCE * np.maximum(self.rate, rate))
        return FlowChange(
            looked[moved], path[moved], self.path[looked[moved]], rerated, rate[rerated], self.rate[rerated]
        )

    def _follow(self, planes: Ints) -> None:
        """Take paths, weights and ceilings from the present tables, in these sub-planes."""
        shares = self.tables.link_shares.ravel()
        for name, spread in self._groups.items():
            at = self._at[name]
            shape = (len(spread.transfers), self.tables.shape.sub_planes, spread.ways)
            path, weight = self.path[at].reshape(*shape, -1), self.weight[at].reshape(shape)
            for plane in planes.tolist():
                path[:, plane], weight[:, plane] = self._paths_and_weights(spread, plane, shares)
            if not np.isinf(spread.transfers.ceiling).all():
                total = np.maximum(weight.sum((1, 2), keepdims=True), np.finfo(float).tiny)
                self.ceiling[at] = (weight / total * spread.transfers.ceiling[:, None, None]).ravel()

    def _paths_and_weights(self, spread: PathSpread, plane: int, shares: Floats) -> tuple[Paths, Floats]:
        """Path and weight of each transfer's ways in one sub-plane. Ways that have a path share the weight evenly."""
        transfers, ways = spread.transfers, spread.ways
        source, target = (np.repeat(ends, ways) for ends in (transfers.source, transfers.target))
        chips = spread.chips(plane)
        found = paths(self.tables, np.full(len(source), plane), source, target, chips.ravel())
        share = path_share(found, shares).reshape(-1, ways)
        open_ways = np.maximum((chips != NONE).sum(1), 1)
        return found.reshape(len(transfers), ways, -1), share * (spread.weight(plane) / open_ways)[:, None]

    def _rate(self, planes: Ints) -> None:
        shape = self.tables.shape
        for plane in planes.tolist():
            flows = self._by_plane[plane]
            self.rate[flows] = 0.0
            live = flows[(self.weight[flows] > 0) & (self.ceiling[flows] > 0)]
            if len(live):
                path = np.where(self.path[live] == NONE, NONE, self.path[live] - plane * shape.links)
                capacity = shape.built_gbps * self.tables.link_shares[plane]
                made = traffic(capacity, path, weight=self.weight[live], ceiling=self.ceiling[live])
                self.rate[live] = compute_rates(made)
