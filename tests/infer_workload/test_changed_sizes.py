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
from tests.infer_workload.loaded_deployment import NODES, LoadedDeployment, sizes

NPUS = 8


def spec(prefill: int, decode: int, **fields) -> DeploymentRequest:
    return DeploymentRequest(instance="i", prefill_npus=NPUS * prefill, decode_npus=NPUS * decode, **fields)


def advance_until_stable(loaded: LoadedDeployment, seconds: float = 900) -> None:
    end = loaded.now + seconds
    while progress(loaded.live)[0] and loaded.now < end:
        loaded.advance(1)
    assert not progress(loaded.live)[0], progress(loaded.live)


@pytest.mark.parametrize("asked", [(6, 6), (2, 10), (8, 4), (2, 6)])
def test_no_request_is_requeued_while_roles_change_for_another_spec(asked):
    loaded = LoadedDeployment()
    live = loaded.live
    assert sizes(live) == (4, 8)
    live.apply_spec(spec(*asked), loaded.now)
    assert sizes(live) == (4, 8), "requests run in the roles that are to change"
    waits, reason, why = progress(live)
    assert (waits, reason) == (True, "RolesChanging")
    assert why.startswith("until 1970-01-01T")
    view = live.handover.role_change_view(live.engine, live.fabric)
    assert set(view.nodes) <= live.engine.deployment.pools.nodes
    assert len(view.nodes) >= max(4 - asked[0], 8 - asked[1])
    assert 0 < view.requests <= view.requests_at_start
    advance_until_stable(loaded)
    assert sizes(live) == asked
    assert live.handover.role_change_view(live.engine, live.fabric) is None
    loaded.advance(120)
    assert (live.state, live.layout.requeued, live.layout.cut_off, live.intake.cancelled) == (SERVING, 0, 0, 0)


def test_at_the_deadline_remaining_requests_are_requeued_and_finish():
    loaded = LoadedDeployment()
    live = loaded.live
    live.intake.start_load_generator(None, loaded.now)
    live.apply_spec(spec(8, 4), loaded.now)
    long = next(request for request in live.engine.in_flight.values() if request.die is not None)
    closed = live.engine.pool.dies
    assert closed
    assert long.done is False
    began = loaded.now
    live.handover.role_change.deadline_at = loaded.now + 0.5
    loaded.advance(1, step=0.5)
    assert loaded.now < began + ROLE_CHANGE_S
    assert sizes(live) == (8, 4)
    assert live.layout.requeued > 0
    loaded.advance(600)
    assert (live.layout.cut_off, len(live.engine.in_flight)) == (0, 0)


def test_a_second_spec_meanwhile_replaces_the_first():
    loaded = LoadedDeployment()
    live = loaded.live
    live.apply_spec(spec(8, 4), loaded.now)
    loaded.advance(2)
    live.apply_spec(spec(2, 10), loaded.now)
    view = live.handover.role_change_view(live.engine, live.fabric)
    assert {live.layout.roles()[node] for node in view.nodes} == {"prefill"}
    advance_until_stable(loaded)
    assert (sizes(live), live.layout.requeued) == ((2, 10), 0)


def test_the_first_spec_again_meanwhile_opens_what_was_closed():
    loaded = LoadedDeployment()
    live = loaded.live
    live.apply_spec(spec(8, 4), loaded.now)
    assert live.engine.placement.count_on_cordoned() > 0
    live.apply_spec(spec(4, 8), loaded.now)
    assert (live.engine.placement.count_on_cordoned(), live.handover.role_change, progress(live)[0]) == (0, None, False)
    loaded.advance(60)
    assert (sizes(live), live.layout.requeued) == ((4, 8), 0)


def test_what_is_no_size_counts_at_once():
    loaded = LoadedDeployment()
    live = loaded.live
    live.apply_spec(spec(8, 4, mtp=False, queue_max=7, cache_gb_per_node=64.0), loaded.now)
    now = live.engine.deployment
    assert (now.drafts, now.cache_gb_per_node, live.spec.queue_max) == (False, 64.0, 7)
    assert (sizes(live), progress(live)[1]) == ((4, 8), "RolesChanging")
    assert now.cache_blocks == int(12 * 64e9 // now.block_bytes)


def test_the_cache_is_as_another_spec_has_it_and_keeps_what_it_can_use():
    loaded = LoadedDeployment()
    live = loaded.live
    live.intake.start_load_generator(None, loaded.now)
    while live.engine.in_flight:
        loaded.advance(1)
    known, asked = len(live.engine.cache), live.engine.cache.counts.blocks_asked
    live.apply_spec(spec(4, 8, cache_eviction="cost", cache_project_share=0.5), loaded.now)
    assert live.engine.cache.immutable_parameters == (512, "cost", 0.5)
    assert len(live.engine.cache) == known > 0
    live.apply_spec(spec(4, 8, block_tokens=128), loaded.now)
    assert (len(live.engine.cache), live.engine.cache.counts.blocks_asked) == (0, asked)
    for blocks in ((1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 13, 14, 15, 16, 17, 18)):
        request = live.submit(loaded.now, InferenceRequest(0, loaded.now, 8 * 128, 2, blocks))
        loaded.advance(30)
    assert request.cached_first == 2 * 128, "two blocks of the size that there are now"


def test_a_spec_that_changes_no_role_changes_nothing_else():
    loaded = LoadedDeployment()
    before = loaded.live.engine.deployment.pools
    loaded.live.apply_spec(spec(4, 8), loaded.now)
    assert progress(loaded.live)[:2] == (False, "Settled")
    assert loaded.live.engine.deployment.pools == before
    assert loaded.live.state == SERVING


def test_larger_sizes_are_served_once_further_nodes_have_loaded():
    loaded = LoadedDeployment(requests_per_second=8.0)
    live = loaded.live
    live.apply_spec(spec(2, 4), loaded.now)
    advance_until_stable(loaded)
    assert sizes(live) == (2, 4)
    before = live.engine.deployment.pools
    live.apply_spec(spec(4, 8), loaded.now)
    assert (sizes(live), live.engine.deployment.pools.nodes) == ((2, 4), before.nodes), "they go on meanwhile"
    assert progress(live)[:2] == (True, "NodesLoading")
    advance_until_stable(loaded)
    assert sizes(live) == (4, 8)
    assert set(before.decode) <= set(live.engine.deployment.pools.decode)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_sizes_set_by_an_autoscaler_override_the_spec():
    loaded = LoadedDeployment()
    live = loaded.live
    live.rescale(PoolScale(4, 8), loaded.now)
    live.apply_spec(spec(8, 4), loaded.now)
    loaded.advance(5)
    assert (sizes(live), progress(live)[0]) == ((4, 8), False)
    live.rescale(None, loaded.now)
    assert progress(live)[:2] == (True, "RolesChanging")
    advance_until_stable(loaded)
    assert (sizes(live), live.layout.requeued) == ((8, 4), 0)


def test_sizes_that_there_are_no_nodes_for_are_refused_and_nothing_changes():
    loaded = LoadedDeployment()
    live, before = loaded.live, loaded.live.spec
    with pytest.raises(DoesNotFit):
        live.apply_spec(spec(8, 8), loaded.now)
    assert (live.spec, live.handover.spec, progress(live)[0]) == (before, before, False)


def test_a_lost_node_changes_no_more_roles_than_it_must_and_its_return_gives_the_sizes_back():
    loaded = LoadedDeployment()
    live = loaded.live
    live.apply_spec(spec(2, 10), loaded.now)
    advance_until_stable(loaded)
    before = live.engine.deployment.pools
    gone = before.decode[3]
    loaded.show([node for node in NODES if node != gone])
    loaded.advance(60)
    assert live.engine.deployment.pools.prefill == before.prefill
    assert set(live.engine.deployment.pools.decode) == set(before.decode) - {gone}
    live.apply_spec(spec(2, 10, queue_max=9), loaded.now)  # the sizes that it has anyway are not refused
    loaded.show(NODES)
    loaded.advance(300)
    assert sizes(live) == (2, 10)


def test_nodes_of_a_spec_with_sizes_drain_while_the_others_serve():
    loaded = LoadedDeployment()
    live = loaded.live
    live.apply_spec(spec(2, 10), loaded.now)
    advance_until_stable(loaded)
    loaded.advance(60)
    loaded.drain(live.engine.deployment.pools.decode[-2:])
    newest = live.intake.submitted
    while not live.draining.drained:
        loaded.advance(1)
    assert live.intake.submitted > newest
    assert (sizes(live), live.layout.requeued) == ((2, 8), 0)


def test_sizes_asked_for_during_a_drain_count_when_it_is_over():
    loaded = LoadedDeployment()
    live = loaded.live
    loaded.drain(live.engine.deployment.pools.decode[-2:])
    live.apply_spec(spec(2, 8), loaded.now)
    assert (sizes(live), progress(live)[1]) == ((4, 8), "RolesChanging")
    advance_until_stable(loaded)
    assert (sizes(live), live.layout.requeued) == ((2, 8), 0)


@pytest.mark.parametrize("lost", [None, 0, 11])
def test_a_process_that_ends_meanwhile_starts_with_the_new_sizes(lost):
    loaded = LoadedDeployment()
    asked = spec(2, 10)
    loaded.live.apply_spec(asked, loaded.now)
    loaded.advance(1)
    written = loaded.live.layout.roles()
    again = LiveDeployment(
        "d", asked, 2, lambda live: None, lambda request: None, previous=pools_of(written, 2)
    )  # from its row: the spec, and the roles that nodes had
    nodes = [node for at, node in enumerate(NODES) if at != lost]
    again.apply_view(Fabric.healthy(nodes, 9), loaded.now)
    again.advance(loaded.now + 200)
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
    loaded = LoadedDeployment(requests_per_second=6.0)
    live, there = loaded.live, list(NODES)
    for kind, value in steps:
        if kind == "spec":
            try:
                live.apply_spec(spec(*value), loaded.now)
            except DoesNotFit:
                assert len(there) < 12 or live.draining is not None
        elif kind == "scale":
            live.rescale(PoolScale(*value), loaded.now)
        elif kind == "unscale":
            live.rescale(None, loaded.now)
        elif kind == "drain":
            loaded.drain(there[-value:])
        elif kind == "undrain":
            live.drain(None, loaded.now)
        elif kind == "lose" and len(there) > 8 and NODES[value] in there:
            there.remove(NODES[value])
            loaded.show(there)
        elif kind == "return":
            there = list(NODES)
            loaded.show(there)
        elif kind == "wait":
            loaded.advance(value)
    loaded.advance_until_stable(900, step=5.0)  # at most past every deadline, and for as long as anything loads
    assert live.state == SERVING
    assert (live.layout.cut_off, live.intake.cancelled, live.handover.pending) == (0, 0, None)
    left = live.draining.nodes if live.draining is not None else frozenset()
    usable = len(set(there) - left)
    assert live.handover.sizes_reached(live.engine)
    assert live.engine.deployment.scale == live.handover.scale
    if live.handover.scale is None and live.spec.prefill_npus is not None:
        asked = live.spec.prefill_npus // NPUS, live.spec.decode_npus // NPUS
        assert sizes(live) == asked if usable >= sum(asked) else sum(sizes(live)) == usable
    else:
        assert set(live.layout.roles()) == set(there) - left, "every node has its role"
    live.intake.start_load_generator(None, loaded.now)
    for _ in range(60):
        if live.engine.in_flight:
            loaded.advance(5, step=5.0)
    assert live.intake.submitted == live.statistics.requests
