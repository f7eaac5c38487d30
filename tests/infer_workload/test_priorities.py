"""Priorities: earlier ones first, who came first within one, room from later ones, and early rejection by what is ahead."""

import json
from math import inf

import pytest

from infer_workload.contract.deployments import DeploymentRequest, DeploymentShape, ServingObjective
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import FINISHED, InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric, run
from infer_workload.experiments.trial import Trial
from infer_workload.layout.deployment import lay_out
from infer_workload.serving.live.admission import Admission
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import BadTrace, read_trace
from matrixcommon.model.errors import Overloaded

PLACES = 64


def make_engine(spec=None, nodes=6):
    """Decode dies with one place each, 64 in all, unless the spec says otherwise."""
    shape = spec or DeploymentShape(batch_per_npu=2)
    return Engine(lay_out(healthy_fabric(nodes), load_model(), load_calibration(), shape))


def submitted(engine, count, priority=0, tokens_in=2000, tokens_out=300, first=0, blocks=()):
    made = [
        InferenceRequest(first + number, engine.now, tokens_in, tokens_out, blocks, priority=priority)
        for number in range(count)
    ]
    for request in made:
        engine.submit(request)
    return made


def test_earlier_priorities_begin_first_and_within_one_who_came_first():
    engine = make_engine()
    submitted(engine, PLACES, priority=-9)
    waiting = [submitted(engine, 1, priority, first=100 + at)[0] for at, priority in enumerate((3, 0, 3, -1, 0))]
    assert [request.number for request in waiting if request.die is None] == [100, 101, 102, 103, 104]
    engine.advance(inf)
    begun = sorted(waiting, key=lambda request: request.prefill_started_at)
    assert begun[0].number == 103
    turn = [engine_request.number for engine_request in sorted(waiting, key=lambda request: request.queue_key)]
    assert turn == [103, 101, 104, 100, 102]
    assert all(request.state == FINISHED for request in waiting)


def test_the_last_of_the_latest_priority_gives_up_its_room_and_is_computed_again():
    engine = make_engine()
    early = submitted(engine, PLACES // 2, priority=1, tokens_out=800)
    engine.advance(1.0)
    late = submitted(engine, PLACES // 2, priority=2, tokens_out=800, first=100)
    engine.advance(4.0)
    had = {request.number: engine.tokens_of(request) for request in late}
    first_tokens = {request.number: request.first_token_at for request in late}
    urgent = submitted(engine, 1, priority=0, first=200)[0]
    sent_back = [request for request in early + late if request.attempts == 2]
    assert sent_back == [late[-1]]
    assert urgent.die is not None
    assert 1 < had[late[-1].number] < 800
    assert late[-1].prompt == 2000 + had[late[-1].number], "what it had is part of its prompt now"
    engine.advance(inf)
    assert all(request.state == FINISHED for request in (*early, *late, urgent))
    assert all(request.generated == request.output_tokens for request in (*early, *late, urgent))
    assert late[-1].first_token_at == first_tokens[late[-1].number], "no token comes twice"
    assert engine.preemptions == 1
    assert all(die.reserved == die.reserved_tokens == 0 for die in engine.pool.dies)


def test_nobody_gives_up_room_for_its_own_priority():
    engine = make_engine()
    submitted(engine, PLACES, priority=1)
    waits = submitted(engine, 1, priority=1, first=100)[0]
    assert waits.die is None
    engine.advance(inf)
    assert engine.preemptions == 0


def test_a_prompt_overtakes_in_the_queue_but_not_whoever_computes_its_blocks():
    engine = make_engine(DeploymentShape(), nodes=4)
    instance = engine.prefill.instances[0]
    submitted(engine, 1, tokens_in=100_000)
    maker = submitted(engine, 1, priority=5, tokens_in=1024, first=1, blocks=(1, 2))[0]
    other = submitted(engine, 1, priority=5, tokens_in=1024, first=2, blocks=(8, 9))[0]
    counts_on_it = submitted(engine, 1, priority=0, tokens_in=1536, first=3, blocks=(1, 2, 3))[0]
    free = submitted(engine, 1, priority=0, tokens_in=1536, first=4, blocks=(5, 6, 7))[0]
    assert counts_on_it.cached == 1024
    queue = [request for request, _ in instance.queue]
    assert queue.index(maker) < queue.index(counts_on_it) < queue.index(other)
    assert queue.index(free) < queue.index(other)
    engine.advance(inf)
    assert maker.first_token_at <= counts_on_it.first_token_at


OBJECTIVE = ServingObjective(ttft_s=2.0, tpot_s=0.05)


@pytest.mark.parametrize("batch", [2, None])
def test_under_overload_later_priorities_are_refused_first_and_earlier_ones_are_in_time(batch):
    spec = DeploymentRequest(instance="i", objective=OBJECTIVE, batch_per_npu=batch)
    engine, door = make_engine(spec, nodes=4), Admission()
    refused, taken = {0: 0, 1: 0}, {0: [], 1: []}
    for number in range(1500):
        engine.advance(number / 30.0)
        priority = 0 if number % 10 == 0 else 1
        request = InferenceRequest(number, engine.now, 3000, 400, priority=priority)
        try:
            door.check(engine, spec, request)
        except Overloaded:
            refused[priority] += 1
            continue
        taken[priority].append(request)
        engine.submit(request)
    engine.advance(inf)
    assert refused[1] > 100, "it is overloaded"
    assert refused[0] <= 1, "but for one that would make another of its priority late"
    for request in taken[0]:
        assert request.ttft_s <= OBJECTIVE.ttft_s * 1.1
        assert request.attempts == 1
    assert all(request.state == FINISHED for each in taken.values() for request in each)


def test_a_queue_of_later_priorities_does_not_refuse_earlier_ones():
    spec = DeploymentRequest(instance="i", queue_max=3, batch_per_npu=2)
    engine, door = make_engine(spec), Admission()
    submitted(engine, PLACES, priority=-1)
    submitted(engine, 3, priority=7, first=100)

    def asked(priority):
        door.check(engine, spec, InferenceRequest(999, engine.now, 2000, 300, priority=priority))

    asked(0)
    with pytest.raises(Overloaded):
        asked(7)
    submitted(engine, 2, priority=0, first=200)
    asked(0)
    submitted(engine, 1, priority=0, first=300)
    for priority in (0, -1):
        with pytest.raises(Overloaded):
            asked(priority)


def test_a_trace_may_have_priorities(tmp_path):
    lines = [{"timestamp": 0, "input_length": 3000, "output_length": 200, "priority": at % 2} for at in range(100)]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [arrival.priority for arrival in read_trace(path)][:3] == [0, 1, 0]
    served = run(Trial(trace=path, nodes=4, batch=2)).requests
    ttft = {priority: [each.ttft_s for each in served if each.number % 2 == priority] for priority in (0, 1)}
    assert max(ttft[0]) < max(ttft[1])
    path.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1, "priority": "high"}\n')
    with pytest.raises(BadTrace, match="line 1"):
        read_trace(path)


async def test_the_endpoint_hands_on_vllms_field(serving):
    live, seen = serving.app.state.serving.live["r1"], []
    taken, live.submit = (
        live.submit,
        lambda now, request, waited=0.0: seen.append(request) or taken(now, request, waited),
    )
    for given in ({"priority": -4}, {}, {"priority": None}):
        answer = await serving.http.post(
            "/v1/completions", json={"model": "r1", "prompt": "one two", "max_tokens": 3} | given
        )
        assert answer.status_code == 200, answer.text
    assert [request.priority for request in seen] == [-4, 0, 0]
