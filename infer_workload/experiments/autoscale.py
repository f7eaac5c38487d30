"""A scaling policy played over a trace, open loop, before it is applied: its cost, and whom it kept waiting.

The decisions are MatrixCompute's own `recommend`, every fifteen seconds, with the memory it keeps. What it is shown is
what a deployment shows it (`serving/work.py`): the work that comes in and that waits, in nodes of the instance. Between
its looks the model is a fluid one: prompts are read first come, first served by all nodes that serve; an answer keeps
its place for as long as the objective gives its tokens. A node that is added serves after the start time (it boots, and
loads the model) and is paid for from its first second; one that leaves is paid for until an answer has ended there. The
work of a request comes from the timing of the model laid out on as many nodes as the policy allows at most. Pools keep
their proportions, but where the policy sizes them: then each has its own work, and nodes change their role once what
they had is finished.

Not in it: which node has which request, the latency of single steps, transfers, and nodes that fail. `benchmarks/`
plays pools by themselves; a stack shows the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from infer_workload.experiments.autoscale_nodes import Nodes, Work, work_on
from infer_workload.serving.work import ANSWERS_OVER_S
from infer_workload.traffic.generator import Arrival
from matrixcommon.model.errors import InvalidField
from matrixcompute.autoscaling.behavior import whole
from matrixcompute.autoscaling.decision import TICK_S, Observation, recommend, scaled
from matrixcompute.autoscaling.node_waits import boots_in_s
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, pools_scaled, recommend_pools

NODES_MAX = 48
"""One supernode, which a layout is made on."""
BEGINS_AT = 1_767_571_200.0
"""Seconds of Unix time at which a trace begins where its user does not say: a Monday, midnight UTC, for schedules."""
BLOCK_TOKENS = 512
DAYS_MAX = 90
"""What a trace may take: each second of it is looked at."""


@dataclass(frozen=True)
class Outcome:
    """What a policy came to. Shares are of all requests; waits in seconds, before a prompt is begun to be read."""

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
    """Each change: when (seconds of the trace), to how many nodes, and why."""


class Trace:
    """The arrivals of a trace as arrays, with what the context cache would hold of each, given room for everything."""

    def __init__(self, arrivals: Sequence[Arrival], source: str = "--trace") -> None:
        """`source`: the option that they are of. Raises InvalidField."""
        if not arrivals:
            raise InvalidField("there is no request", field=source)
        days = (arrivals[-1].at_s - arrivals[0].at_s) / 86_400
        if days > DAYS_MAX:
            raise InvalidField(f"requests over {DAYS_MAX} days at most are played, not {days:,.0f}", field=source)
        self.at = np.array([each.at_s for each in arrivals])
        self.at -= self.at[0]
        self.new = np.array(list(_uncached(arrivals)), dtype=float)
        self.prompt = np.array([each.input_tokens for each in arrivals], dtype=float)
        self.answer = np.array([each.output_tokens for each in arrivals], dtype=float)

    def swinging(self, swing: float, period_s: float) -> Trace:
        """The same requests, closer together in the middle of each period and further apart at its ends: the rate goes
        from `1 - swing` to `1 + swing` times what it is on average. Raises InvalidField."""
        if not 0 <= swing < 1:
            raise InvalidField("has to be from 0 to less than 1", field="--swing")
        if period_s <= 0:
            raise InvalidField("has to be more than 0 s", field="--period")
        grid = np.linspace(0.0, float(self.at[-1]) + period_s, max(1000, int(self.at[-1])))
        turn = 2 * np.pi * grid / period_s
        found = copy(self)
        found.at = np.interp(self.at, grid - swing * np.sin(turn) * period_s / (2 * np.pi), grid)
        found.at -= found.at[0]
        return found

    @property
    def context(self) -> int:
        """Tokens that an answer has before it on average."""
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


def play(
    trace: Trace, policy: ScalingPolicySpec, *, ttft_s: float, tpot_s: float, start_s: float | None = None,
    begins_at: float = BEGINS_AT,
) -> Outcome:  # fmt: skip
    """The trace under a policy, from `minReplicas` nodes on. Raises InvalidField for what a trace cannot show."""
    check(policy)
    work = work_on(policy.max_replicas, trace.context, tpot_s)
    load = OfferedLoad(trace, work, tpot_s, pooled=policy.pools is not None)
    start_s = boots_in_s() + work.start_s if start_s is None else start_s
    least = max(policy.min_replicas, work.nodes_min)
    prefill = decode = Nodes(least)
    if policy.pools is not None:
        first = max(work.prefill_instance_nodes, whole(policy.pools.prefill.min_replicas, work.prefill_instance_nodes))
        others = max(work.decode_nodes_min, policy.pools.decode.min_replicas, least - first)
        prefill, decode = Nodes(first), Nodes(others)
    everybody = [prefill] if policy.pools is None else [prefill, decode]
    state, sizes = ScalingState(), [(0.0, sum(each.members for each in everybody), "")]
    reach = np.zeros(load.seconds + 1)
    reading, answering = np.zeros(load.seconds, dtype=int), np.zeros(load.seconds, dtype=int)
    for second in range(load.seconds):
        if second and second % TICK_S == 0:
            now = begins_at + second
            seen = load.seen(second, float(reach[second]), prefill, decode, start_s, least)
            if isinstance(seen, PoolsObservation):
                found = recommend_pools(seen, policy, state, now)
                assert found.pools is not None
                state = pools_scaled(found.state, policy, seen.sizes, found.pools, now)
                _change_roles(prefill, decode, found.pools, second, work.switch_s, load.stays_s)
                prefill.resize(found.pools.prefill, second, start_s, 0.0)
                decode.resize(found.pools.decode, second, start_s, load.stays_s)
            else:
                found = recommend(seen, policy, state, now)
                state = scaled(found.state, policy, found.replicas - seen.members, now)
                prefill.resize(found.replicas, second, start_s, load.stays_s)
            if found.replicas != sizes[-1][1] or found.reason == Reason.ROLES_REBALANCED:
                sizes.append((float(second), found.replicas, found.reason.value))
        for nodes in everybody:
            nodes.second(second)
        reading[second], answering[second] = prefill.serving, decode.serving
        reach[second + 1] = min(reach[second] + prefill.serving, float(load.asked_by[second + 1]))
    node_s = sum(each.node_s for each in everybody)
    return _outcome(trace, work, node_s, load, reach, (reading, answering), sizes, (ttft_s, tpot_s))


def _change_roles(prefill: Nodes, decode: Nodes, to: PoolSizes, now: float, switch_s: float, drain_s: float) -> None:
    """Nodes that one pool has too many and the other too few; answers are finished before theirs change."""
    ways = (prefill, to.prefill, decode, to.decode, 0.0), (decode, to.decode, prefill, to.prefill, drain_s)
    for one, least, other, most, first_s in ways:
        moved = min(one.members - least, most - other.members, one.serving - 1)
        if moved > 0:
            one.give(moved, other, now, first_s + switch_s)


class OfferedLoad:
    """What comes in and waits, as a deployment says it: for all nodes as one number, or for each pool (`pooled`)."""

    def __init__(self, trace: Trace, work: Work, tpot_s: float, pooled: bool) -> None:
        self.work, self.pooled = work, pooled
        self.seconds = int(np.ceil(trace.at[-1])) + 1
        token_s = work.token_node_s * (work.prefill_share if pooled else 1.0)
        self.places = work.places_per_node / (work.decode_share if pooled else 1.0)
        self.asked = np.concatenate([[0.0], np.cumsum(trace.new * token_s)])
        self._came_by = np.searchsorted(trace.at, np.arange(self.seconds + 1))
        self.asked_by = self.asked[self._came_by]
        stays = trace.answer * tpot_s
        self.occupied = _occupied(trace.at, stays, self.seconds) / self.places
        self.stays_s = float(stays.mean())
        self._alone_s = float(trace.new.mean()) * work.alone_token_s

    def seen(
        self, second: int, served: float, prefill: Nodes, decode: Nodes, start_s: float, least: int
    ) -> Observation | PoolsObservation:
        """As `scaling_signals` hands it to a decision; nothing is known before a whole look."""
        reads = answers = None
        waits = 0.0
        if second >= TICK_S:
            over_s = max(ANSWERS_OVER_S, self.stays_s / 2)
            reads, waits = _per_s(self.asked_by, second, TICK_S), float(self.asked_by[second] - served)
            places = _per_s(self._came_by, second, over_s) * self.stays_s
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
    """How much a sum by the second grew lately, a second."""
    since = max(0, second - round(over_s))
    return float(count[second] - count[since]) / (second - since)


def _outcome(
    trace: Trace, work: Work, node_s: float, load: OfferedLoad, reach: np.ndarray, ready: tuple[np.ndarray, np.ndarray],
    sizes: list[tuple[float, int, str]], objectives: tuple[float, float],
) -> Outcome:  # fmt: skip
    """When each prompt is begun, from the curve of what was served; what is left at the end is worked off by who is
    there. `ready`: nodes that read, and that answer, in each second."""
    reading, answering = ready
    rest = float(load.asked[-1] - reach[-1])
    curve = np.append(reach, load.asked[-1])
    moments = np.append(np.arange(len(reach), dtype=float), len(reach) - 1 + rest / max(1, int(reading[-1])))
    begun = np.maximum(trace.at, np.interp(load.asked[:-1], curve, moments))
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
    """Answers under way in each second."""
    steps = np.zeros(seconds + 1)
    np.add.at(steps, np.minimum(at.astype(int), seconds), 1.0)
    np.add.at(steps, np.minimum((at + stays).astype(int) + 1, seconds), -1.0)
    return np.cumsum(steps)[:seconds]


def check(policy: ScalingPolicySpec) -> None:
    """Raises InvalidField, naming the field, for what only a running service can show."""
    if policy.metrics:
        raise InvalidField("metrics are a running service's; leave them out to play the policy's own", field="metrics")
    if policy.pools is not None and policy.pools.caching is not None:
        raise InvalidField("a trace does not show what memory is asked for; leave it out", field="pools.caching")
    if policy.min_replicas < 1:
        raise InvalidField("scaling to zero is not played here; begin from 1", field="minReplicas")
    if policy.max_replicas > NODES_MAX:
        raise InvalidField(f"a model is laid out on {NODES_MAX} nodes at most", field="maxReplicas")


def read_policy(document: Any) -> ScalingPolicySpec:
    """The policy of a ScalingPolicy manifest, or of its spec alone, which REST takes. Raises InvalidField."""
    if isinstance(document, dict) and "spec" in document:
        if document.get("kind") != "ScalingPolicy":
            raise InvalidField(f"{str(document.get('kind'))[:40]!r} is no ScalingPolicy", field="kind")
        document = document["spec"]
    try:
        return ScalingPolicySpec.model_validate(document)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        path = ".".join(map(str, first["loc"])) or "spec"
        if first["type"] == "extra_forbidden":
            raise InvalidField("a ScalingPolicy has no such field", field=path) from wrong
        raise InvalidField(first["msg"].removeprefix("Value error, "), field=path) from wrong


def varied(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with values at dotted paths, as `behavior.scaleDown.stabilizationWindowSeconds`. Raises InvalidField."""
    found = deepcopy(document)
    for path, value in changes.items():
        at = found
        *above, last = path.split(".")
        for word in above:
            at = at.setdefault(word, {})
            if not isinstance(at, dict):
                raise InvalidField(f"{word!r} has nothing below it in a policy", field=path)
        at[last] = value
    return found


def fixed(policy: ScalingPolicySpec, nodes: int) -> ScalingPolicySpec:
    """The same with a size that never changes: what a policy is to be compared with. Nothing is foreseen for it, but
    where pools change their roles."""
    size: dict[str, Any] = {"min_replicas": nodes, "max_replicas": nodes, "block": 1, "schedules": []}
    return policy.model_copy(update=size if policy.pools is not None else {**size, "predictive": "Off"})


def within(outcome: Outcome, attained: float) -> bool:
    """Whether that share of requests kept both objectives, as far as each by itself tells."""
    return min(outcome.within_ttft, outcome.within_tpot) >= attained


def fewest_fixed(
    trace: Trace, policy: ScalingPolicySpec, attained: float, *, ttft_s: float, tpot_s: float
) -> tuple[int | None, Outcome]:
    """The fewest nodes, never changed, on which that share keeps its objectives: the static peak. None where not even
    `maxReplicas` are enough, with what those come to."""
    check(policy)
    least = work_on(policy.max_replicas, trace.context, tpot_s).nodes_min
    low, high = min(max(policy.min_replicas, least), policy.max_replicas), policy.max_replicas
    outcomes: dict[int, Outcome] = {}

    def enough(nodes: int) -> bool:
        outcomes[nodes] = play(trace, fixed(policy, nodes), ttft_s=ttft_s, tpot_s=tpot_s)
        return within(outcomes[nodes], attained)

    if not enough(high):
        return None, outcomes[high]
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    if high not in outcomes:
        enough(high)
    return high, outcomes[high]
