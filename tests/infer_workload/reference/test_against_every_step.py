"""The engine gives every request the times that a slow engine gives it which takes each step by itself, whatever comes
in between: full dies, priorities, cancellations, lost nodes, roles that change, a batch that adapts."""

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import DECODING, ContextTooLong, InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import DoesNotFit, lay_out
from infer_workload.layout.recovery import plan_change
from infer_workload.layout.scale import PoolScale
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from tests.infer_workload.reference.slow_engine import ReferenceRequest, SlowEngine

SECONDS_APART = 1e-6
"""The two add up the same thousands of steps in another order, a rounding of 1e-12 or so each, and count as moved what
is moved within 1e-9 s; a request that got one step, one chunk or one place more or less is off by milliseconds."""


@dataclass(frozen=True)
class Submit:
    priority: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Cancel:
    which: int


@dataclass(frozen=True)
class Lose:
    which: int


@dataclass(frozen=True)
class Roles:
    prefill: int


def deployment_of(nodes, **shape):
    return lay_out(
        healthy_fabric(nodes), load_model(), load_calibration(), DeploymentShape(context_cache=False, **shape)
    )


class EnginePair:
    """The same calls to both engines; layouts are planned once."""

    def __init__(self, deployment, seed=0):
        self.fast, self.slow = Engine(deployment, seed), SlowEngine(deployment, seed)
        self.asked: list[tuple[InferenceRequest, ReferenceRequest]] = []

    def play(self, events):
        at = 0.0
        for gap, event in events:
            at += gap
            self.fast.advance(at)
            self.slow.advance(at)
            getattr(self, f"_{type(event).__name__.lower()}")(event)
            limit = self.fast.deployment.kv_tokens_per_die
            assert all(die.reserved_tokens <= limit for die in self.fast.pool.dies)
        self.fast.advance(inf)
        self.slow.advance(inf)
        return self

    def _submit(self, event):
        number, at, size = len(self.asked), self.fast.now, (event.tokens_in, event.tokens_out)
        fast = InferenceRequest(number, at, *size, priority=event.priority)
        slow = ReferenceRequest(number, at, *size, event.priority)
        try:
            self.fast.submit(fast)
        except ContextTooLong:
            assert slow.size > self.slow.deployment.context_length
            return
        self.asked.append((fast, slow))
        self.slow.submit(slow)

    def _cancel(self, event):
        if self.asked:
            fast, slow = self.asked[event.which % len(self.asked)]
            assert (fast.number in self.fast.in_flight) == (slow.where not in ("finished", "cancelled", "dropped"))
            if fast.number in self.fast.in_flight:
                self.fast.cancel(fast)
                self.slow.cancel(slow)

    def _lose(self, event):
        nodes = self.fast.deployment.fabric.nodes
        self._change(self.fast.deployment, nodes[event.which % len(nodes)])

    def _roles(self, event):
        nodes = len(self.fast.deployment.fabric.nodes)
        prefill = 1 + event.prefill % (nodes - 1)
        self._change(replace(self.fast.deployment, scale=PoolScale(prefill, nodes - prefill)))

    def _change(self, deployment, *lost):
        try:
            change = plan_change(deployment, deployment.fabric.without(lost))
        except DoesNotFit:
            return
        self.fast.apply_layout(change.deployment, change.pause_s, change.start_s)
        self.slow.apply(change)

    def agree(self):
        for fast, slow in self.asked:
            assert (fast.state == "Cancelled") == (slow.where == "cancelled")
            times = (fast.first_token_at, fast.finished_at)
            expected = (slow.first_token_at, slow.finished_at)
            assert times == pytest.approx(expected, rel=0, abs=SECONDS_APART), fast
            assert fast.generated == slow.generated
        assert not self.fast.in_flight
        assert self.fast.dropped == sum(slow.where == "dropped" for _, slow in self.asked)


def events(*kinds, gaps=st.floats(0, 2), most=40):
    return st.lists(st.tuples(gaps, st.one_of(*kinds)), min_size=1, max_size=most)


def submits(tokens_in=st.integers(1, 9000), tokens_out=st.integers(1, 300), priorities=st.just(0)):
    return st.builds(Submit, priorities, tokens_in, tokens_out)


CLASSES = st.integers(-1, 2)
CANCEL = st.builds(Cancel, st.integers(0, 99))
QUICK = st.one_of(st.just(0.0), st.floats(0, 0.2))


@settings(max_examples=40, deadline=None)
@given(events(submits(tokens_in=st.integers(1, 200_000)), CANCEL), st.booleans(), st.integers(0, 9))
def test_arrivals_and_cancellations(played, mtp, seed):
    EnginePair(deployment_of(4, mtp=mtp), seed).play(played).agree()


@settings(max_examples=40, deadline=None)
@given(
    events(submits(st.integers(500, 4000), st.integers(1, 400), CLASSES), CANCEL, gaps=QUICK, most=60),
    st.booleans(),
    st.sampled_from([2, 4, None]),
)
def test_priorities_where_memory_and_batches_are_full(played, mtp, batch):
    both = EnginePair(deployment_of(2, mtp=mtp, batch_per_npu=batch)).play(played)
    both.agree()


@settings(max_examples=30, deadline=None)
@given(
    events(
        submits(st.integers(1, 30_000), st.integers(1, 300), CLASSES), CANCEL, st.builds(Lose, st.integers(0, 5)),
        st.builds(Roles, st.integers(0, 9)), gaps=st.floats(0, 8),
    ),
    st.booleans(),
)  # fmt: skip
def test_lost_nodes_and_roles_that_change(played, mtp):
    EnginePair(deployment_of(6, mtp=mtp, batch_per_npu=4)).play(played).agree()


@settings(max_examples=30, deadline=None)
@given(
    events(submits(st.integers(1, 6000), st.integers(1, 400), CLASSES), CANCEL, gaps=QUICK, most=60),
    st.floats(0.008, 0.03),
)
def test_a_batch_that_adapts(played, target_s):
    EnginePair(deployment_of(2, mtp=False, tpot_target_s=target_s)).play(played).agree()


def test_the_cases_cover_what_they_are_meant_for():
    """Preemptions, waiting for room, and a batch bounded back: else the comparisons above would say little."""
    crowd = [(0.0, Submit(1, 4000, 400))] * 60
    full = EnginePair(deployment_of(2, batch_per_npu=4)).play([*crowd, (1.0, Submit(0, 4000, 400)), (2.0, Cancel(3))])
    full.agree()
    assert full.fast.preemptions > 0
    bounded = EnginePair(deployment_of(2, mtp=False, tpot_target_s=0.012))
    for event in (Submit(0, 500, 400),) * 60:
        bounded._submit(event)
    assert 0 < len(bounded.fast.waiting) < 60
    while bounded.fast.next_event_at() < inf:
        bounded.fast.advance(bounded.fast.next_event_at())
        assert sum(request.state == DECODING for request, _ in bounded.asked) == bounded.fast.pool.active
