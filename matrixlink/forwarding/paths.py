"""From tables to links: the directed links that a piece of traffic uses, and how much of a transfer a sub-plane gets.

A transfer goes from one endpoint to another, endpoints being numbered node * ends + end throughout the plane. It is
divided into one piece per sub-plane; a row here is one piece. A path has the source's link, the cable up and the cable
down, the destination's link, and between supernodes the two trunks in the middle; links it does not need are NONE.
Within a node it only has the first and the last. Without a path the row is all NONE.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matrixlink.forwarding.clos_shape import NONE, ClosShape, Ints, Words
from matrixlink.forwarding.forwarding_tables import ForwardingTables

Paths = NDArray[np.int32]
Floats = NDArray[np.float64]


def table_chips(tables: ForwardingTables, plane: Ints, source: Ints, target: Ints) -> Ints:
    """The L2 number that the source's L1 chip uses towards the target; NONE without an entry; 0 within a node."""
    ends = tables.shape.ends
    node, to_node, end = source // ends, target // ends, target % ends
    port = tables.l1[plane, node, to_node, end].astype(np.int64)
    chip = np.where(port == NONE, NONE, port - ends)
    chip[(node == to_node) & (port != NONE)] = 0
    return chip


def paths(tables: ForwardingTables, plane: Ints, source: Ints, target: Ints, chip: Ints) -> Paths:
    """A row of link numbers per piece that uses L2 number `chip`, which must serve the pair (NONE: no path)."""
    shape, left = tables.shape, tables.left
    node, end = np.divmod(source, shape.ends)
    to_node, to_end = np.divmod(target, shape.ends)
    first = {block: plane * shape.links + start for block, start in shape.link_starts.items()}
    columns = [first["end-up"] + node * shape.ends + end, first["cable-up"] + node * shape.chips + chip]
    if shape.supernodes > 1:
        columns += _trunks(tables, plane, node, to_node, to_end, chip)
    columns.append(first["cable-down"] + to_node * shape.chips + chip)
    columns.append(first["end-down"] + to_node * shape.ends + to_end)
    found = np.stack(columns, 1).astype(np.int32)
    found[node == to_node, 1:-1] = NONE
    found[(chip == NONE) | ~left.ends[plane, node, end] | ~left.ends[plane, to_node, to_end]] = NONE
    return found


def _trunks(
    tables: ForwardingTables, plane: Ints, node: Ints, to_node: Ints, to_end: Ints, chip: Ints
) -> tuple[Ints, Ints]:
    shape = tables.shape
    supernode, to_supernode = node // shape.nodes, to_node // shape.nodes
    spine = tables.l2[plane, supernode, chip, to_node, to_end] - shape.nodes
    far = (supernode != to_supernode) & (chip != NONE)
    both = []
    for block, which in (("trunk-up", supernode), ("trunk-down", to_supernode)):
        trunk = (which * shape.chips + chip) * shape.spines + spine
        both.append(np.where(far, plane * shape.links + shape.link_starts[block] + trunk, NONE))
    return both[0], both[1]


def path_share(found: Paths, link_shares: Floats) -> Floats:
    """The smallest share of its built rate that any link of the path has left; 0 without a path."""
    current = np.append(link_shares, np.inf)[found]  # NONE refers to the last
    least: Floats = current.min(1)
    return np.where(np.isinf(least), 0.0, least)


def even_weight(shape: ClosShape, words: Words) -> Floats:
    """What a sub-plane can carry for a pair, 0 to 1, if its traffic is spread evenly: the share of its L2 chips that
    serve the pair."""
    return np.bitwise_count(words) / shape.chips


def table_weight(shape: ClosShape, words: Words) -> Floats:
    """The same under the rule of the tables, where broken entries are spread in whole numbers: under all-to-all a
    working cable that served `peers` entries serves up to ceil(peers / living) more for every chip that is lost to the
    pair."""
    peers = max(shape.all_nodes - 1, 1)
    living = np.bitwise_count(words).astype(float)
    more = (shape.chips - living) * np.ceil(peers / np.maximum(living, 1))
    return np.where(living > 0, peers / (peers + more), 0.0)
