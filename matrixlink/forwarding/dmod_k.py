"""The rule by which every entry is made, from what is available and nothing else.

Traffic to die d of a node uses L2 chip d, to CPU c chip c: destination-modulo routing, as known from fat trees (Petrini
and Vanneschi's k-ary n-trees; Zahavi's D-mod-K), up and then down and so without deadlock. Where that chip does not
serve the pair, the entry is spread: among the chips that do, in the order of their numbers, it takes number (source
node + destination node) modulo their count. Between supernodes an L2 chip sends to third-level chip (destination node
in its supernode) modulo their count, spread in the same way.

History leaves no trace: the same condition gives the same tables, whatever was lost and repaired before. Sub-planes are
numbered here as in the given `Availability`.
"""

from __future__ import annotations

import numpy as np

from matrixlink.forwarding.clos_shape import NONE, Bools, ClosShape, Ints, Ports, Words
from matrixlink.forwarding.element_state import Availability


def nth_set_bit(words: Words, turn: Ints, width: int) -> Ints:
    """The position of the set bit of each word that comes as (turn modulo their count)-th; 0 if none is set."""
    left_to_pass = (turn % np.maximum(np.bitwise_count(words), 1)).astype(np.int8)
    chosen = np.zeros(len(words), np.int64)
    for bit in range(width):
        is_set = (words & np.uint32(1 << bit)) != 0
        chosen[is_set & (left_to_pass == 0)] = bit
        left_to_pass -= is_set
    return chosen


def l1_entries(shape: ClosShape, left: Availability, plane: Ints, source: Ints, target: Ints) -> Ports:
    """A row per (sub-plane, node of the L1 chip, destination node): the port to each endpoint of the destination."""
    words = left.pairs[plane, source, target]
    entries = np.broadcast_to((shape.ends + shape.chip_of_endpoint).astype(np.int8), (len(words), shape.ends)).copy()
    broken = np.flatnonzero(words != (1 << shape.chips) - 1)
    if len(broken):
        few = words[broken]
        spread = (shape.ends + nth_set_bit(few, source[broken] + target[broken], shape.chips)).astype(np.int8)
        spread[few == 0] = NONE
        served_always = int(np.bitwise_and.reduce(few))
        for end, chip in enumerate(shape.chip_of_endpoint.tolist()):
            if not served_always >> chip & 1:
                gone = (few & np.uint32(1 << chip)) == 0
                entries[broken[gone], end] = spread[gone]
    own = source == target
    entries[own] = np.arange(shape.ends)
    if not left.ends.all():
        reached = left.ends[plane, target]
        reached[own] = left.endpoints_alive[plane[own], target[own]]
        entries[~reached] = NONE
    return entries


def l2_ports(shape: ClosShape, left: Availability) -> Ports:
    """[sub-plane, supernode, L2, destination node]: the port towards a node, for all of its endpoints."""
    chips, nodes = shape.chips, shape.nodes
    reached = np.moveaxis(left.cables_alive, 2, 1)  # [p, k, m]
    ports = np.full((len(reached), shape.supernodes, chips, shape.all_nodes), NONE, shape.port_type)
    here = np.arange(shape.all_nodes) % nodes
    if shape.supernodes > 1:
        of_node = np.repeat(np.arange(shape.supernodes), nodes)
        words = left.spines[:, :, None, :] & left.spines[:, None, :, :]  # [p, s, t, k]
        for s in range(shape.supernodes):
            ports[:, s] = _spread_over_spines(
                shape, np.moveaxis(words[:, s][:, of_node], 2, 1), s + of_node + here, here
            )
    for s in range(shape.supernodes):
        own = slice(s * nodes, (s + 1) * nodes)
        ports[:, s, :, own] = np.arange(nodes, dtype=shape.port_type)
    ports[np.broadcast_to(~reached[:, None], ports.shape)] = NONE
    return ports


def _spread_over_spines(shape: ClosShape, words: Words, turn: Ints, here: Ints) -> Ports:
    """[p, k, m] ports of one supernode's L2 chips to third-level chips, from the sets of those that serve."""
    default = here % shape.spines
    ports = np.broadcast_to((shape.nodes + default).astype(shape.port_type), words.shape).copy()
    broken = np.nonzero(((words >> default.astype(np.uint32)) & 1) == 0)
    if len(broken[0]):
        few = words[broken]
        chosen = shape.nodes + nth_set_bit(few, turn[broken[2]], shape.spines)
        ports[broken] = np.where(few == 0, NONE, chosen)
    return ports


def l3_ports(shape: ClosShape, left: Availability) -> Ports:
    """[sub-plane, L2 number, third-level chip, destination node]: the port towards the node's supernode."""
    of_node = np.repeat(np.arange(shape.supernodes), shape.nodes)
    trunks = np.moveaxis(left.trunks_alive, 1, 3)[..., of_node]  # [p, k, j, m]
    reached = trunks & np.moveaxis(left.cables_alive, 2, 1)[:, :, None]
    return np.where(reached, of_node.astype(shape.port_type), shape.port_type(NONE))


def to_endpoints(ports: Ports, ends_alive: Bools) -> Ports:
    """Ports towards nodes [..., m] as ports towards endpoints [..., m, e]: none to an endpoint whose link is lost.
    `endpoints_alive` is [p, m, e], and the first axis of `ports` is the sub-plane."""
    spread = (slice(None), *(None,) * (ports.ndim - 2))
    return np.ascontiguousarray(np.where(ends_alive[spread], ports[..., None], np.int8(NONE)))
