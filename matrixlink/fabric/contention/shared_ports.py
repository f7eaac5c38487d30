"""SharedPorts: what all present traffic gets on some ports, and what additional traffic would get.

Rates are those of the fabric core: floors first, the rest by weight, up to what is offered. Weight, floor and ceiling
of a slice on a node are divided over what it sends there. UB and RoCE are lossless: excess traffic waits at the sender.

`exchange_gbps` is for a collective: an all-to-all that comes all at once, as dispatch and combine do, while others send
as before. Its pieces are in proportion to its bytes, so on the link that holds back the slowest of them no other piece
of it is faster; the link stays full until the end, and one solve covers the whole run. `left` is for transfers that
come one by one: what a slice gets of each port separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from matrixlink.fabric.contention.offers import INTRA_NODE, Ints, Offer, OfferSplitter, Program, Subflows
from matrixlink.fabric.contention.port_groups import Floats, PortGroups
from matrixlink.fabric.contention.ports_left import AvailablePorts
from matrixlink.fabric.sharing.max_min_arrays import fair_rates, sum_by_link
from matrixlink.fabric.sharing.traffic import traffic

RATE_TOLERANCE_GBPS = 1e-9


class SharedPorts:
    """The ports of some nodes and the traffic offered on them. Immutable: another condition is another object."""

    def __init__(self, groups: PortGroups, names: Sequence[str], offers: Sequence[Offer]) -> None:
        self.groups, self.names = groups, list(names)
        self.index = {name: at for at, name in enumerate(self.names)}
        self._splitter = OfferSplitter(groups, self.index)
        self.pieces = [self._splitter.of(offer) for offer in offers]
        self._moving: list[Floats] | None = None

    # ---- what moves -------------------------------------------------------------------------------------------------

    def moving(self) -> list[Floats]:
        """GB/s of each piece of each offer, all together."""
        if self._moving is None:
            self._moving = self._rates(self.pieces)
        return self._moving

    def _rates(self, offered: Sequence[Subflows]) -> list[Floats]:
        every = _CombinedSubflows(offered)
        if not len(every):
            return [np.zeros(len(each)) for each in offered]
        part = every.gbps / np.maximum(every.sent_by_slice(), RATE_TOLERANCE_GBPS)
        most = np.minimum(every.gbps, every.ceiling * np.where(np.isinf(every.ceiling), 1.0, part))
        return every.apart(self._shared(every, every.weight * part, every.floor * part, most, self.groups.dies_gbps))

    # ---- a collective -----------------------------------------------------------------------------------------------

    def exchange_gbps(
        self, slice: str, programs: Mapping[str, Program], without: Sequence[int] = (), *, inside: bool = True
    ) -> float:
        """GB/s out of each die of these members when all exchange with all at once; 0 if some cannot reach others.

        `without`: the numbers of the offers that are this collective's own average traffic, with which it does not
        contend. `inside`: whether dies of the same node exchange too.
        """
        nodes = sorted(programs)
        burst = self._burst(slice, programs, nodes, inside)
        if burst is None:
            return 0.0
        others = [each for at, each in enumerate(self.pieces) if at not in set(without) and len(each)]
        every = _CombinedSubflows([burst, *others])
        mine = np.arange(len(every)) < len(burst)
        sent = np.where(mine, 0.0, every.gbps)
        theirs = every.sent_by_slice(sent)
        part = np.where(mine, every.part, sent / np.maximum(theirs, RATE_TOLERANCE_GBPS))
        # Other traffic of the same slice uses up its floor first.
        beside = np.where(mine & (every.slice == 0), theirs, 0.0)
        floor = np.maximum(every.floor - beside, 0.0) * part
        ceiling = every.ceiling * np.where(np.isinf(every.ceiling), 1.0, part)
        most = np.where(mine, ceiling, np.minimum(sent, ceiling))
        got = self._shared(every, every.weight * part, floor, most, self._dies_of_slowest(nodes))
        return float((got[mine] / every.part[mine]).min()) / self.groups.shape.dies

    def _burst(
        self, slice: str, programs: Mapping[str, Program], nodes: Sequence[str], inside: bool
    ) -> Subflows | None:
        """The collective's pieces; None if some of them have no way."""
        dies = self.groups.shape.dies
        ranks = dies * len(nodes)
        rows: list[tuple[str, str, int, float, float]] = []
        planes: list[int] = []
        within = (dies - 1) / max(1, ranks - 1) if inside else 0.0
        for source in nodes:
            program = programs[source]
            if program["plane"] == "ub" and within > 0:
                for plane, part in self._inside(source):
                    rows.append((source, source, INTRA_NODE, within * part, 0.0))
                    planes.append(plane)
            peers = frozenset(program["peers"])
            for target in nodes:
                if target == source:
                    continue
                if target not in peers or program["isolation_key"] != programs[target]["isolation_key"]:
                    return None
                ways = self._splitter.ways(program["plane"], self._slowest_stripes(program, source, target))
                if not ways:
                    return None
                share = (1.0 - within) / (len(nodes) - 1)
                for group, part in ways:
                    rows.append((source, target, group, share * part, 0.0))
                    planes.append(self.groups.sub_plane(group))
        return self._splitter.pieces(slice, programs, rows, planes) if rows else None

    def _inside(self, node: str) -> Iterator[tuple[int, float]]:
        """Sub-planes over which the slowest die of a node exchanges with its neighbours, and the part of each."""
        left = self._slowest_die_shares(self.index[node])
        total = float(left.sum())
        if total <= 0:
            return
        yield from ((plane, float(each) / total) for plane, each in enumerate(left) if each > 0)

    def _slowest_die_shares(self, row: int) -> Floats:
        shares: Floats = self.groups.die_share[row]
        return shares[int(shares.sum(axis=1).argmin())]

    def _slowest_stripes(self, program: Program, source: str, target: str) -> Sequence[Mapping[str, object]]:
        """Everybody waits for the die with the least left, so all of a node's traffic is assumed to go as that die's
        does."""
        detours: Mapping[str, Sequence[Mapping[str, object]]] = program["detours"]
        usual = detours.get(target, program["stripes"])
        for owner, name in ((target, f"{target}-"), (source, "")):
            row = self.index[owner]
            if self.groups.impaired_dies[row]:
                die = int(self.groups.die_share[row].sum(axis=1).argmin())
                npu, within = divmod(die, self.groups.shape.dies_per_npu)
                found = detours.get(f"{name}npu{npu}-die{within}")
                if found:
                    return found
        return usual

    def _dies_of_slowest(self, nodes: Sequence[str]) -> Floats:
        """What dies have, by node and sub-plane, all members' dies being as slow as their slowest."""
        found = self.groups.dies_gbps.copy()
        for node in nodes:
            row = self.index[node]
            if self.groups.impaired_dies[row]:
                found[row] = self._slowest_die_shares(row) * self.groups.shape.die_gbps * self.groups.shape.dies
        return found

    # ---- what is left -----------------------------------------------------------------------------------------------

    def left(self, slice: str, programs: Mapping[str, Program]) -> dict[str, AvailablePorts]:
        """By member, what the slice gets of its ports, each port separately, while others send as they would without
        this slice: its floor and its weight's part, or what they leave, whichever is more."""
        others = [each for each in self.pieces if each.slice != slice and len(each)]
        every, rates = _CombinedSubflows(others), np.zeros(0)
        if others:
            rates = np.concatenate(self._rates(others))
        nodes, count = self.groups.group_gbps.shape
        beside = {out: self._competing_traffic(every, rates, out, nodes, count) for out in (True, False)}
        return {node: self._available_on(self.index[node], program, beside) for node, program in programs.items()}

    def _competing_traffic(
        self, every: _CombinedSubflows, rates: Floats, out: bool, nodes: int, count: int
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """The others' (GB/s, weight, floor) on each group of ports, and GB/s on the dies by sub-plane."""
        planes = self.groups.shape.sub_planes
        moved, weights, floors, dies = (np.zeros(size) for size in (nodes * count,) * 3 + (nodes * planes,))
        if len(every):
            part = every.gbps / np.maximum(every.sent_by_slice(), RATE_TOLERANCE_GBPS)
            at = (every.source if out else every.target) * count + every.group
            np.add.at(moved, at, rates)
            np.add.at(weights, at, every.weight * part)
            np.add.at(floors, at, np.minimum(every.floor * part, rates))
            on = every.sub_plane >= 0
            where = (every.source if out else every.target)[on] * planes + every.sub_plane[on]
            np.add.at(dies, where, rates[on])
        return moved.reshape(nodes, -1), weights.reshape(nodes, -1), floors.reshape(nodes, -1), dies.reshape(nodes, -1)

    def _available_on(
        self, row: int, program: Program, beside: Mapping[bool, tuple[Floats, Floats, Floats, Floats]]
    ) -> AvailablePorts:
        groups, shape = self.groups, self.groups.shape
        plane = str(program["plane"])
        sets = groups.groups_of(plane)
        numbers = [number for each in sets for number in each]
        has = groups.group_gbps[row]
        whole = max(float(has[numbers].sum()), RATE_TOLERANCE_GBPS)
        ends: list[list[float]] = []
        ports: list[list[float]] = []
        for out in (True, False):
            moved, weights, floors, dies = (each[row] for each in beside[out])
            part = has / whole
            left = _rate_by_port(has, part, program, moved, weights, floors)
            ports.append([float(left[each].sum()) for each in sets])
            if plane == "ub":
                slowest = self._slowest_die_shares(row) * shape.die_gbps
                free = np.maximum(groups.dies_gbps[row] - dies, 0.0) / shape.dies
                fair = np.array(ports[-1]) / shape.dies
                ends.append([float(each) for each in np.minimum(slowest, np.maximum(free, fair))])
            elif plane == "rdma":
                by_npu = left[numbers].reshape(shape.npus, shape.dies_per_npu)
                ends.append([float(by_npu.mean(axis=1).min())])
            else:
                ends.append([float(left[numbers[0]])])
        return AvailablePorts(ports[0], ports[1], ends[0], ends[1])

    # ---- the core ---------------------------------------------------------------------------------------------------

    def _shared(self, every: _CombinedSubflows, weight: Floats, floor: Floats, ceiling: Floats, dies: Floats) -> Floats:
        """GB/s of each piece. Links: a node's groups of ports out, the same in, its dies out and in by sub-plane."""
        groups = self.groups
        nodes, count = groups.group_gbps.shape
        planes = groups.shape.sub_planes
        first = 2 * nodes * count
        ports = groups.group_gbps.ravel()
        capacity = np.concatenate([ports, ports, dies.ravel(), dies.ravel()])
        outward, on_ub = every.group != INTRA_NODE, every.sub_plane >= 0
        paths = np.stack(
            [
                np.where(outward, every.source * count + every.group, -1),
                np.where(outward, nodes * count + every.target * count + every.group, -1),
                np.where(on_ub, first + every.source * planes + every.sub_plane, -1),
                np.where(on_ub, first + nodes * planes + every.target * planes + every.sub_plane, -1),
            ],
            axis=1,
        )
        rising = (weight > 0) & (ceiling > 0)
        got = np.zeros(len(every))
        if rising.any():
            chosen = paths[rising]
            floors = _fitting_floors(capacity, chosen, np.minimum(floor, ceiling)[rising])
            made = traffic(capacity, chosen, weight=weight[rising], floor=floors, ceiling=ceiling[rising])
            got[rising] = fair_rates(made)
        return got


class _CombinedSubflows:
    """The pieces of several patterns as one; `slice` numbers slices in the order they come."""

    def __init__(self, parts: Sequence[Subflows]) -> None:
        self._lengths = [len(each) for each in parts]
        names: dict[str, int] = {}
        self.slice: Ints = np.concatenate(
            [np.full(len(each), names.setdefault(each.slice, len(names)), np.int64) for each in parts]
            or [np.zeros(0, np.int64)]
        )
        for name in ("source", "target", "group", "sub_plane", "part", "gbps", "weight", "floor", "ceiling"):
            setattr(self, name, np.concatenate([getattr(each, name) for each in parts] or [np.zeros(0)]))

    source: Ints
    target: Ints
    group: Ints
    sub_plane: Ints
    part: Floats
    gbps: Floats
    weight: Floats
    floor: Floats
    ceiling: Floats

    def __len__(self) -> int:
        return len(self.slice)

    def sent_by_slice(self, gbps: Floats | None = None) -> Floats:
        """For each piece, everything that its slice offers from its source."""
        key = self.slice * (int(self.source.max(initial=0)) + 1) + self.source
        sums = np.bincount(key, self.gbps if gbps is None else gbps)
        found: Floats = sums[key]
        return found

    def apart(self, values: Floats) -> list[Floats]:
        return np.split(values, np.cumsum(self._lengths)[:-1])


def _rate_by_port(
    has: Floats, part: Floats, program: Program, moved: Floats, weights: Floats, floors: Floats
) -> Floats:
    """What a slice gets of each port that it shares only with flows of that total traffic, weights and floors:
    guarantee plus share, port by port."""
    ceiling = program.get("ceiling_gbps")
    most = has if ceiling is None else np.minimum(has, float(ceiling) * part)
    own = np.minimum(float(program["floor_gbps"]) * part, np.maximum(has - floors, 0.0))
    rest = np.maximum(has - own - floors, 0.0)
    weight = float(program["weight"]) * part
    theirs = np.minimum(moved - floors, rest * weights / np.maximum(weights + weight, RATE_TOLERANCE_GBPS))
    found: Floats = np.minimum(most, own + np.maximum(rest - theirs, 0.0))
    return found


def _fitting_floors(capacity: Floats, paths: Ints, floor: Floats) -> Floats:
    """Floors as far as the ports carry them: they were promised by the hose model on links at full rate. Where a port
    cannot carry them, all floors over it are reduced alike."""
    booked = sum_by_link(traffic(capacity, paths, ceiling=np.inf), floor)
    fits = np.ones(len(capacity))
    np.divide(capacity, booked, out=fits, where=booked > capacity)
    scale = np.where(paths >= 0, fits[np.maximum(paths, 0)], 1.0).min(axis=1)
    fitted: Floats = floor * scale * (1 - 1e-12)
    return fitted
