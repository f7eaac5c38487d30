"""A picture keeps what comes from unchanged sources, and still is what drawing it all would show."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.console.live.collector import Collector, Event, InstanceState, instance_state
from services.console.live.hardware import FREE, OUT, NodeState
from services.console.live.picture import Picture

SERVICES = ("resource", "link", "compute", "infer", "agents")


def collector() -> Collector:
    clock = SimpleNamespace(scale=1.0, now=lambda: 0.0)
    return Collector(dict.fromkeys(SERVICES), clock)


def node(alert: str) -> NodeState:
    return NodeState("sn0", "c0", 8, OUT if alert else FREE, frozenset(), alert, "")


def instance(trouble: str) -> InstanceState:
    return InstanceState("Active", 1, 1, 8, 0, "", trouble, "")


def event(project: str) -> Event:
    return Event("2026-01-01T00:00:00.000Z", "compute", "a", "Normal", "Created", "made", project)


def view(project: str, name: str) -> dict[str, str]:
    return {"project": project, "name": name}


words, projects = st.sampled_from(["", "its agent is silent"]), st.sampled_from(["", "red", "blue"])
changes = st.one_of(
    st.tuples(st.just("node"), st.sampled_from("ab"), st.none() | words.map(node)),
    st.tuples(st.just("instance"), st.sampled_from("ab"), st.none() | words.map(instance)),
    st.tuples(st.just("event"), st.sampled_from("ab"), st.none() | projects.map(event)),
    st.tuples(st.just("reach"), st.just(""), st.booleans()),
    st.tuples(st.just("planes"), st.just(""), st.integers(0, 2)),
    st.tuples(st.just("capacity"), st.just(""), st.sampled_from(["Open", "Closed"])),
)


def change(collector: Collector, kind: str, name: str, value: object) -> None:
    mirrors = {"node": collector.nodes, "instance": collector.instances, "event": collector.events["compute"]}
    if kind in mirrors:
        mirrors[kind]._set(mirrors[kind].items, view("red" if kind == "instance" else "", name), value, quiet=False)
    elif kind == "reach":
        collector.nodes._set_reachable(bool(value))
    elif kind == "planes":
        collector.update(planes=[{"name": "ub", "linksDown": value, "linksDegraded": 0}])
    else:
        domains = [{"domain": "sn0", "state": value, "largestBlock": 4}]
        collector.update(capacity={"largestBlock": {"all": 4}, "supernodes": domains, "cabinets": []})


@given(frames=st.lists(st.lists(changes, max_size=4), max_size=8), audience=st.sampled_from(["*", "red", "blue"]))
@settings(max_examples=200, deadline=None)
def test_what_is_kept_shows_what_drawing_all_of_it_would(frames, audience):
    of = collector()
    kept = Picture(of, audience)
    for frame in frames:
        for each in frame:
            change(of, *each)
        assert kept.document() == Picture(of, audience).document()


def test_what_did_not_change_is_the_same_object():
    of = collector()
    change(of, "instance", "a", instance(""))
    kept = Picture(of, "*")
    before = kept.document()
    change(of, "node", "a", node(""))
    after = kept.document()
    assert after["instances"] is before["instances"]
    assert after["events"] is before["events"]
    assert after["supernodes"] is not before["supernodes"]


@pytest.mark.parametrize(
    ("state", "trouble"),
    [("Pending", "Released: it holds no nodes"), ("Suspending", ""), ("Suspended", ""), ("Deleting", "")],
)
def test_an_instance_that_is_to_have_no_nodes_needs_no_attention(state: str, trouble: str) -> None:
    scheduled = {
        "type": "Scheduled", "status": "False", "reason": "Released", "message": "it holds no nodes",
        "lastTransitionTime": "",
    }  # fmt: skip
    assert (
        instance_state({"state": state, "nodes": 2, "npus": 0, "updatedAt": "", "conditions": [scheduled]}).trouble
        == trouble
    )
