"""Metrics under vLLM's names mean what vLLM's do: what waits is what nobody has begun to work on, and tokens count when
they are there, whatever becomes of their request."""

from __future__ import annotations

from infer_workload.engine.request import PREFILLING, InferenceRequest
from infer_workload.serving.metrics import _values
from infer_workload.timing.fabric import Fabric
from tests.infer_workload.loaded_deployment import NODES, LoadedDeployment, in_flight

PROMPT, ANSWER = 4000, 400


def asked(requests: int, tokens_in: int = PROMPT) -> tuple[LoadedDeployment, list[InferenceRequest]]:
    """A deployment that serves these alone."""
    loaded = LoadedDeployment()
    loaded.live.intake.start_load_generator(None, loaded.now)
    while in_flight(loaded.live):
        loaded.advance(10)
    return loaded, [
        loaded.live.submit(loaded.now, InferenceRequest(0, loaded.now, tokens_in, ANSWER)) for _ in range(requests)
    ]


def test_what_is_in_the_queue_of_a_prefill_instance_waits() -> None:
    loaded, requests = asked(100, tokens_in=30_000)
    assert not loaded.live.engine.waiting, "there is room for its KV"
    for _ in range(5):
        begun = sum(each.state != PREFILLING or each.prefill_started_at >= 0 for each in requests)
        values = _values(loaded.live)
        assert (values["num_requests_running"], values["num_requests_waiting"]) == (begun, 100 - begun)
        assert 0 < begun < 100
        loaded.advance(1)


def tokens(loaded: LoadedDeployment) -> tuple[float, float]:
    values = _values(loaded.live)
    return values["prompt_tokens"], values["generation_tokens"]


def test_tokens_count_when_they_are_there_whatever_becomes_of_their_request() -> None:
    loaded, requests = asked(120)
    prompts, answers = tokens(loaded)
    before = prompts, answers
    while not any(each.done for each in requests):
        loaded.advance(1)
        there = [loaded.live.tokens_of(each) for each in requests]
        assert tokens(loaded) == (prompts + PROMPT * sum(map(bool, there)), answers + sum(there)) >= before
        before = tokens(loaded)
    unfinished = [each for each in requests if not each.done]
    assert unfinished
    for request in unfinished[::2]:
        loaded.live.cancel(request)
        assert tokens(loaded) == before, "what was generated for whoever went away was generated all the same"
    loaded.live.apply_view(Fabric.healthy(NODES[:1], 9), loaded.now)
    assert loaded.live.engine is None
    assert tokens(loaded) == before
    loaded.show(NODES)
    loaded.advance(120)
    assert tokens(loaded) == before
