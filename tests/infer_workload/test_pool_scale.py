"""Pools of the sizes that an autoscaler asks for: roles change in place, drained first, and no request is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from infer_workload.contract.deployments import ServingObjective
from infer_workload.contract.roles import ScaleRequest
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.scale import PoolScale
from infer_workload.serving.states import IDLE, LOADING, PENDING, SERVING
from infer_workload.serving.status import progress
from matrixcommon.model.errors import Overloaded, Unavailable
from tests.infer_workload.loaded_deployment import NODES, LoadedDeployment, sizes


@pytest.mark.parametrize(
    ("sentence", "scale", "nodes", "now", "split"),
    [
        ("as asked for", (4, 6), 10, (2, 8), (4, 6)),
        ("it has yet to grow: who is there keeps its role", (4, 8), 8, (2, 6), (2, 6)),
        ("and what is over in one role changes", (6, 4), 8, (2, 6), (4, 4)),
        ("it has yet to shrink: what is over stays where it is", (2, 4), 10, (4, 6), (4, 6)),
        ("but for the role that is to be larger", (6, 2), 10, (4, 6), (6, 4)),
        ("new ones that nobody asked for decode", (4, 6), 12, (4, 6), (4, 8)),
        ("half a prefill instance is lost: its other half decodes", (4, 4), 7, (2, 4), (2, 5)),
        ("prefill has lost everybody", (2, 4), 5, (0, 4), (2, 3)),
        ("nobody plays a role yet", (4, 6), 5, (0, 0), (2, 3)),
    ],
)
def test_how_the_nodes_that_there_are_are_split(sentence, scale, nodes, now, split):
    assert PoolScale(*scale).fit(nodes, *now, 2) == split, sentence


SIZES = st.integers(1, 40)


@settings(max_examples=400)
@given(st.integers(1, 20), SIZES, SIZES, SIZES, st.integers(0, 6))
def test_every_node_plays_one_role_and_splitting_again_changes_nothing(instances, decode, was_read, was_decode, lost):
    scale = PoolScale(2 * instances, decode)
    nodes = max(2, was_read + was_decode - lost)
    split = scale.fit(nodes, max(0, was_read - lost), was_decode, 2)
    assert sum(split) == nodes
    assert min(split) >= 1
    again = scale.fit(nodes, *split, 2)
    assert again == scale.fit(nodes, *again, 2)
    if nodes == scale.prefill + scale.decode:
        assert split == (scale.prefill, scale.decode)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prefillNodes": 2, "decodeNodes": 0}, "decodeNodes"),
        ({"prefillNodes": 0, "decodeNodes": 4}, "decodeNodes"),
        ({"prefillNodes": -1, "decodeNodes": 4}, "prefillNodes"),
        ({"prefillNodes": 2, "decodeNodes": 4, "cachingNodes": 7}, "cachingNodes"),
        ({"prefillNodes": 2}, "decodeNodes"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_the_field(body, field):
    with pytest.raises(ValidationError) as refused:
        ScaleRequest.model_validate(body)
    assert refused.value.errors()[0]["loc"] == (field,)


@pytest.mark.parametrize("scale", [(6, 6), (2, 10), (8, 4)])
def test_roles_change_in_place_and_what_runs_in_them_finishes_first(scale):
    loaded = LoadedDeployment()
    live = loaded.live
    assert sizes(live) == (4, 8)
    before = live.engine.deployment.pools
    live.rescale(PoolScale(*scale), loaded.now)
    assert sizes(live) == (4, 8), "requests run in the roles that are to change"
    for _ in range(600):
        if sizes(live) != (4, 8):
            break
        loaded.advance(1)
    assert sizes(live) == scale
    assert (live.layout.requeued, live.layout.cut_off, live.intake.cancelled) == (0, 0, 0)
    after = live.engine.deployment.pools
    stayed = set(before.decode) & set(after.decode)
    assert len(stayed) == min(len(before.decode), len(after.decode)), "nobody else has changed its role"
    loaded.advance(120)
    assert (live.state, live.layout.requeued, live.layout.cut_off) == (SERVING, 0, 0)
    assert live.handover.role_change is None


def test_larger_pools_than_there_are_nodes_for_are_not_called_settled():
    loaded = LoadedDeployment()
    live = loaded.live
    asked = ScaleRequest(prefill_nodes=20, decode_nodes=40)
    live.rescale(PoolScale(20, 40), loaded.now)
    loaded.advance(120)
    assert live.handover.scale_view(asked, live.engine).state == "LacksNodes"
    assert progress(live) == (
        True, "LacksNodes", "12 of 60 requested nodes serving, split as near the request as possible",
    )  # fmt: skip
    live.rescale(PoolScale(6, 6), loaded.now)
    loaded.advance(120)
    asked = ScaleRequest(prefill_nodes=6, decode_nodes=6)
    assert live.handover.scale_view(asked, live.engine).state == "Settled"
    assert progress(live)[:2] == (False, "Settled")


def test_at_the_deadline_they_change_and_requests_go_back_to_the_queue_and_finish():
    loaded = LoadedDeployment()
    loaded.live.rescale(PoolScale(8, 4), loaded.now, deadline_s=2.0)
    loaded.advance(3)
    assert sizes(loaded.live) == (8, 4)
    assert loaded.live.layout.requeued > 0
    assert loaded.live.layout.cut_off == 0


def test_asked_back_before_it_is_over_nothing_changes():
    loaded = LoadedDeployment()
    loaded.live.rescale(PoolScale(8, 4), loaded.now)
    assert loaded.live.engine.placement.count_on_cordoned() > 0
    loaded.live.rescale(PoolScale(4, 8), loaded.now)
    assert loaded.live.engine.placement.count_on_cordoned() == 0
    assert loaded.live.handover.role_change is None
    loaded.advance(60)
    assert sizes(loaded.live) == (4, 8)


def test_nodes_that_come_meanwhile_are_used_in_the_roles_that_were_asked_for():
    loaded = LoadedDeployment(NODES[:8], 10.0)
    live = loaded.live
    before = sizes(live)
    live.rescale(PoolScale(6, 6), loaded.now)
    loaded.show(NODES)
    loaded.advance(200)
    assert before == (2, 6)
    assert sizes(live) == (6, 6)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_a_node_that_comes_takes_no_role_away_before_what_runs_in_it_has_ended():
    loaded = LoadedDeployment(NODES[:11], 20.0)
    live = loaded.live
    assert sizes(live) == (4, 7)
    live.rescale(PoolScale(6, 6), loaded.now)
    assert live.handover.role_change is None, "the roles that there are stay until the twelfth has loaded"
    loaded.show(NODES)
    while live.handover.role_change is None:
        assert sizes(live) == (4, 7)
        loaded.advance(1)
    assert live.handover.role_change.requests_at_start > 0
    assert sizes(live) == (4, 7)
    assert live.handover.scale_view(ScaleRequest(prefill_nodes=6, decode_nodes=6), live.engine).state == "Changing"
    loaded.advance_until_stable(600)
    assert sizes(live) == (6, 6)
    assert (live.state, live.layout.requeued, live.layout.cut_off) == (SERVING, 0, 0)


@pytest.mark.parametrize("lost", ["the one that came", "one that decodes"])
def test_who_is_lost_while_a_role_changes_for_who_came_takes_nobody_else_along(lost):
    loaded = LoadedDeployment(NODES[:11], 20.0)
    live = loaded.live
    live.rescale(PoolScale(6, 6), loaded.now)
    loaded.show(NODES)
    while live.handover.role_change is None:
        loaded.advance(1)
    gone = NODES[11] if lost == "the one that came" else live.engine.deployment.pools.decode[0]
    loaded.show([node for node in NODES if node != gone])
    loaded.advance_until_stable(700)
    assert sum(sizes(live)) == 11
    assert (live.state, live.layout.cut_off, live.handover.role_change) == (SERVING, 0, None)
    loaded.show(NODES)
    loaded.advance_until_stable(700)
    assert sizes(live) == (6, 6)


def test_a_node_that_is_lost_while_roles_change_takes_nobody_else_along():
    loaded = LoadedDeployment()
    live = loaded.live
    live.rescale(PoolScale(6, 6), loaded.now)
    gone = live.engine.deployment.pools.decode[0]
    loaded.show([node for node in NODES if node != gone])
    for _ in range(900):
        loaded.advance(1)
        if live.handover.role_change is None:
            break
    assert sum(sizes(live)) == 11
    assert live.layout.cut_off == 0
    loaded.advance(120)
    assert live.state == SERVING


def test_leaving_nodes_drain_while_the_sizes_change_with_them():
    loaded = LoadedDeployment()
    live = loaded.live
    live.rescale(PoolScale(4, 6), loaded.now)
    assert sizes(live) == (4, 8)
    leaving = live.engine.deployment.pools.decode[-2:]
    loaded.drain(leaving)
    while not live.draining.drained:
        loaded.advance(1)
    assert sizes(live) == (4, 6)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_caching_lends_the_memory_of_as_many_as_are_asked_for():
    loaded = LoadedDeployment()
    whole = loaded.live.engine.deployment.cache_blocks
    loaded.live.rescale(PoolScale(4, 8, 3), loaded.now)
    loaded.advance(5)
    assert len(loaded.live.engine.deployment.pools.caching) == 3
    assert loaded.live.engine.deployment.cache_blocks == whole // 4
    assert (loaded.live.layout.requeued, loaded.live.layout.cut_off) == (0, 0)


def test_scaled_to_zero_it_is_idle_and_comes_back_with_what_is_asked_for():
    loaded = LoadedDeployment()
    live = loaded.live
    live.intake.start_load_generator(None, loaded.now)
    while live.engine.in_flight:
        loaded.advance(1)
    live.rescale(PoolScale(0, 0), loaded.now)
    assert (live.state, live.layout.roles(), live.engine) == (IDLE, {}, None)
    loaded.advance(60)
    loaded.live.apply_view(None, loaded.now)
    assert live.state == IDLE
    live.rescale(PoolScale(2, 4), loaded.now)
    assert (live.state, live.activation.holds_requests(live)) == (PENDING, True)
    loaded.show(NODES[:6])
    assert live.state == LOADING
    loaded.advance(120)
    assert (live.state, sizes(live), live.activation.holds_requests(live)) == (SERVING, (2, 4), False)
    assert live.layout.cut_off == 0


def test_it_is_idle_since_a_request_last_came_was_refused_or_was_given_up():
    """Not since one last finished: a policy would scale it to zero in the moment that its only client goes away."""
    loaded = LoadedDeployment()
    live = loaded.live
    live.intake.start_load_generator(None, loaded.now)
    while live.engine.in_flight:
        loaded.advance(1)
    loaded.advance(300)
    assert live.activation.idle_s(live, loaded.now) >= 300
    request = live.submit(loaded.now, InferenceRequest(0, loaded.now, 100, 20_000))
    loaded.advance(200)
    assert live.activation.idle_s(live, loaded.now) == 0
    live.cancel(request)
    assert live.activation.idle_s(live, loaded.now) == 0
    loaded.advance(60)
    assert live.activation.idle_s(live, loaded.now) == 60
    live.spec = live.spec.model_copy(update={"objective": ServingObjective(ttft_s=1e-6)})
    with pytest.raises(Overloaded):
        live.submit(loaded.now, InferenceRequest(0, loaded.now, 100, 100))
    assert live.activation.idle_s(live, loaded.now) == 0


def test_a_request_that_comes_in_the_moment_that_the_last_nodes_leave_is_refused():
    loaded = LoadedDeployment()
    loaded.live.intake.start_load_generator(None, loaded.now)
    loaded.drain(frozenset(NODES), deadline_s=5.0)
    assert loaded.live.serves
    with pytest.raises(Unavailable, match="is Unavailable"):
        loaded.live.submit(loaded.now + 6, InferenceRequest(0, loaded.now, 100, 100))
