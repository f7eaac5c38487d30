"""Planned routes: a known pattern of transfers, distributed over the L2 chips so that no cable carries two.

Transfers between nodes are the edges of a bipartite multigraph, senders on one side and receivers on the other. By
Koenig's theorem its edges divide into as many matchings as the largest degree; with sixteen dies per node a permutation
divides into sixteen, one for each L2 chip, and every transfer has its cables to itself. The matchings come from halving
(Gabow's Euler splits): edges are paired at every vertex, pairs join into closed walks of even length, and the edges of
a walk go alternately to one half and the other; halves are halved again until there is one for each chip. All walks of
all halves of a round are coloured at once over arrays, by pointer doubling. Larger degrees are distributed evenly, with
the fewest possible at each vertex and chip.

Transfers on a chip that does not serve their pair are reassigned (`around`), each to the working chip where it shares
with the fewest: with every die sending, a node that lost a cable has fifteen for sixteen.
"""

from __future__ import annotations

import numpy as np

from matrixlink.forwarding.clos_shape import NONE, Bools, Ints, Words


def matchings(senders: Ints, receivers: Ints, chips: int) -> Ints:
    """A number below `chips` for each transfer, such that no sender and no receiver has more than its even share
    (rounded up) of any number. If `chips` is not a power of two, numbers go up to the next one, and those beyond are
    left for `around`."""
    colour = np.zeros(len(senders), np.int64)
    for _ in range((chips - 1).bit_length()):
        colour = 2 * colour + _halve(colour, senders, receivers)
    return colour


def _halve(colour: Ints, senders: Ints, receivers: Ints) -> Ints:
    """0 or 1 for each edge: every vertex's edges of each colour are divided evenly, to within one."""
    edges = len(colour)
    if not edges:
        return np.zeros(0, np.int64)
    colours = int(colour.max()) + 1
    width_s, width_r = (
        int(senders.max()) + 2,
        int(receivers.max()) + 2,
    )  # one spare per colour
    left, right = colour * width_s + senders, colour * width_r + receivers
    odd_l = np.flatnonzero(np.bincount(left, minlength=colours * width_s) % 2)
    odd_r = np.flatnonzero(np.bincount(right, minlength=colours * width_r) % 2)
    of_l, of_r = odd_l // width_s, odd_r // width_r
    both = np.flatnonzero(np.bincount(of_l, minlength=colours) % 2)  # then odd_r is odd in this colour too
    extra_l, extra_r = (np.arange(colours) + 1) * width_s - 1, (np.arange(colours) + 1) * width_r - 1
    left = np.concatenate([left, odd_l, extra_l[of_r], extra_l[both]])
    right = np.concatenate([right, extra_r[of_l], odd_r, extra_r[both]])
    by_left, by_right = _pair_edges(left), _pair_edges(right)
    label, jump = np.arange(len(left)), by_left[by_right]
    for _ in range(len(left).bit_length()):
        label = np.minimum(label, label[jump])
        jump = jump[jump]
    return (label > label[by_left])[:edges].astype(np.int64)


def _pair_edges(vertex: Ints) -> Ints:
    """Edges paired at their vertices; every vertex must have an even number of them."""
    order = np.argsort(vertex, kind="stable")
    partner = np.empty(len(vertex), np.int64)
    partner[order[0::2]], partner[order[1::2]] = order[1::2], order[0::2]
    return partner


def chips_around_faults(colour: Ints, senders: Ints, receivers: Ints, words: Words, chips: int) -> Ints:
    """The chip of each transfer, where `words` has the chips that serve its pair: its colour if that is one of them,
    else the one whose cables have the fewest others, the lowest of several; NONE if none serves."""
    serves: Bools = ((words[:, None] >> np.arange(chips, dtype=np.uint32)) & 1).astype(bool)
    fits = (colour < chips) & serves[np.arange(len(colour)), np.minimum(colour, chips - 1)]
    chosen = np.where(fits, colour, NONE)
    if fits.all():
        return chosen
    up = np.zeros((int(senders.max()) + 1, chips), np.int64)
    down = np.zeros((int(receivers.max()) + 1, chips), np.int64)
    np.add.at(up, (senders[fits], chosen[fits]), 1)
    np.add.at(down, (receivers[fits], chosen[fits]), 1)
    for edge in np.flatnonzero(~fits).tolist():
        sender, receiver = senders[edge], receivers[edge]
        others = 4096 * np.maximum(up[sender], down[receiver]) + up[sender] + down[receiver]
        chip = int(np.argmin(np.where(serves[edge], others, np.iinfo(np.int64).max)))
        if serves[edge, chip]:
            chosen[edge] = chip
            up[sender, chip] += 1
            down[receiver, chip] += 1
    return chosen
