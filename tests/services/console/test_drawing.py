"""The hardware as it is drawn: only what changed is drawn anew, and it is always what drawing it all would show."""

from __future__ import annotations

import copy
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from matrixcommon.api.authorization import EVERY_PROJECT
from services.console.live.drawing import Drawing
from services.console.live.hardware import CHANGING, FREE, OUT, Holding, NodeState
from services.console.live.merge_patch import apply_merge_patch, merge_patch

NODES = [f"sn{at // 4}-c{at // 2 % 2}-n{at % 2}" for at in range(8)]


@st.composite
def node_states(draw):
    return NodeState(
        supernode=draw(st.sampled_from(["sn0", "sn1"])),
        cabinet=draw(st.sampled_from(["c0", "c1"])),
        npus=draw(st.sampled_from([4, 8])),
        letter=draw(st.sampled_from([FREE, FREE, OUT, CHANGING])),
        faulty=draw(st.frozensets(st.integers(0, 7), max_size=2)),
        alert="",
        since="",
    )


@st.composite
def holdings(draw):
    numbers = st.one_of(st.none(), st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple))
    nodes = draw(st.lists(st.tuples(st.sampled_from(NODES), numbers), max_size=3))
    spares = draw(st.frozensets(st.sampled_from(NODES), max_size=2))
    return Holding(tuple(nodes), spares)


changes = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NODES), st.one_of(st.none(), node_states())),
        st.tuples(st.just("allocation"), st.sampled_from(["a", "b", "c"]), st.one_of(st.none(), holdings())),
    ),
    max_size=4,
)


@given(frames=st.lists(changes, max_size=8), audience=st.sampled_from([EVERY_PROJECT, "red", "blue"]))
@settings(max_examples=200, deadline=None)
def test_what_is_kept_shows_what_drawing_all_of_it_would(frames, audience):
    collector = SimpleNamespace(
        nodes=SimpleNamespace(items={}, version=0), allocations=SimpleNamespace(items={}, version=0)
    )
    kept, before = Drawing(collector, audience), {}
    for frame in frames:
        for kind, name, value in frame:
            mirror, project = (collector.nodes, "") if kind == "node" else (collector.allocations, "red")
            if value is None:
                mirror.items.pop((project, name), None)
            else:
                mirror.items[project, name] = value
            mirror.version += 1
        shown, as_it_was = kept.supernodes, copy.deepcopy(kept.supernodes)
        kept.refresh()
        anew = Drawing(collector, audience)
        anew.refresh()
        assert kept.supernodes == anew.supernodes
        assert kept.counts == anew.counts
        assert shown == as_it_was, "the frame before still shows what it showed"
        before = apply_merge_patch(before, merge_patch(before, {"supernodes": kept.supernodes}))
        assert before.get("supernodes", {}) == anew.supernodes


def test_a_change_of_one_node_leaves_the_rest_the_same_object():
    states = {("", node): NodeState(node[:3], node[4:6], 8, FREE, frozenset(), "", "") for node in NODES}
    collector = SimpleNamespace(
        nodes=SimpleNamespace(items=states, version=0), allocations=SimpleNamespace(items={}, version=0)
    )
    drawing = Drawing(collector, EVERY_PROJECT)
    drawing.refresh()
    before = drawing.supernodes
    states["", NODES[0]] = NodeState("sn0", "c0", 8, OUT, frozenset(), "", "")
    collector.nodes.version += 1
    drawing.refresh()
    assert drawing.supernodes["sn1"] is before["sn1"]
    assert drawing.supernodes["sn0"]["cabinets"] is before["sn0"]["cabinets"]
    assert merge_patch(before, drawing.supernodes) == {"sn0": {"states": {NODES[0]: OUT * 8}}}
