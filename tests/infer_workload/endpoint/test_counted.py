"""Metrics under vLLM's names mean what vLLM's do: what waits is what nobody has begun to work on, and tokens count when
they are there, whatever becomes of their request."""

from __future__ import annotations

from infer_workload.engine.request import PREFILLING, InferenceRequest
from infer_workload.serving.metrics import _values
from infer_workload.timing.fabric import Fabric
from tests.infer_workload.loaded import NODES, Stage, in_flight

PROMPT, ANSWER = 4000, 400


def asked(requests: int, tokens_in: int = PROMPT) -> tuple[Stage, list[InferenceRequest]]:
    """A deployment that serves these alone."""
    stage = Stage()
    stage.live.intake.start_load_generator(None, stage.now)
    while in_flight(stage.live):
        stage.plays(10)
    return stage, [
        stage.live.submit(stage.now, InferenceRequest(0, stage.now, tokens_in, ANSWER)) for _ in range(requests)
    ]


def test_what_is_in_the_queue_of_a_prefill_instance_waits() -> None:
    stage, requests = asked(100, tokens_in=30_000)
    assert not stage.live.engine.waiting, "there is room for its KV"
    for _ in range(5):
        begun = sum(each.state != PREFILLING or each.prefill_started_at >= 0 for each in requests)
        values = _values(stage.live)
        assert (values["num_requests_running"], values["num_requests_waiting"]) == (begun, 100 - begun)
        assert 0 < begun < 100
        stage.plays(1)


def tokens(stage: Stage) -> tuple[float, float]:
    values = _values(stage.live)
    return values["prompt_tokens"], values["generation_tokens"]


def test_tokens_count_when_they_are_there_whatever_becomes_of_their_request() -> None:
    stage, requests = asked(120)
    prompts, answers = tokens(stage)
    before = prompts, answers
    while not any(each.done for each in requests):
        stage.plays(1)
        there = [stage.live.tokens_of(each) for each in requests]
        assert tokens(stage) == (prompts + PROMPT * sum(map(bool, there)), answers + sum(there)) >= before
        before = tokens(stage)
    unfinished = [each for each in requests if not each.done]
    assert unfinished
    for request in unfinished[::2]:
        stage.live.cancel(request)
        assert tokens(stage) == before, "what was generated for whoever went away was generated all the same"
    stage.live.take_view(Fabric.healthy(NODES[:1], 9), stage.now)
    assert stage.live.engine is None
    assert tokens(stage) == before
    stage.show(NODES)
    stage.plays(120)
    assert tokens(stage) == before
