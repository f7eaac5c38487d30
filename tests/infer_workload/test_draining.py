"""Nodes that leave a deployment are drained first: nothing new begins there, what runs finishes, nothing is sent back."""

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.serving.states import SERVING, UNAVAILABLE
from tests.infer_workload.loaded_deployment import LEAVING, NODES, LoadedDeployment, in_flight


def test_what_runs_on_leaving_nodes_finishes_and_nothing_new_begins_there():
    loaded = LoadedDeployment()
    live = loaded.live
    loaded.drain()
    running, newest = live.handover.drain_view(live.engine).requests, live.intake.submitted
    assert running > 0
    assert not live.draining.drained
    while not live.draining.drained:
        loaded.advance(1)
        began_there = [
            request
            for request in live.engine.in_flight.values()
            if request.number > newest and request.die is not None and request.die.node in LEAVING
        ]
        assert began_there == []
    assert live.intake.submitted > newest, "requests continued coming"
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)
    assert live.layout.roles().keys().isdisjoint(LEAVING)
    loaded.show(NODES[:6])
    assert live.draining is None
    loaded.advance(120)
    assert live.state == SERVING
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_without_a_drain_the_same_shrink_requeues_requests():
    loaded = LoadedDeployment()
    loaded.show(NODES[:6])
    assert loaded.live.layout.requeued > 0


def test_at_the_deadline_what_is_left_is_handed_over_and_finishes():
    loaded = LoadedDeployment()
    loaded.drain([node for node, role in loaded.live.layout.roles().items() if role == "decode"][-2:], deadline_s=0.5)
    left = loaded.live.handover.drain_view(loaded.live.engine).requests
    loaded.advance(1, step=0.5)
    assert loaded.live.draining.drained
    assert 0 < loaded.live.layout.requeued <= left
    loaded.live.intake.start_load_generator(None, loaded.now)
    loaded.advance(300)
    assert in_flight(loaded.live) == loaded.live.layout.cut_off == 0


def test_at_the_deadline_prompts_of_leaving_instances_are_handed_over_too():
    loaded = LoadedDeployment()
    loaded.drain(deadline_s=0.5)
    loaded.advance(1, step=0.5)
    assert loaded.live.draining.drained
    assert 0 < loaded.live.layout.requeued <= in_flight(loaded.live)
    loaded.live.intake.start_load_generator(None, loaded.now)
    loaded.advance(300)
    assert in_flight(loaded.live) == loaded.live.layout.cut_off == 0


@pytest.mark.parametrize("after_s", [0, 300])
def test_a_drain_that_is_withdrawn_gives_the_nodes_their_roles_back(after_s):
    loaded = LoadedDeployment()
    before = loaded.live.layout.roles()
    loaded.drain()
    loaded.advance(after_s)
    loaded.live.drain(None, loaded.now)
    loaded.advance(200)
    assert loaded.live.layout.roles().keys() == before.keys()
    assert loaded.live.layout.requeued == loaded.live.layout.cut_off == 0


def test_roles_that_change_are_drained_too():
    """Without four decode nodes a prefill instance would decode: it begins nothing more either."""
    loaded = LoadedDeployment()
    leaving = sorted(node for node, role in loaded.live.layout.roles().items() if role == "decode")[:4]
    loaded.drain(leaving)
    changing = {
        node
        for instance in set(loaded.live.engine.deployment.pools.prefill)
        - set(loaded.live.draining.target(loaded.live.engine.deployment, loaded.live.fabric).prefill)
        for node in instance
    }
    assert changing
    assert not changing & set(leaving)
    loaded.advance(400)
    assert loaded.live.draining.drained
    assert loaded.live.layout.requeued == 0


@pytest.mark.parametrize("nodes", [4, 6, 12, 24])
def test_prompts_are_served_while_every_prefill_instance_leaves(nodes):
    """Decode is drained first; the old instances go on until their successors have loaded. Of four nodes one decodes in
    the end, whose dies have room for short prompts."""
    tokens = 2048 if nodes == 4 else 8192
    loaded = LoadedDeployment(healthy_fabric(nodes).nodes, requests_per_second=0.9 * nodes, input_tokens_max=tokens)
    live = loaded.live
    prefill = [node for node, role in live.layout.roles().items() if role == "prefill"]
    decodes = set(live.engine.deployment.pools.decode)
    loaded.drain(prefill)
    seen = 0
    while not live.draining.drained:
        loaded.advance(1)
        seen = max(seen, live.engine.queued)
        ready = [each for each in live.engine.prefill.instances if each.ready_at <= loaded.now]
        assert ready, "somebody prefills"
    assert seen < 60, "prompts do not wait for the drain's end"
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)
    assert live.layout.roles().keys().isdisjoint(prefill)
    successors = {node for node, role in live.layout.roles().items() if role == "prefill"}
    assert successors
    assert successors < decodes
    loaded.advance(120)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)


def test_other_changes_of_the_fabric_do_not_bring_leaving_nodes_back():
    loaded = LoadedDeployment()
    loaded.drain()
    loaded.advance(300)
    assert loaded.live.draining.drained
    loaded.show(NODES)
    loaded.advance(200)
    assert loaded.live.layout.roles().keys().isdisjoint(LEAVING)
    loaded.show(NODES[1:])
    loaded.advance(200)
    assert loaded.live.layout.roles().keys().isdisjoint(LEAVING)
    assert loaded.live.draining is not None


def test_nodes_that_came_late_are_left_without_having_served():
    loaded = LoadedDeployment(NODES[:6])
    loaded.show(NODES)
    loaded.advance(5)
    loaded.drain()
    assert loaded.live.draining.drained
    loaded.advance(200)
    assert loaded.live.layout.roles().keys() == set(NODES[:6])
    assert loaded.live.layout.requeued == 0


def test_where_what_stays_cannot_serve_everything_finishes_first():
    loaded = LoadedDeployment()
    loaded.drain(NODES[1:])
    loaded.live.intake.start_load_generator(None, loaded.now)
    loaded.advance(300)
    assert loaded.live.draining.drained
    assert in_flight(loaded.live) == 0
    loaded.show(NODES[:1])
    assert loaded.live.state == UNAVAILABLE
    assert loaded.live.layout.cut_off == 0


def test_successors_of_all_nodes_have_the_fabric_and_news_of_it_send_nothing_back():
    """Where everybody leaves, successors stand beside them: what is read there comes to its end on their dies."""
    loaded = LoadedDeployment(NODES[:2], requests_per_second=4.0, input_tokens_max=4096)
    live = loaded.live
    loaded.show(NODES[:4])
    live.apply_spec(DeploymentRequest(instance="i", prefill_npus=8, decode_npus=8), loaded.now)
    loaded.advance(100)
    before = live.engine.deployment.pools.nodes
    loaded.drain(before, 900.0)
    while live.engine.deployment.pools.nodes <= before:
        loaded.advance(1)
    beside = live.engine.deployment
    assert beside.pools.nodes <= set(beside.fabric.nodes), "nodes that it does not have would send and take nothing"
    loaded.advance(5)
    loaded.show(NODES[:4])
    after = live.engine.deployment.pools
    assert (after.prefill, after.decode) == (beside.pools.prefill, beside.pools.decode), (
        "nobody changes places for that"
    )
    while not live.draining.drained:
        loaded.advance(1)
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)
    assert live.engine.deployment.pools.nodes.isdisjoint(before)
