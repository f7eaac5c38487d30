"""Random changes of a supernode's graph, for whoever compiles something of it."""

from __future__ import annotations

from hypothesis import strategies as st

from matrixresource.topology import Supernode
from matrixresource.topology.deviations import Deviation
from matrixresource.topology.loading import load_spec
from tests.matrixresource.topology.three_cabinets import three_cabinets

SN = Supernode(spec=load_spec(three_cabinets()))
"""The supernode that is changed: small, since most of what is compiled of it takes as long as it has nodes."""
UPLINKS = [link for link in SN.topology.link_named if ".ub-" in link]
NODES, L2 = list(SN.topology.nodes), [name for name, each in SN.topology.switches.items() if each.kind == "l2"]


@st.composite
def changes(draw):
    """Random changes of a graph: cables dark or drawn elsewhere in their sub-plane, switches and nodes that are gone."""
    found = {}
    for link in draw(st.lists(st.sampled_from(UPLINKS), max_size=6, unique=True)):
        plane = link.partition(".ub-p")[2][0]
        chip = draw(st.none() | st.integers(0, 15))
        peer = None if chip is None else f"l2p{plane}-k{chip:02d}"
        if peer != SN.topology.link_named[link].ends[1]:
            found[link] = Deviation("CableDark" if peer is None else "CableMoved", link, peer)
    for switch in draw(st.lists(st.sampled_from(L2), max_size=2, unique=True)):
        found[switch] = Deviation("SwitchFailed", switch)
    for node in draw(st.lists(st.sampled_from(NODES), max_size=2, unique=True)):
        found[node] = Deviation("NodeAbsent", node)
    return frozenset(found.values())
