"""Of what a deployment with an objective admits, 99 of 100 are within it, whatever is offered and whatever is short."""

import copy

import pytest

from benchmarks.infer_overload import MIXES, WARM_UP_S, Mix, OverloadResult, offer_load
from infer_workload.contract.deployments import DeploymentRequest, ServingObjective
from infer_workload.ems.context_cache import ContextCache
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.serving.live.admission import Admission
from infer_workload.serving.live.headroom import PRIORITIES_MAX
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from matrixcommon.model.errors import Overloaded

BY_NAME = {mix.name: mix for mix in MIXES}
SECONDS = 35.0
MOST, GOODPUT = 0.99, 0.8

ANSWERS_OF_100 = Mix("decode-bound, answers of 100", (1000, 1500), (60, 200), 48, 16, 130.0, tpot_s=0.03)
"""The benchmark's in small: what it does not begin costs nothing to emulate."""


@pytest.mark.parametrize(
    ("mix", "times", "bursts", "event"),
    [
        (BY_NAME["prefill-bound"], 2.0, False, ""),
        (BY_NAME["prefill-bound"], 4.0, False, ""),
        (BY_NAME["prefill-bound"], 2.0, True, ""),
        (BY_NAME["prefill-bound, 60 % reused"], 2.0, False, ""),
        (BY_NAME["prefill-bound, 60 % reused"], 2.0, False, "neighbour"),
        (BY_NAME["short answers"], 2.0, False, ""),
        (BY_NAME["long context"], 2.0, False, ""),
        (BY_NAME["long context"], 10.0, True, ""),
        (BY_NAME["decode-bound"], 2.0, False, ""),
        (BY_NAME["decode-bound"], 2.0, False, "roles"),
        (BY_NAME["qwen3-235b"], 2.0, False, ""),
        (ANSWERS_OF_100, 2.0, False, ""),
    ],
    ids=lambda value: value.name.replace(" ", "-") if isinstance(value, Mix) else str(value),
)
def test_what_is_admitted_is_in_time(mix, times, bursts, event):
    found = offer_load(mix, times * mix.per_second, SECONDS, bursts=bursts, event=event)
    assert found.refused > 0.1 * len(found.served), "it is overloaded"
    assert found.lost == 0
    assert found.share() >= MOST


@pytest.mark.parametrize(
    "mix", [BY_NAME["prefill-bound"], BY_NAME["long context"], ANSWERS_OF_100], ids=lambda mix: mix.name
)
def test_no_more_is_refused_than_has_to_be(mix):
    capacity = offer_load(mix, mix.per_second, SECONDS, with_admission=False)
    found = offer_load(mix, 2 * mix.per_second, SECONDS)
    assert found.per_second > GOODPUT * capacity.per_second
    assert found.tokens_per_second > GOODPUT * capacity.tokens_per_second


@pytest.mark.parametrize(
    "mix",
    [
        BY_NAME["prefill-bound"],
        BY_NAME["short answers"],
        BY_NAME["long context"],
        BY_NAME["decode-bound"],
        ANSWERS_OF_100,
    ],
    ids=lambda mix: mix.name,
)
def test_admitted_requests_are_in_time_whatever_comes_with_higher_priority(mix):
    found = offer_load(mix, 2 * mix.per_second, SECONDS, urgent=0.2)
    urgent = [each for each in found.served if each.priority < 0]
    assert found.lost == 0
    assert len(urgent) < len(found.served), "some are let in that are not urgent"
    assert found.refused_urgent < 0.1 * len(urgent), "they are refused last"
    assert found.refused > found.refused_urgent, "it is overloaded"
    assert found.share() >= MOST


def test_priorities_that_nobody_uses_any_more_leave_nothing_behind():
    mix = BY_NAME["prefill-bound"]
    engine, door = make_engine(mix), Admission()
    for number in range(200):
        engine.advance(number * 0.1)
        request = InferenceRequest(number, engine.now, 1000, 100, priority=-number)
        door.check(engine, mix.spec, request)
        engine.submit(request)
    assert len(door.headroom) <= PRIORITIES_MAX
    engine.advance(2 * 3600.0)
    door.check(engine, mix.spec, InferenceRequest(10**6, engine.now, 1000, 100))
    assert len(door.headroom) == 1


def test_after_a_loss_no_request_is_admitted_whose_tokens_would_wait_for_ranks():
    mix = Mix("chat", (500, 6000), (20, 600), 24, 32, 35.0)
    found = offer_load(mix, 2 * mix.per_second, SECONDS, event="loss")
    assert found.lost == 0
    assert found.share(WARM_UP_S, SECONDS / 2 - 10) >= MOST
    assert found.share(SECONDS / 2) >= MOST
    assert sum(each.arrived_at > SECONDS / 2 for each in found.served) > 100


def make_engine(mix):
    deployment = lay_out(
        healthy_fabric((mix.prefill_npus + mix.decode_npus) // 8), load_model(), load_calibration(), mix.spec
    )
    return Engine(deployment)


@pytest.mark.parametrize(
    ("mix", "prompt", "answer"),
    [
        (BY_NAME["prefill-bound"], 4000, 200),
        (BY_NAME["long context"], 60_000, 200),
        (BY_NAME["decode-bound"], 1000, 1000),
        (BY_NAME["decode-bound"], 1000, 60),
    ],
    ids=["first-token", "long-prompts", "no-room", "too-slow-for-a-short-answer"],
)
def test_a_retry_at_the_stated_time_is_admitted_if_nobody_came_before(mix, prompt, answer):
    engine, door = make_engine(mix), Admission()
    asked = 0
    fills = 1000 if answer == 60 else answer
    for number in range(20_000):
        engine.advance(number * 0.005)
        fill = InferenceRequest(number, engine.now, prompt, fills * (2 + number * 7 % 13) // 8)
        try:
            door.check(engine, mix.spec, fill)
            engine.submit(fill)
        except Overloaded:
            pass
        if number % 150 or engine.now < 4:
            continue
        mine = InferenceRequest(10**6, engine.now, prompt, answer)
        try:
            door.check(engine, mix.spec, mine)
        except Overloaded as refused:
            later = copy.deepcopy(engine)
            later.advance(later.now + refused.retry_after_s + 1e-6)
            door.check(later, mix.spec, InferenceRequest(10**6, later.now, prompt, answer))
            asked += 1
        if asked == 3:
            return
    pytest.fail("it was never refused")


def test_a_first_token_is_foreseen_to_the_moment():
    mix = BY_NAME["prefill-bound, 60 % reused"]
    found = offer_load(mix, 3 * mix.per_second, 20.0)
    latest = max(each.ttft_s for each in found.served)
    assert mix.ttft_s * 0.9 < latest <= mix.ttft_s + 1e-9, "all of the objective is used, and no more"


def test_a_request_that_has_to_wait_for_a_place_is_judged_by_that_too():
    spec = DeploymentRequest(instance="i", batch_per_npu=2, objective=ServingObjective(ttft_s=1.0))
    engine, door = Engine(lay_out(healthy_fabric(4), load_model(), load_calibration(), spec)), Admission()
    for number in range(64):
        try:
            request = InferenceRequest(number, engine.now, 1000, 3000)
            door.check(engine, spec, request)
            engine.submit(request)
        except Overloaded:
            break
    engine.advance(5.0)
    places = len(engine.in_flight)
    assert 0 < places < 64
    assert not engine.waiting, "none of them has to wait for a minute"


def test_peek_changes_nothing():
    cache = ContextCache(4, 512, ["a"], ssd_capacity=4)
    cache.add_in_flight((1, 2, 3, 4), 7)
    cache.store((1, 2, 3, 4), 7)
    cache.add_in_flight((5, 6), 7)
    before = cache.tier_blocks(), cache.list_stored()
    found = cache.peek((1, 2, 3, 5), 2048)
    assert (cache.tier_blocks(), cache.list_stored()) == before
    assert found == cache.match((1, 2, 3, 5), 2048)
    assert (found.blocks, found.ssd_tokens, found.producer) == (4, 1024, 7)


def test_an_answer_of_one_token_has_no_time_of_a_token():
    found = offer_load(Mix("one", (500, 1000), (1, 1), 8, 16, 30.0), 60.0, 5.0)
    assert isinstance(found, OverloadResult)
    assert found.refused == found.lost == 0
