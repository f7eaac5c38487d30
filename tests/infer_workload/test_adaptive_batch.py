"""The decode batch adapts to a target for the time of a token, whatever is offered, and is no smaller than it has to be."""

import json
from math import inf

import pytest

from infer_workload.contract.deployments import DeploymentRequest, DeploymentShape, ServingObjective
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.engine.scheduler import choose_die
from infer_workload.experiments.experiment import healthy_fabric, lose_decode_node, run
from infer_workload.experiments.trial import Trial
from infer_workload.experiments.validation.published import PUBLISHED
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model


def make_engine(target_s, nodes=4, **shape):
    spec = DeploymentShape(tpot_target_s=target_s, **shape)
    return Engine(lay_out(healthy_fabric(nodes), load_model(), load_calibration(), spec))


def offered(engine, per_second, seconds=40, tokens=(3000, 400)):
    """The longest time of a token, the most that decoded at once, and whether the batch was the largest that would do
    whenever somebody waited."""
    longest, most = 0.0, 0
    for number in range(int(per_second * seconds)):
        engine.advance(number / per_second)
        engine.submit(InferenceRequest(number, engine.now, *tokens))
    while engine.next_event_at() < inf:
        engine.advance(engine.next_event_at())
        timing = engine.pool.timing
        longest = max(longest, engine.pool.step_s / timing.tokens_per_step)
        most = max(most, engine.pool.active)
        if engine.waiting:
            die = choose_die(engine.pool.dies, sum(tokens), engine.deployment.batch_per_die, 1 << 40)
            fullest = max(die.reserved + 1, *(each.reserved for each in engine.pool.dies))
            context = max(die.reserved_tokens + sum(tokens), *(each.reserved_tokens for each in engine.pool.dies))
            within = timing.step_s(fullest, context) <= engine.deployment.tpot_target_s * timing.tokens_per_step
            assert not within or engine.deployment.kv_tokens_per_die < die.reserved_tokens + sum(tokens)
    assert not engine.in_flight
    return longest, most


@pytest.mark.parametrize("per_second", [1.0, 5.0, 40.0])
@pytest.mark.parametrize("target_s", [0.025, 0.045])
def test_no_step_takes_longer_whatever_is_offered(per_second, target_s):
    longest, _ = offered(make_engine(target_s), per_second)
    assert 0 < longest <= target_s * (1 + 1e-9)


def test_the_longer_a_token_may_take_the_more_are_decoded_at_once():
    most = [offered(make_engine(target_s), 40.0)[1] for target_s in (0.0245, 0.03, 0.045)]
    free = offered(make_engine(60.0), 40.0)[1]
    assert most[0] < most[1] < most[2] <= free


def test_the_batches_are_those_of_the_published_objectives_as_the_model_has_them():
    """P: 96, 24 and 8 requests an NPU at 4,096 and 256 tokens take 49.4, 24.6 and 14.9 ms a token. The batch that the
    engine lets in within what the model says of each is that one, less what full answers take."""
    for row in PUBLISHED:
        if row.section == "decode" and "4096/256" in row.name:
            batch = int(row.name.rsplit(" ", 1)[1])
            target_s = row.predicted(load_calibration(), context=4352) / 1e3
            engine = make_engine(target_s, nodes=32, prefill_npus=96, decode_npus=160, context_cache=False)
            for number in range(160 * batch + 160):
                engine.submit(InferenceRequest(number, 0.0, 4096, 256))
            assert len(engine.in_flight) - len(engine.waiting) == 160 * batch


def test_after_a_loss_the_batch_shrinks_until_tokens_are_in_time_again():
    engine = make_engine(0.0195, nodes=8)
    for number in range(1200):
        engine.advance(number / 45.0)
        engine.submit(InferenceRequest(number, engine.now, 2000, 600))
        if number == 600:
            lose_decode_node(engine)
    assert engine.waiting
    engine.advance(50.0)
    engine.sync_counters()
    assert engine.pool.active
    assert engine.pool.step_s <= 0.0195 * engine.pool.timing.tokens_per_step
    engine.advance(inf)
    assert not engine.in_flight


def test_an_impossible_target_still_serves_what_lengthens_no_step():
    engine = make_engine(0.0001)
    for number in range(100):
        engine.submit(InferenceRequest(number, 0.0, 1000, 20))
    assert len(engine.in_flight) - len(engine.waiting) == len(engine.pool.dies), "one on each die"
    engine.submit(InferenceRequest(100, 0.0, 2000, 20))
    engine.advance(inf)
    assert not engine.in_flight


def test_an_objective_is_a_target_and_a_target_of_its_own_goes_before_it():
    objective = ServingObjective(tpot_s=0.04)
    assert DeploymentRequest(instance="i", objective=objective).batch_tpot_s == 0.04
    assert DeploymentRequest(instance="i", objective=objective, tpot_target_s=0.02).batch_tpot_s == 0.02
    assert DeploymentRequest(instance="i").batch_tpot_s is DeploymentShape().batch_tpot_s is None


def test_an_experiment_takes_a_target(tmp_path):
    path = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 20 * at, "input_length": 500, "output_length": 400} for at in range(600)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    free, bounded = (run(Trial(trace=path, nodes=4, tpot_target=target)).report for target in (None, 0.026))
    assert bounded.tpot.p90 < 0.026 * 1.1 < free.tpot.p50, "but for steps with few accepted drafts"
    assert bounded.ttft.p50 > free.ttft.p50, "they wait for it"
