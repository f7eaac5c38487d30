"""New nodes serve once they have booted and loaded; a load that takes over from another brings prompts of its own."""

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.live.load_generator import BuiltInLoad
from infer_workload.serving.states import SERVING
from infer_workload.timing.fabric import Fabric

NODES = healthy_fabric(12).nodes


def test_nodes_that_boot_serve_nobody_yet():
    live = LiveDeployment("d", DeploymentRequest(instance="i"), 1, lambda live: None, lambda request: None)
    old, now = frozenset(NODES[:6]), 1000.0
    live.apply_view(Fabric.healthy(old, 1), now, old)
    live.advance(now + 100)
    assert live.state == SERVING
    now += 200
    live.apply_view(Fabric.healthy(NODES, 2), now, old)
    live.advance(now + 500)
    assert live.layout.roles().keys() == old, "they are in the fabric, and have not booted"
    now += 600
    up = old | set(NODES[6:10])
    live.apply_view(Fabric.healthy(NODES, 2), now, up)
    live.advance(now + 5)
    assert live.layout.roles().keys() == old, "they have booted, and the model is not loaded"
    live.advance(now + 200)
    assert live.layout.roles().keys() == up
    live.apply_view(Fabric.healthy(NODES, 2), now + 300, frozenset(NODES))
    live.advance(now + 600)
    assert live.layout.roles().keys() == set(NODES)


def test_a_load_that_takes_over_repeats_no_prompt_of_the_one_before():
    first = BuiltInLoad(LoadRequest(requests_per_second=5.0, seed=7), 0.0)
    blocks = {block for arrival in iter(lambda: first.pop_due(60.0), None) for block in arrival.blocks}
    second = BuiltInLoad(LoadRequest(requests_per_second=15.0, seed=7), 60.0, first)
    again = {block for arrival in iter(lambda: second.pop_due(120.0), None) for block in arrival.blocks}
    assert len(blocks) > 100 < len(again)
    assert blocks & again == {0}, "the system prompt alone"


def test_built_in_load_finds_as_much_in_a_cache_of_smaller_blocks():
    rates = []
    for size in (512, 128):
        spec, now = DeploymentRequest(instance="i", block_tokens=size), 1000.0
        live = LiveDeployment("d", spec, 1, lambda live: None, lambda request: None)
        live.apply_view(Fabric.healthy(NODES, 1), now)
        live.advance(now + 100)
        live.intake.start_load_generator(LoadRequest(requests_per_second=5.0, seed=7), now + 100)
        while not live.advance(now + 200):
            pass
        rates.append(live.engine.cache.counts.token_hit_rate)
    assert rates[1] == pytest.approx(rates[0], rel=0.03)
