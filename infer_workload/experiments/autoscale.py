"""Simulate a scaling policy over a trace, open loop, before it is applied: its cost, and how many requests it delays.

The decisions are MatrixCompute's own `recommend`, every fifteen seconds, with the state it keeps between them. Its
input is the signal that a deployment reports (`serving/work.py`): arriving and queued work, in nodes of the instance.
Between decisions the model is a fluid one: all serving nodes read prompts first come, first served; an answer occupies
its place for as long as its tokens take at the objective. An added node serves after the start time (boot and model
load) and costs from its first second; a removed one costs until an answer on it has ended. The work of a request comes
from the timing of the model laid out on the policy's maximum number of nodes. Pools keep their ratio unless the policy
sizes them: then each has its own work, and nodes change their role once their requests have finished.

Not modelled: the placement of requests on nodes, the latency of single steps, transfers, and node failures.
`benchmarks/` simulates pools by themselves; a stack shows the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from infer_workload.experiments.autoscale_nodes import Nodes, Work, work_on
from infer_workload.serving.work import ANSWER_RATE_WINDOW_S
from infer_workload.traffic.generator import Arrival
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import validation_message
from matrixcompute.autoscaling.behavior import round_to_blocks
from matrixcompute.autoscaling.decision import TICK_S, Observation, recommend, state_after_scaling
from matrixcompute.autoscaling.node_waits import emulated_boot_s
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, recommend_pools, state_after_pool_scaling

NODES_MAX = 48
"""One supernode, the largest that a model is laid out on."""
TRACE_START = 1_767_571_200.0
"""Default start of a trace, Unix time in seconds: a Monday, midnight UTC, for schedules."""
BLOCK_TOKENS = 512
DAYS_MAX = 90
"""The longest trace: every second of it is simulated."""


@dataclass(frozen=True)
class Outcome:
    """The result of a policy. Shares are of all requests; `wait_p90_s` is the wait before prefill, in seconds."""

    node_hours: float
    within_ttft: float
    within_tpot: float
    wait_p90_s: float
    changes: int
    nodes_least: int
    nodes_most: int
    requests: int
    seconds: float
    sizes: tuple[tuple[float, int, str], ...] = ()
    """Each change: its time (seconds of the trace), the number of nodes, and the reason."""


class Trace:
    """The arrivals of a trace as arrays, prompts less what an unbounded context cache would hold of them."""

    def __init__(self, arrivals: Sequence[Arrival], source: str = "--trace") -> None:
        """`source`: the option they came from, for errors. Raises InvalidField."""
        if not arrivals:
            raise InvalidField("has no requests", field=source)
        days = (arrivals[-1].at_s - arrivals[0].at_s) / 86_400
        if days > DAYS_MAX:
            raise InvalidField(f"must span at most {DAYS_MAX} days, not {days:,.0f}", field=source)
        self.at = np.array([each.at_s for each in arrivals])
        self.at -= self.at[0]
        self.new = np.array(list(_uncached(arrivals)), dtype=float)
        self.prompt = np.array([each.input_tokens for each in arrivals], dtype=float)
        self.answer = np.array([each.output_tokens for each in arrivals], dtype=float)

    def with_swing(self, swing: float, period_s: float) -> Trace:
        """The same requests, closer together in the middle of each period and further apart at its ends: the rate
        varies between `1 - swing` and `1 + swing` times its mean. Raises InvalidField."""
        if not 0 <= swing < 1:
            raise InvalidField("must be at least 0 and less than 1", field="--swing")
        if period_s <= 0:
            raise InvalidField("must be more than 0 s", field="--period")
        grid = np.linspace(0.0, float(self.at[-1]) + period_s, max(1000, int(self.at[-1])))
        turn = 2 * np.pi * grid / period_s
        found = copy(self)
        found.at = np.interp(self.at, grid - swing * np.sin(turn) * period_s / (2 * np.pi), grid)
        found.at -= found.at[0]
        return found

    @property
    def context(self) -> int:
        """Mean context of an answer, in tokens: its prompt and half of itself."""
        return max(1, round(float(self.prompt.mean() + self.answer.mean() / 2)))


def _uncached(arrivals: Sequence[Arrival]) -> list[int]:
    known: set[int] = set()
    found = []
    for each in arrivals:
        hits = 0
        for block in each.blocks:
            if block not in known:
                break
            hits += 1
        known.update(each.blocks)
        found.append(max(1, each.input_tokens - hits * BLOCK_TOKENS))
    return found


def simulate(
    trace: Trace, policy: ScalingPolicySpec, *, ttft_s: float, tpot_s: float, start_s: float | None = None,
    trace_start: float = TRACE_START, layout_nodes: int | None = None,
) -> Outcome:  # fmt: skip
    """Simulate the policy over the trace, starting with `minReplicas` nodes. Raises InvalidField for policy features
    that a trace cannot exercise.

    `layout_nodes`: the nodes of the layout from which the cost of a request is taken, for all sizes alike; by default
    `maxReplicas`. Outcomes that are compared have to have the same."""
    check_supported(policy)
    work = work_on(layout_nodes or policy.max_replicas, trace.context, tpot_s)
    load = OfferedLoad(trace, work, tpot_s, pooled=policy.pools is not None)
    start_s = emulated_boot_s() + work.start_s if start_s is None else start_s
    least = max(policy.min_replicas, work.nodes_min)
    prefill = decode = Nodes(least)
    if policy.pools is not None:
        first = max(
            work.prefill_instance_nodes, round_to_blocks(policy.pools.prefill.min_replicas, work.prefill_instance_nodes)
        )
        others = max(work.decode_nodes_min, policy.pools.decode.min_replicas, least - first)
        prefill, decode = Nodes(first), Nodes(others)
    pools = [prefill] if policy.pools is None else [prefill, decode]
    state, sizes = ScalingState(), [(0.0, sum(each.members for each in pools), "")]
    reach = np.zeros(load.seconds + 1)
    reading, answering = np.zeros(load.seconds, dtype=int), np.zeros(load.seconds, dtype=int)
    for second in range(load.seconds):
        if second and second % TICK_S == 0:
            now = trace_start + second
            seen = load.observe(second, float(reach[second]), prefill, decode, start_s, least)
            if isinstance(seen, PoolsObservation):
                found = recommend_pools(seen, policy, state, now)
                assert found.pools is not None
                state = state_after_pool_scaling(found.state, policy, seen.sizes, found.pools, now)
                _change_roles(prefill, decode, found.pools, second, work.switch_s, load.stays_s)
                prefill.resize(found.pools.prefill, second, start_s, 0.0)
                decode.resize(found.pools.decode, second, start_s, load.stays_s)
            else:
                found = recommend(seen, policy, state, now)
                state = state_after_scaling(found.state, policy, found.replicas - seen.members, now)
                prefill.resize(found.replicas, second, start_s, load.stays_s)
            if found.replicas != sizes[-1][1] or found.reason == Reason.ROLES_REBALANCED:
                sizes.append((float(second), found.replicas, found.reason.value))
        for nodes in pools:
            nodes.tick(second)
        reading[second], answering[second] = prefill.serving, decode.serving
        reach[second + 1] = min(reach[second] + prefill.serving, float(load.demand_by[second + 1]))
    node_s = sum(each.node_s for each in pools)
    return _outcome(trace, work, node_s, load, reach, (reading, answering), sizes, (ttft_s, tpot_s))


def _change_roles(prefill: Nodes, decode: Nodes, to: PoolSizes, now: float, switch_s: float, drain_s: float) -> None:
    """Move nodes that one pool has too many to the other, if it has too few; decode nodes first finish their
    answers."""
    ways = (prefill, to.prefill, decode, to.decode, 0.0), (decode, to.decode, prefill, to.prefill, drain_s)
    for one, least, other, most, first_s in ways:
        moved = min(one.members - least, most - other.members, one.serving - 1)
        if moved > 0:
            one.transfer(moved, other, now, first_s + switch_s)


class OfferedLoad:
    """Arriving and queued work as a deployment reports it: one number for all nodes, or one per pool (`pooled`)."""

    def __init__(self, trace: Trace, work: Work, tpot_s: float, pooled: bool) -> None:
        self.work, self.pooled = work, pooled
        self.seconds = int(np.ceil(trace.at[-1])) + 1
        token_s = work.token_node_s * (work.prefill_share if pooled else 1.0)
        self.places = work.places_per_node / (work.decode_share if pooled else 1.0)
        self.demand = np.concatenate([[0.0], np.cumsum(trace.new * token_s)])
        self._arrived_by = np.searchsorted(trace.at, np.arange(self.seconds + 1))
        self.demand_by = self.demand[self._arrived_by]
        stays = trace.answer * tpot_s
        self.occupied = _occupied(trace.at, stays, self.seconds) / self.places
        self.stays_s = float(stays.mean())
        self._alone_s = float(trace.new.mean()) * work.alone_token_s

    def observe(
        self, second: int, served: float, prefill: Nodes, decode: Nodes, start_s: float, least: int
    ) -> Observation | PoolsObservation:
        """The observation at a second, as `scaling_signals` gives it to a decision; no load before the first tick."""
        reads = answers = None
        waits = 0.0
        if second >= TICK_S:
            over_s = max(ANSWER_RATE_WINDOW_S, self.stays_s / 2)
            reads, waits = _per_s(self.demand_by, second, TICK_S), float(self.demand_by[second] - served)
            places = _per_s(self._arrived_by, second, over_s) * self.stays_s
            answers = max(places / self.places, float(self.occupied[second - 1]))
        if not self.pooled:
            load = None if reads is None or answers is None else max(reads, answers)
            counts = prefill.members, prefill.serving
            return Observation(*counts, load, waits, start_s=start_s, stays_s=self.stays_s, least=self.work.nodes_min)
        block = self.work.prefill_instance_nodes
        return PoolsObservation(
            Observation(
                prefill.members + decode.members, prefill.serving + decode.serving, start_s=start_s, least=least
            ),
            Observation(
                prefill.members, prefill.serving, reads, waits, start_s=start_s, stays_s=self._alone_s, queues=True,
                least=min(block, prefill.members),
            ),
            Observation(
                decode.members, decode.serving, answers, start_s=start_s, stays_s=self.stays_s,
                least=self.work.decode_nodes_min,
            ),
            prefill_block=block,
        )  # fmt: skip


def _per_s(count: np.ndarray, second: int, over_s: float) -> float:
    """The mean growth per second of a cumulative sum, over the last `over_s` seconds."""
    since = max(0, second - round(over_s))
    return float(count[second] - count[since]) / (second - since)


def _outcome(
    trace: Trace, work: Work, node_s: float, load: OfferedLoad, reach: np.ndarray, ready: tuple[np.ndarray, np.ndarray],
    sizes: list[tuple[float, int, str]], objectives: tuple[float, float],
) -> Outcome:  # fmt: skip
    """The result: the time at which each prompt begins comes from the curve of work served, `reach`; work left at the
    end is served by the nodes of the last second. `ready`: prefill and decode nodes that serve in each second."""
    reading, answering = ready
    rest = float(load.demand[-1] - reach[-1])
    curve = np.append(reach, load.demand[-1])
    moments = np.append(np.arange(len(reach), dtype=float), len(reach) - 1 + rest / max(1, int(reading[-1])))
    begun = np.maximum(trace.at, np.interp(load.demand[:-1], curve, moments))
    wait = begun - trace.at
    late = wait + trace.new * work.alone_token_s > objectives[0]
    crowded = load.occupied > answering
    slow = crowded[np.minimum(trace.at.astype(int), len(crowded) - 1)]
    each = [size for _, size, _ in sizes]
    return Outcome(
        node_hours=node_s / 3600,
        within_ttft=float(1 - late.mean()),
        within_tpot=float(1 - slow.mean()),
        wait_p90_s=float(np.percentile(wait, 90)),
        changes=len(sizes) - 1,
        nodes_least=min(each),
        nodes_most=max(each),
        requests=len(trace.at),
        seconds=float(load.seconds),
        sizes=tuple(sizes),
    )


def _occupied(at: np.ndarray, stays: np.ndarray, seconds: int) -> np.ndarray:
    """The number of answers in progress in each second."""
    steps = np.zeros(seconds + 1)
    np.add.at(steps, np.minimum(at.astype(int), seconds), 1.0)
    np.add.at(steps, np.minimum((at + stays).astype(int) + 1, seconds), -1.0)
    return np.cumsum(steps)[:seconds]


def check_supported(policy: ScalingPolicySpec) -> None:
    """Raise InvalidField, naming the field, for policy features that only a running service can exercise."""
    if policy.metrics:
        raise InvalidField(
            "metrics come from a running service; leave them out to simulate the policy's own signal", field="metrics"
        )
    if policy.pools is not None and policy.pools.caching is not None:
        raise InvalidField("a trace does not show the demand for cache memory; leave it out", field="pools.caching")
    if policy.min_replicas < 1:
        raise InvalidField("scaling to zero is not simulated; set at least 1", field="minReplicas")
    if policy.max_replicas > NODES_MAX:
        raise InvalidField(f"must be at most {NODES_MAX}, the most nodes a model is laid out on", field="maxReplicas")


def read_policy(document: Any) -> ScalingPolicySpec:
    """The policy of a ScalingPolicy manifest, or of its spec alone, as in REST. Raises InvalidField."""
    if isinstance(document, dict) and "spec" in document:
        if document.get("kind") != "ScalingPolicy":
            raise InvalidField(f"{str(document.get('kind'))[:40]!r} is not ScalingPolicy", field="kind")
        document = document["spec"]
    try:
        return ScalingPolicySpec.model_validate(document)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        path = ".".join(map(str, first["loc"])) or "spec"
        if first["type"] == "extra_forbidden":
            raise InvalidField("unknown field of a ScalingPolicy", field=path) from wrong
        raise InvalidField(validation_message(first), field=path) from wrong


def with_changes(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the spec with values set at dotted paths, such as `behavior.scaleDown.stabilizationWindowSeconds`.
    Raises InvalidField."""
    found = deepcopy(document)
    for path, value in changes.items():
        at = found
        *above, last = path.split(".")
        for word in above:
            at = at.setdefault(word, {})
            if not isinstance(at, dict):
                raise InvalidField(f"{word!r} is not an object in the policy", field=path)
        at[last] = value
    return found


def fixed_size_policy(policy: ScalingPolicySpec, nodes: int) -> ScalingPolicySpec:
    """The same policy with a constant number of nodes, as the baseline. Prediction is off, unless the policy has pools,
    whose nodes may still change their role."""
    size: dict[str, Any] = {"min_replicas": nodes, "max_replicas": nodes, "block": 1, "schedules": []}
    return policy.model_copy(update=size if policy.pools is not None else {**size, "predictive": "Off"})


def meets_objectives(outcome: Outcome, attained: float) -> bool:
    """Whether at least that share of requests kept each objective, judged one by one."""
    return min(outcome.within_ttft, outcome.within_tpot) >= attained


def min_fixed_size(
    trace: Trace, policy: ScalingPolicySpec, attained: float, *, ttft_s: float, tpot_s: float,
    layout_nodes: int | None = None,
) -> tuple[int | None, Outcome]:  # fmt: skip
    """The fewest constant nodes on which that share keeps its objectives (static provisioning for the peak), with their
    result. None, with the result of `maxReplicas`, if not even those are enough. `layout_nodes`: as for `simulate`."""
    check_supported(policy)
    layout_nodes = layout_nodes or policy.max_replicas
    least = work_on(layout_nodes, trace.context, tpot_s).nodes_min
    low, high = min(max(policy.min_replicas, least), policy.max_replicas), policy.max_replicas
    outcomes: dict[int, Outcome] = {}

    def enough(nodes: int) -> bool:
        fixed = fixed_size_policy(policy, nodes)
        outcomes[nodes] = simulate(trace, fixed, ttft_s=ttft_s, tpot_s=tpot_s, layout_nodes=layout_nodes)
        return meets_objectives(outcomes[nodes], attained)

    if not enough(high):
        return None, outcomes[high]
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    if high not in outcomes:
        enough(high)
    return high, outcomes[high]
