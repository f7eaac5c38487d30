"""Quality of forwarding tables, by the measures used to compare subnet managers.

All measures are over dies, without CPUs. `all_to_all_factor`: the load of a sub-plane's most loaded cable when every
die sends the same to every other, relative to even load, which is how much longer an all-to-all takes there.
`all_to_all_slowdown`: the same for all sub-planes together, with each transfer split by the sub-planes' weights, and
including the dies' links. `pattern_rates`: max-min rates of transfers that have one sub-plane to themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from matrixlink.fabric.sharing.rates import compute_rates
from matrixlink.fabric.sharing.traffic import traffic
from matrixlink.forwarding.clos_shape import NONE, ClosShape, Ints
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.path_policies import STATIC, PathSpread, Transfers
from matrixlink.forwarding.paths import Floats, Paths, path_share, paths

Pattern = tuple[Ints, Ints]
"""The source and target endpoints of transfers."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates over several patterns (GB/s): the mean of all transfers, the lowest mean of a pattern, and the lowest of
    all."""

    mean: float
    worst_mean: float
    slowest: float


def all_dies(shape: ClosShape) -> Ints:
    """The endpoint numbers of all dies, in order."""
    return (np.arange(shape.all_nodes)[:, None] * shape.ends + np.arange(shape.dies)).ravel()


def all_to_all_factor(tables: ForwardingTables, plane: int, policy: str = STATIC, seed: int = 0) -> float:
    """The load of the most loaded cable relative to even load. Pairs without a path in this sub-plane add no load."""
    shape = tables.shape
    load = np.zeros(shape.links)
    for pattern in _pairs(shape):
        found, ways = _plane_paths(tables, plane, pattern, policy, seed)
        load += np.bincount(found[found != NONE], minlength=shape.links) / ways
    cables = load[shape.link_starts["cable-up"] : shape.link_starts["trunk-up"]]
    crossings = 2 * shape.all_nodes * (shape.all_nodes - 1) * shape.dies**2
    return float(cables.max() / (crossings / len(cables)))


def all_to_all_slowdown(tables: ForwardingTables) -> float:
    """The slow-down of an all-to-all, with transfers split over the sub-planes by weight: the highest ratio of a link's
    load time to that of the same link in an intact plane. Infinite if some pair has no path at all."""
    shape = tables.shape
    untouched = ForwardingTables(replace(shape, sub_planes=1))
    whole = (tables.link_shares == 1).all(1) & (tables.l1 == untouched.l1).all((1, 2, 3))
    impaired = np.flatnonzero(~whole).tolist()
    load, before = np.zeros((shape.sub_planes, shape.links)), np.zeros(shape.links)
    for pattern in _pairs(shape):
        found, weight = _weighted_paths(untouched, 0, pattern)
        before += _loads(shape, found, weight / shape.sub_planes)
        pieces = [_weighted_paths(tables, plane, pattern) for plane in impaired]
        total = sum((weight for _, weight in pieces), start=weight * whole.sum())
        if not total.all():
            return float("inf")
        load[whole] += _loads(shape, found, weight / total)
        for plane, (found, weight) in zip(impaired, pieces, strict=True):
            load[plane] += _loads(shape, found, weight / total)
    used = load > 0
    return float((load[used] / tables.link_shares[used] / np.broadcast_to(before, load.shape)[used]).max())


def _loads(shape: ClosShape, found: Paths, part: Floats) -> Floats:
    """The load of each link by transfers that send `part` over these paths."""
    used = found != NONE
    carried = np.broadcast_to(part[:, None], found.shape)[used]
    return np.bincount(found[used], carried, shape.links).astype(float, copy=False)


def _weighted_paths(tables: ForwardingTables, plane: int, pattern: Pattern) -> tuple[Paths, Floats]:
    found, _ = _plane_paths(tables, plane, pattern)
    spread = PathSpread(Transfers.of(tables.shape, *pattern), tables)
    return found, spread.weight(plane) * path_share(found, tables.link_shares[plane])


def _pairs(shape: ClosShape) -> Iterator[Pattern]:
    """Yield all ordered pairs of different dies, a few senders at a time."""
    dies = all_dies(shape)
    for senders in np.array_split(dies, -(-len(dies) // 64)):
        sources, targets = np.repeat(senders, len(dies)), np.tile(dies, len(senders))
        yield sources[sources != targets], targets[sources != targets]


def pattern_rates(
    tables: ForwardingTables, plane: int, patterns: list[Pattern], policy: str = STATIC, seed: int = 0
) -> Rates:
    """The rates of transfers that have one sub-plane to themselves; 0 without a path."""
    capacity = tables.shape.built_gbps * tables.link_shares[plane]
    means, slowest = [], np.inf
    for pattern in patterns:
        found, ways = _plane_paths(tables, plane, pattern, policy, seed)
        open_ways = (found != NONE).any(1)
        rate = np.zeros(len(found))
        rate[open_ways] = compute_rates(traffic(capacity, found[open_ways]))
        per_transfer = rate.reshape(-1, ways).sum(1)
        means.append(float(per_transfer.mean()))
        slowest = min(slowest, float(per_transfer.min()))
    return Rates(float(np.mean(means)), min(means), slowest)


def _plane_paths(
    tables: ForwardingTables, plane: int, pattern: Pattern, policy: str = STATIC, seed: int = 0
) -> tuple[Paths, int]:
    """The paths as links of one sub-plane, a row per transfer and way, and the number of ways."""
    spread = PathSpread(Transfers.of(tables.shape, *pattern, policy=policy, seed=seed), tables)
    source, target = (np.repeat(ends, spread.ways) for ends in pattern)
    found = paths(tables, np.full(len(source), plane), source, target, spread.chips(plane).ravel())
    return np.where(found == NONE, NONE, found - plane * tables.shape.links), spread.ways


def permutations(shape: ClosShape, seed: int, count: int) -> list[Pattern]:
    """`count` random permutations of all dies."""
    rng, dies = np.random.default_rng(seed), all_dies(shape)
    return [(dies, rng.permutation(dies)) for _ in range(count)]


def shifts(shape: ClosShape, count: int) -> list[Pattern]:
    """`count` cyclic shifts of all dies, by distances spread over the whole cycle."""
    dies = all_dies(shape)
    return [(dies, np.roll(dies, -round(len(dies) * n / (count + 1)))) for n in range(1, count + 1)]
