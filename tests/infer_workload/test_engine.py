"""The engine as a whole: tokens are conserved, nobody is lost or finished twice, a seed repeats a day."""

from itertools import pairwise
from math import ceil, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.engine.decode_pool import DecodeDie, DecodePool
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import CANCELLED, FINISHED, MOVES, SENTENCES, ContextTooLong, InferenceRequest
from infer_workload.experiments.experiment import generate_arrivals, healthy_fabric, replay, run
from infer_workload.experiments.trial import Trial
from infer_workload.layout.deployment import lay_out
from infer_workload.layout.recovery import plan_change, plan_scale_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import BadTrace, generate, read_trace
from tests.services.matrixctl.inprocess import run_matrixctl

MODEL, HOLDING = load_model(), load_calibration()


def deployment(nodes=6, **spec):
    return lay_out(healthy_fabric(nodes), MODEL, HOLDING, DeploymentShape(**spec))


class ObservedEngine:
    """An engine whose finishes and tokens are counted from outside."""

    def __init__(self, nodes=6, seed=0, **spec):
        self.finished: list[InferenceRequest] = []
        self.emitted = 0.0
        self.engine = Engine(
            deployment(nodes, **spec), seed, on_finished=self.finished.append, on_tokens=self.count_tokens
        )

    def count_tokens(self, start, end, tokens):
        assert end >= start
        assert tokens >= 0
        self.emitted += tokens

    def submit(self, number, tokens_in, tokens_out, blocks=()):
        request = InferenceRequest(number, self.engine.now, tokens_in, tokens_out, blocks)
        self.engine.submit(request)
        return request


def test_a_lone_prompt_is_prefilled_moved_and_decoded():
    observed = ObservedEngine()
    request = observed.submit(1, 4096, 256)
    observed.engine.advance(inf)
    assert request.state == FINISHED
    assert observed.finished == [request]
    engine = observed.engine
    prefill = engine.deployment.prefill_timing(0).chunk_s([(4096, 0)])
    assert request.ttft_s == pytest.approx(prefill)
    step = engine.deployment.decode_timing().exact_step_s(1, 4096 + 128)
    transfer = 4096 * 70_272 / 22.5e9
    assert request.tpot_s * 255 == pytest.approx(transfer + step * 255 / 1.7, rel=0.08)


def stepped_by_hand(timing, joins):
    """Finishing times found the long way: one step after another, each as long as its batch and contexts say."""
    waiting, active, now, ends = sorted(joins, key=lambda join: join[0]), [], 0.0, {}
    while waiting or active:
        if not active:
            now = max(now, waiting[0][0])
        while waiting and waiting[0][0] <= now + 1e-12:
            _, number, die, kv, steps = waiting.pop(0)
            active.append([number, die, kv, steps])
        dies = {die for _, die, _, _ in active}
        fullest = max(sum(entry[1] == die for entry in active) for die in dies)
        longest = max(sum(entry[2] for entry in active if entry[1] == die) for die in dies)
        now += timing.exact_step_s(fullest, longest)
        for entry in active:
            entry[2] += timing.tokens_per_step
            entry[3] -= 1
        ends |= {entry[0]: now for entry in active if entry[3] == 0}
        active = [entry for entry in active if entry[3] > 0]
    return ends


@settings(max_examples=15, deadline=None)
@given(
    joins=st.lists(
        st.tuples(st.floats(0, 3), st.integers(0, 3), st.integers(1, 20_000), st.integers(1, 250)),
        min_size=1,
        max_size=25,
    )
)
def test_the_lock_step_pool_agrees_with_a_loop_over_every_step(joins):
    timing = deployment(4, mtp=False).decode_timing()
    dies = [DecodeDie("n", index) for index in range(4)]
    pool = DecodePool(timing, dies, Random(0), lambda start, end, tokens: None)
    found, entries = {}, []
    for number, (at, die, kv, steps) in enumerate(sorted(joins)):
        request = InferenceRequest(number, at, kv, steps + 1)
        request.state, request.generated, request.die = "Transferring", 1, dies[die]
        entries.append((at, number, dies[die], float(kv), steps))
        while pool.due <= at:
            now = pool.due
            found |= {request.number: now for request in pool.run(now)}
        pool.join(request, at)
    while pool.due < inf:
        now = pool.due
        found |= {request.number: now for request in pool.run(now)}
    expected = stepped_by_hand(timing, entries)
    assert found.keys() == expected.keys()
    for number, at in expected.items():
        start = entries[number][0]
        # What joins beside a boundary may wait one step more or less, and a step's time stands for a while: both add up.
        assert found[number] - start == pytest.approx(at - start, abs=0.06 + 0.02 * (at - start))


@settings(max_examples=25, deadline=None)
@given(
    specs=st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 400), st.floats(0, 5)), min_size=1, max_size=40),
    seed=st.integers(0, 99),
)
def test_no_request_is_lost_or_finished_twice(specs, seed):
    observed = ObservedEngine(4, seed)
    for number, (tokens_in, tokens_out, gap) in enumerate(specs):
        observed.engine.advance(observed.engine.now + gap)
        observed.submit(number, tokens_in, tokens_out, tuple(range(ceil(tokens_in / 512))))
    observed.engine.advance(inf)
    assert sorted(request.number for request in observed.finished) == list(range(len(specs)))
    assert not observed.engine.in_flight
    for request in observed.finished:
        assert request.generated == request.output_tokens
        assert request.arrived_at <= request.first_token_at <= request.finished_at
        assert ceil((request.output_tokens - 1) / 2) <= request.end_step - request.start_step <= request.output_tokens
    assert all(die.reserved == die.active == die.reserved_tokens == 0 for die in observed.engine.pool.dies)
    assert all(instance.backlog_tokens == 0 for instance in observed.engine.prefill.instances)


def no_die_has_more_than_its_memory(engine):
    assert all(die.reserved_tokens <= engine.deployment.kv_tokens_per_die for die in engine.pool.dies)


def test_dies_that_have_to_hold_more_experts_keep_as_many_requests_as_there_is_room_for():
    """Of two decode nodes one is lost: the experts of both take most of the memory of the other."""
    observed = ObservedEngine(3)
    engine = observed.engine
    requests = [observed.submit(number, 3000, 1000) for number in range(96)]
    while engine.pool.active < 96:
        engine.advance(engine.next_event_at())
    assert all(die.reserved == 3 for die in engine.pool.dies)
    stays, goes = engine.deployment.pools.decode
    change = plan_change(engine.deployment, engine.deployment.fabric.without([goes]))
    assert 2 * 4000 < change.deployment.kv_tokens_per_die < 3 * 4000
    kept = {request.number: engine.tokens_of(request) for request in requests}
    assert engine.apply_layout(change.deployment, change.pause_s, change.start_s) == 48 + 16
    no_die_has_more_than_its_memory(engine)
    assert [die.reserved for die in engine.pool.dies] == [2] * 16
    assert {die.node for die in engine.pool.dies} == {stays}
    on_each = [sorted(request.number for request in requests if request.die is die) for die in engine.pool.dies]
    assert all(number < 64 for numbers in on_each for number in numbers), "who came last waits again"
    assert all(engine.tokens_of(request) >= kept[request.number] for request in requests)
    engine.advance(inf)
    assert sorted(request.number for request in observed.finished) == list(range(96))


def test_decode_nodes_that_are_to_go_leave_no_more_than_the_others_will_have_room_for():
    """Whoever waits for the end of what is closed finds nobody who would have to be sent back; what is too long for
    dies that hold more experts is served before."""
    observed = ObservedEngine(3)
    engine = observed.engine
    for number in range(96):
        observed.submit(number, 3000, 1000)
    while engine.pool.active < 96:
        engine.advance(engine.next_event_at())
    stays, goes = engine.deployment.pools.decode
    change = plan_change(engine.deployment, engine.deployment.fabric.without([goes]))
    room = change.deployment.kv_tokens_per_die
    assert engine.cordon_outside(change.deployment.pools) == 48 + 16
    later = [observed.submit(100 + number, 3000, 1000) for number in range(20)]
    long = observed.submit(200, room, 500)
    assert {request.state for request in later} == {"Waiting"}, "there would be no room for them"
    while engine.placement.count_on_cordoned():
        engine.advance(engine.next_event_at())
    assert long.state == FINISHED
    assert any(request.die is not None for request in later), "nobody waits until the others are gone"
    assert {die.node for die in engine.pool.dies if die.reserved} == {stays}
    assert engine.apply_layout(change.deployment, change.pause_s, change.start_s) == 0
    no_die_has_more_than_its_memory(engine)
    engine.advance(inf)
    assert len(observed.finished) == 96 + 20 + 1
    assert engine.preemptions == engine.dropped == 0


@settings(max_examples=20, deadline=None)
@given(lost=st.integers(0, 5), moment=st.floats(0.0, 20.0), seed=st.integers(0, 9), back=st.booleans())
def test_a_lost_node_loses_no_request_and_no_token(lost, moment, seed, back):
    observed = ObservedEngine(6, seed)
    engine = observed.engine
    arrivals = generate_arrivals(80, seed, 8.0)
    for number, arrival in enumerate(arrivals):
        if engine.now <= moment < arrival.at_s:
            engine.advance(moment)
            before = {request.number: engine.tokens_of(request) for request in engine.in_flight.values()}
            whole = engine.deployment.fabric
            change = plan_change(engine.deployment, whole.without([whole.nodes[lost]]))
            engine.apply_layout(change.deployment, change.pause_s, change.start_s)
            no_die_has_more_than_its_memory(engine)
            for request in engine.in_flight.values():
                assert engine.tokens_of(request) >= before[request.number]
            if back:
                change = plan_scale_out(engine.deployment, whole)
                engine.apply_layout(change.deployment, change.pause_s, change.start_s)
        engine.advance(arrival.at_s)
        engine.submit(InferenceRequest(number, arrival.at_s, min(arrival.input_tokens, 30_000), arrival.output_tokens))
    engine.advance(inf)
    assert sorted(request.number for request in observed.finished) == list(range(80))
    assert all(request.generated == request.output_tokens for request in observed.finished)
    assert all(die.reserved == die.active == 0 for die in engine.pool.dies)


def test_throughput_dips_at_a_loss_and_recovers():
    observed = ObservedEngine(8)
    engine = observed.engine
    numbers = iter(range(10_000))
    window: list[float] = []
    for second in range(120):
        engine.advance(float(second))
        for _ in range(6):
            observed.submit(next(numbers), 2000, 300)
        if second == 60:
            change = plan_change(
                engine.deployment, engine.deployment.fabric.without([engine.deployment.pools.decode[0]])
            )
            engine.apply_layout(change.deployment, change.pause_s, change.start_s)
        engine.sync_counters()
        window.append(observed.emitted)
    rate = [late - early for early, late in pairwise(window)]
    assert sum(rate[62:69]) < 0.1 * sum(rate[50:57])
    assert sum(rate[100:118]) > 0.9 * sum(rate[40:58])


def test_a_request_no_die_can_hold_is_refused_at_once():
    observed = ObservedEngine(2)
    with pytest.raises(ContextTooLong) as refused:
        observed.submit(1, 100_000, 10)
    assert refused.value.limit == observed.engine.deployment.context_length
    assert not observed.engine.in_flight


def test_a_cancelled_request_frees_its_place():
    observed = ObservedEngine()
    gone, stays = observed.submit(1, 5000, 500), observed.submit(2, 5000, 500)
    observed.engine.advance(2.0)
    observed.engine.cancel(gone)
    observed.engine.advance(inf)
    assert gone.state == CANCELLED
    assert [request.number for request in observed.finished] == [2]
    assert stays.generated == 500


def test_requests_wait_while_every_die_is_full():
    observed = ObservedEngine(4, batch_per_npu=2)
    requests = [observed.submit(number, 100, 50) for number in range(100)]
    assert len(observed.engine.waiting) == 100 - 32
    observed.engine.advance(inf)
    assert all(request.state == FINISHED for request in requests)


def test_the_same_seed_gives_the_same_report():
    trial = Trial(generate=400, nodes=8, seed=5, lose_node_at=30.0)
    assert run(trial).report == run(trial).report != run(trial.with_changes({"seed": 6})).report


def test_more_nodes_serve_faster():
    arrivals = generate_arrivals(300, 1, 20.0)
    small, large = (replay(deployment(nodes), arrivals, "both", 1).report for nodes in (6, 24))
    assert large.ttft.p50 < small.ttft.p50
    assert large.goodput_share > small.goodput_share


def test_every_state_has_a_sentence():
    assert set(MOVES) == set(SENTENCES)
    request = InferenceRequest(1, 0.0, 1, 1)
    with pytest.raises(ValueError, match="cannot change from"):
        request.move(FINISHED)


def test_generated_traffic_has_the_shape_of_the_trace():
    arrivals = generate_arrivals(4000, 11)
    inputs = sorted(arrival.input_tokens for arrival in arrivals)
    outputs = sorted(arrival.output_tokens for arrival in arrivals)
    assert inputs[2000] == pytest.approx(7284, rel=0.1)
    assert inputs[3600] == pytest.approx(27_991, rel=0.1)
    assert outputs[2000] == pytest.approx(356, rel=0.1)
    assert 4000 / arrivals[-1].at_s == pytest.approx(3.27, rel=0.05)
    assert all(len(arrival.blocks) == ceil(arrival.input_tokens / 512) for arrival in arrivals)
    report = run(Trial(generate=4000, seed=11)).report
    assert report.cache_hit_rate_blocks == pytest.approx(0.35, abs=0.05)


def test_generated_prompts_share_prefixes_only():
    at: dict[int, set[int]] = {}
    for arrival in generate_arrivals(500, 2):
        assert len(set(arrival.blocks)) == len(arrival.blocks)
        for place, block in enumerate(arrival.blocks):
            at.setdefault(block, set()).add(place)
    assert all(len(places) == 1 for places in at.values())
    endless = generate(2)
    assert next(endless) == generate_arrivals(1, 2)[0]


def test_a_trace_is_read_and_its_batches_are_spread(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 2]}\n\n'
        '{"timestamp": 3000, "input_length": 10, "output_length": 1, "hash_ids": [0]}\n'
    )
    assert [arrival.at_s for arrival in read_trace(path)] == [0.0, 1.5, 3.0]
    assert run(Trial(trace=path, nodes=4)).report.finished == 3


@pytest.mark.parametrize(
    "text",
    ["", "nonsense\n", '{"timestamp": 0}\n', '{"timestamp": 0, "input_length": 0, "output_length": 1}\n', "[]\n"],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path, text):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(BadTrace):
        read_trace(path)


def test_the_command_prints_a_report(capsys, tmp_path):
    code, out, _ = run_matrixctl(
        capsys, "experiment", "run", "--generate", "50", "--nodes", "4", "--no-cache", "--no-mtp"
    )
    assert code == 0
    assert "TTFT" in out
    assert "hit rate 0.0000" in out
    assert run_matrixctl(capsys, "experiment", "run", "--generate", "50", "--nodes", "1")[0] == 1
    code, _, text = run_matrixctl(capsys, "experiment", "run", "--generate", "50", "--prefill", "5")
    assert (code, "multiple of 8" in text) == (2, True)
    assert run_matrixctl(capsys, "experiment", "run", "--trace", str(tmp_path / "none.jsonl"))[0] == 2


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("root:x:0:0", "line 1 is not JSON: unexpected character"),
        ('{"timestamp": 0, "input_length": 5}', "line 1 is not a trace request: 'output_length' is missing"),
        ('{"timestamp": "soon", "input_length": 5, "output_length": 1}', "timestamp is not a number: 'soon'"),
        ("[]", "line 1 is not a trace request"),
    ],
)
def test_a_line_that_is_no_request_is_told_in_words(capsys, tmp_path, line, shown):
    (tmp_path / "trace.jsonl").write_text(line + "\n")
    code, _, err = run_matrixctl(capsys, "experiment", "run", "--trace", str(tmp_path / "trace.jsonl"))
    assert (code, shown in err, "Error(" in err, "[field --trace]" in err) == (2, True, False, True), err
    err = run_matrixctl(capsys, "experiment", "run", "--trace", str(tmp_path))[2]
    assert ("Is a directory" in err, "Errno" in err) == (True, False)
