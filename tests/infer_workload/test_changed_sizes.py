"""A spec with other sizes of its pools: roles change as they do for a scale, drained first, and no request is sent back
before the deadline. What else the spec says counts at once."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import DoesNotFit
from infer_workload.layout.scale import ROLE_CHANGE_S, PoolScale
from infer_workload.layout.views import pools_of
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import SERVING
from infer_workload.serving.status import progress
from infer_workload.timing.fabric import Fabric
from tests.infer_workload.loaded import NODES, Stage, sizes

NPUS = 8


def spec(prefill: int, decode: int, **fields) -> DeploymentRequest:
    return DeploymentRequest(instance="i", prefill_npus=NPUS * prefill, decode_npus=NPUS * decode, **fields)


def settles(stage: Stage, seconds: float = 900) -> None:
    end = stage.now + seconds
    while progress(stage.live)[0] and stage.now < end:
        stage.plays(1)
    assert not progress(stage.live)[0], progress(stage.live)


@pytest.mark.parametrize("asked", [(6, 6), (2, 10), (8, 4), (2, 6)])
def test_nothing_is_sent_back_while_roles_change_for_another_spec(asked):
    stage = Stage()
    live = stage.live
    assert sizes(live) == (4, 8)
    live.reshape(spec(*asked), stage.now)
    assert sizes(live) == (4, 8), "requests run in the roles that are to change"
    waits, reason, why = progress(live)
    assert (waits, reason) == (True, "RolesChanging")
    assert why.startswith("until 1970-01-01T")
    view = live.handover.role_change_view(live.engine, live.fabric)
    assert set(view.nodes) <= live.engine.deployment.pools.nodes
    assert len(view.nodes) >= max(4 - asked[0], 8 - asked[1])
    assert 0 < view.requests <= view.requests_at_start
    settles(stage)
    assert sizes(live) == asked
    assert live.handover.role_change_view(live.engine, live.fabric) is None
    stage.plays(120)
    assert (live.state, live.layout.requeued, live.layout.cut_off, live.intake.cancelled) == (SERVING, 0, 0, 0)


def test_at_the_deadline_what_is_left_goes_back_to_the_queue_and_finishes():
    stage = Stage()
    live = stage.live
    live.intake.start_load_generator(None, stage.now)
    live.reshape(spec(8, 4), stage.now)
    long = next(request for request in live.engine.in_flight.values() if request.die is not None)
    closed = live.engine.pool.dies
    assert closed
    assert long.done is False
    began = stage.now
    live.handover.role_change.deadline_at = stage.now + 0.5
    stage.plays(1, step=0.5)
    assert stage.now < began + ROLE_CHANGE_S
    assert sizes(live) == (8, 4)
    assert live.layout.requeued > 0
    stage.plays(600)
    assert (live.layout.cut_off, len(live.engine.in_flight)) == (0, 0)


def test_a_second_spec_meanwhile_replaces_the_first():
    stage = Stage()
    live = stage.live
    live.reshape(spec(8, 4), stage.now)
    stage.plays(2)
    live.reshape(spec(2, 10), stage.now)
    view = live.handover.role_change_view(live.engine, live.fabric)
    assert {live.layout.roles()[node] for node in view.nodes} == {"prefill"}
    settles(stage)
    assert (sizes(live), live.layout.requeued) == ((2, 10), 0)


def test_the_first_spec_again_meanwhile_opens_what_was_closed():
    stage = Stage()
    live = stage.live
    live.reshape(spec(8, 4), stage.now)
    assert live.engine.placement.count_on_cordoned() > 0
    live.reshape(spec(4, 8), stage.now)
    assert (live.engine.placement.count_on_cordoned(), live.handover.role_change, progress(live)[0]) == (0, None, False)
    stage.plays(60)
    assert (sizes(live), live.layout.requeued) == ((4, 8), 0)


def test_what_is_no_size_counts_at_once():
    stage = Stage()
    live = stage.live
    live.reshape(spec(8, 4, mtp=False, queue_max=7, cache_gb_per_node=64.0), stage.now)
    now = live.engine.deployment
    assert (now.drafts, now.cache_gb_per_node, live.spec.queue_max) == (False, 64.0, 7)
    assert (sizes(live), progress(live)[1]) == ((4, 8), "RolesChanging")
    assert now.cache_blocks == int(12 * 64e9 // now.block_bytes)


def test_the_cache_is_as_another_spec_has_it_and_keeps_what_it_can_use():
    stage = Stage()
    live = stage.live
    live.intake.start_load_generator(None, stage.now)
    while live.engine.in_flight:
        stage.plays(1)
    known, asked = len(live.engine.cache), live.engine.cache.counts.blocks_asked
    live.reshape(spec(4, 8, cache_eviction="cost", cache_project_share=0.5), stage.now)
    assert live.engine.cache.immutable_parameters == (512, "cost", 0.5)
    assert len(live.engine.cache) == known > 0
    live.reshape(spec(4, 8, block_tokens=128), stage.now)
    assert (len(live.engine.cache), live.engine.cache.counts.blocks_asked) == (0, asked)
    for blocks in ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 13, 14, 15, 16, 17, 18)):
        request = live.submit(stage.now, InferenceRequest(0, stage.now, 8 * 128, 2, blocks))
        stage.plays(30)
    assert request.cached_first == 2 * 128, "two blocks of the size that there are now"


def test_a_spec_that_changes_no_role_changes_nothing_else():
    stage = Stage()
    before = stage.live.engine.deployment.pools
    stage.live.reshape(spec(4, 8), stage.now)
    assert progress(stage.live)[:2] == (False, "Settled")
    assert stage.live.engine.deployment.pools == before
    assert stage.live.state == SERVING


def test_larger_sizes_are_served_once_further_nodes_have_loaded():
    stage = Stage(requests_per_second=8.0)
    live = stage.live
    live.reshape(spec(2, 4), stage.now)
    settles(stage)
    assert sizes(live) == (2, 4)
    before = live.engine.deployment.pools
    live.reshape(spec(4, 8), stage.now)
    assert (sizes(live), live.engine.deployment.pools.nodes) == ((2, 4), before.nodes), "they go on meanwhile"
    assert progress(live)[:2] == (True, "NodesLoading")
    settles(stage)
    assert sizes(live) == (4, 8)
    assert set(before.decode) <= set(live.engine.deployment.pools.decode)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_an_autoscaler_that_has_a_say_keeps_it():
    stage = Stage()
    live = stage.live
    live.rescale(PoolScale(4, 8), stage.now)
    live.reshape(spec(8, 4), stage.now)
    stage.plays(5)
    assert (sizes(live), progress(live)[0]) == ((4, 8), False)
    live.rescale(None, stage.now)
    assert progress(live)[:2] == (True, "RolesChanging")
    settles(stage)
    assert (sizes(live), live.layout.requeued) == ((8, 4), 0)


def test_sizes_that_there_are_no_nodes_for_are_refused_and_nothing_changes():
    stage = Stage()
    live, before = stage.live, stage.live.spec
    with pytest.raises(DoesNotFit):
        live.reshape(spec(8, 8), stage.now)
    assert (live.spec, live.handover.spec, progress(live)[0]) == (before, before, False)


def test_a_lost_node_changes_no_more_roles_than_it_must_and_its_return_gives_the_sizes_back():
    stage = Stage()
    live = stage.live
    live.reshape(spec(2, 10), stage.now)
    settles(stage)
    before = live.engine.deployment.pools
    gone = before.decode[3]
    stage.show([node for node in NODES if node != gone])
    stage.plays(60)
    assert live.engine.deployment.pools.prefill == before.prefill
    assert set(live.engine.deployment.pools.decode) == set(before.decode) - {gone}
    live.reshape(spec(2, 10, queue_max=9), stage.now)  # the sizes that it has anyway are not refused
    stage.show(NODES)
    stage.plays(300)
    assert sizes(live) == (2, 10)


def test_nodes_of_a_spec_with_sizes_drain_while_the_others_serve():
    stage = Stage()
    live = stage.live
    live.reshape(spec(2, 10), stage.now)
    settles(stage)
    stage.plays(60)
    stage.drain(live.engine.deployment.pools.decode[-2:])
    newest = live.intake.submitted
    while not live.draining.drained:
        stage.plays(1)
    assert live.intake.submitted > newest
    assert (sizes(live), live.layout.requeued) == ((2, 8), 0)


def test_sizes_asked_for_during_a_drain_count_when_it_is_over():
    stage = Stage()
    live = stage.live
    stage.drain(live.engine.deployment.pools.decode[-2:])
    live.reshape(spec(2, 8), stage.now)
    assert (sizes(live), progress(live)[1]) == ((4, 8), "RolesChanging")
    settles(stage)
    assert (sizes(live), live.layout.requeued) == ((2, 8), 0)


@pytest.mark.parametrize("lost", [None, 0, 11])
def test_a_process_that_ends_meanwhile_starts_with_the_new_sizes(lost):
    stage = Stage()
    asked = spec(2, 10)
    stage.live.reshape(asked, stage.now)
    stage.plays(1)
    written = stage.live.layout.roles()
    again = LiveDeployment(
        "d", asked, 2, lambda live: None, lambda request: None, previous=pools_of(written, 2)
    )  # from its row: the spec, and the roles that nodes had
    nodes = [node for at, node in enumerate(NODES) if at != lost]
    again.take_view(Fabric.healthy(nodes, 9), stage.now)
    again.play(stage.now + 200)
    assert again.state == SERVING
    assert sizes(again) == ((2, 10) if lost is None else (2, 9))
    assert progress(again)[0] is False
    kept = {node for node, role in written.items() if role == "decode"} & set(nodes)
    assert kept <= set(again.engine.deployment.pools.decode), "who decoded goes on"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spec"), st.sampled_from([(2, 6), (4, 4), (4, 8), (6, 6), (8, 4), (2, 10), (1, 3)])),
        st.tuples(st.just("scale"), st.sampled_from([(2, 6), (4, 4), (4, 8), (6, 6), (8, 4), (2, 10), (1, 3)])),
        st.tuples(st.just("unscale"), st.none()),
        st.tuples(st.just("drain"), st.integers(1, 4)),
        st.tuples(st.just("undrain"), st.none()),
        st.tuples(st.just("lose"), st.integers(0, 11)),
        st.tuples(st.just("return"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 90])),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=24, deadline=None)
@given(STEPS)
@example([("drain", 3), ("spec", (6, 6)), ("undrain", None), ("spec", (2, 6)), ("scale", (8, 4))])
def test_whatever_comes_together_no_request_is_lost_and_the_sizes_come_in_the_end(steps):
    stage = Stage(requests_per_second=6.0)
    live, there = stage.live, list(NODES)
    for kind, value in steps:
        if kind == "spec":
            try:
                live.reshape(spec(*value), stage.now)
            except DoesNotFit:
                assert len(there) < 12 or live.draining is not None
        elif kind == "scale":
            live.rescale(PoolScale(*value), stage.now)
        elif kind == "unscale":
            live.rescale(None, stage.now)
        elif kind == "drain":
            stage.drain(there[-value:])
        elif kind == "undrain":
            live.drain(None, stage.now)
        elif kind == "lose" and len(there) > 8 and NODES[value] in there:
            there.remove(NODES[value])
            stage.show(there)
        elif kind == "return":
            there = list(NODES)
            stage.show(there)
        elif kind == "wait":
            stage.plays(value)
    stage.settles(900, step=5.0)  # at most past every deadline, and for as long as anything loads
    assert live.state == SERVING
    assert (live.layout.cut_off, live.intake.cancelled, live.handover.pending) == (0, 0, None)
    left = live.draining.nodes if live.draining is not None else frozenset()
    usable = len(set(there) - left)
    assert live.handover.settled(live.engine)
    assert live.engine.deployment.scale == live.handover.scale
    if live.handover.scale is None and live.spec.prefill_npus is not None:
        asked = live.spec.prefill_npus // NPUS, live.spec.decode_npus // NPUS
        assert sizes(live) == asked if usable >= sum(asked) else sum(sizes(live)) == usable
    else:
        assert set(live.layout.roles()) == set(there) - left, "every node has its role"
    live.intake.start_load_generator(None, stage.now)
    for _ in range(60):
        if live.engine.in_flight:
            stage.plays(5, step=5.0)
    assert live.intake.submitted == live.statistics.requests
