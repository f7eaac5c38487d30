"""A scaling policy played over a trace, open loop, before it is applied: its cost, and whom it kept waiting.

The decisions are MatrixCompute's own `recommend`, every fifteen seconds, with the memory it keeps. What it is shown is
what a deployment shows it (`serving/work.py`): the work that comes in and that waits, in nodes of the instance. Between
its looks the model is a fluid one: prompts are read first come, first served by all nodes that serve; an answer keeps
its place for as long as the objective gives its tokens. A node that is added serves after the start time and is paid
for from its first second; one that leaves is paid for until an answer has ended there. The work of a request comes from
the timing of the model laid out on as many nodes as the policy allows at most, and pools keep their proportions.

Not in it: which node has which request, the latency of single steps, transfers, and nodes that fail. `benchmarks/`
plays pools by themselves; a stack shows the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from pydantic import ValidationError

from infer_workload.contract import DeploymentShape
from infer_workload.ems.model_cache import ModelCache
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out, least_decode_nodes
from infer_workload.layout.recovery import first_start_s
from infer_workload.serving.work import CHUNK_TOKENS, batch_within
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival
from matrixcommon.model.errors import InvalidField
from matrixcompute.autoscaling.decision import TICK_S, WINDOW_S, Observation, recommend, scaled
from matrixcompute.autoscaling.policy import ScalingPolicySpec, ScalingState

NODES_MAX = 48
"""One supernode, which a layout is made on."""
BEGINS_AT = 1_767_571_200.0
"""Seconds of Unix time at which a trace begins where its user does not say: a Monday, midnight UTC, for schedules."""
BLOCK_TOKENS = 512


@dataclass(frozen=True)
class Work:
    """What requests cost: node-seconds of reading and places of answering, in nodes of an instance of `nodes`."""

    token_node_s: float
    """For each new token of a prompt."""
    alone_token_s: float
    """Seconds that a token of a prompt takes on one instance."""
    places_per_node: float
    start_s: float
    nodes_min: int


@cache
def work_on(nodes: int, context: int, tpot_s: float) -> Work:
    """Of prompts and answers whose context is that long on average."""
    model, calibration = load_model(), load_calibration()
    deployment = lay_out(healthy_fabric(nodes), model, calibration, DeploymentShape())
    pools, reading = deployment.pools, deployment.prefill_timing(0)
    count = max(1, CHUNK_TOKENS // context)
    token_s = reading.chunk_s([(context, 0)] * count) * len(pools.prefill[0]) / (count * context)
    batch = batch_within(deployment.decode_timing(), context, deployment.kv_tokens_per_die, tpot_s)
    serving = pools.prefill_nodes + len(pools.decode)
    return Work(
        token_node_s=token_s * serving / pools.prefill_nodes,
        alone_token_s=reading.chunk_s([(context, 0)]) / context,
        places_per_node=min(batch, deployment.batch_per_die) * calibration.dies_per_node * len(pools.decode) / serving,
        start_s=first_start_s(deployment, ModelCache(calibration, {model.name})),
        nodes_min=1 + least_decode_nodes(model, calibration, deployment.context_length, len(pools.decode)),
    )


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


@dataclass
class _Nodes:
    """The nodes that there are: serving, starting (when each will serve) and leaving (until when each is paid for)."""

    serving: int
    starting: list[float] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)
    node_s: float = 0.0

    @property
    def members(self) -> int:
        return self.serving + len(self.starting)

    def resize(self, to: int, now: float, start_s: float, drain_s: float) -> None:
        change = to - self.members
        self.starting += [now + start_s] * change
        while change < 0 and self.starting:
            self.starting.pop()
            change += 1
        self.serving += min(change, 0)
        self.leaving += [now + drain_s] * -min(change, 0)

    def second(self, now: float) -> None:
        self.serving += sum(at <= now for at in self.starting)
        self.starting = [at for at in self.starting if at > now]
        self.leaving = [at for at in self.leaving if at > now]
        self.node_s += self.members + len(self.leaving)


class Trace:
    """The arrivals of a trace as arrays, with what the context cache would hold of each, given room for everything."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        if not arrivals:
            raise InvalidField("there is no request", field="--trace")
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
    start_s = work.start_s if start_s is None else start_s
    seconds = int(np.ceil(trace.at[-1])) + 1
    cost = trace.new * work.token_node_s
    asked = np.concatenate([[0.0], np.cumsum(cost)])
    by_second = np.searchsorted(trace.at, np.arange(seconds + 1))
    asked_by = asked[by_second]
    stays = trace.answer * tpot_s
    occupied = _occupied(trace.at, stays, seconds) / work.places_per_node
    drain_s, stays_s = float(stays.mean()), float(stays.mean())
    least = max(policy.min_replicas, work.nodes_min)
    nodes, state = _Nodes(least), ScalingState()
    served, sizes = 0.0, [(0.0, least, "")]
    reach, ready = np.zeros(seconds + 1), np.zeros(seconds, dtype=int)
    for second in range(seconds):
        if second and second % TICK_S == 0:
            load = None if second < WINDOW_S else max(
                _per_s(asked_by, second, WINDOW_S),
                _per_s(by_second, second, max(WINDOW_S, stays_s / 2)) * stays_s / work.places_per_node,
                float(occupied[second - 1]),
            )  # fmt: skip
            seen = Observation(
                nodes.members, nodes.serving, load, 0.0 if load is None else float(asked_by[second] - served),
                start_s=start_s, stays_s=stays_s, least=work.nodes_min,
            )  # fmt: skip
            found = recommend(seen, policy, state, begins_at + second)
            change = found.replicas - nodes.members
            state = scaled(found.state, policy, change, begins_at + second)
            if change:
                nodes.resize(found.replicas, second, start_s, drain_s)
                sizes.append((float(second), found.replicas, found.reason.value))
        nodes.second(second)
        ready[second] = nodes.serving
        served = min(served + nodes.serving, float(asked[by_second[second + 1]]))
        reach[second + 1] = served
    return _outcome(trace, work, nodes, asked, reach, ready, occupied, sizes, (ttft_s, tpot_s))


def _per_s(count: np.ndarray, second: int, over_s: float) -> float:
    """How much a sum by the second grew lately, a second."""
    since = max(0, second - round(over_s))
    return float(count[second] - count[since]) / (second - since)


def _outcome(
    trace: Trace, work: Work, nodes: _Nodes, asked: np.ndarray, reach: np.ndarray, ready: np.ndarray,
    occupied: np.ndarray, sizes: list[tuple[float, int, str]], objectives: tuple[float, float],
) -> Outcome:  # fmt: skip
    """When each prompt is begun, from the curve of what was served; what is left at the end is worked off by who is
    there."""
    rest = float(asked[-1] - reach[-1])
    curve = np.append(reach, asked[-1])
    moments = np.append(np.arange(len(reach), dtype=float), len(reach) - 1 + rest / max(1, int(ready[-1])))
    begun = np.maximum(trace.at, np.interp(asked[:-1], curve, moments))
    wait = begun - trace.at
    late = wait + trace.new * work.alone_token_s > objectives[0]
    crowded = occupied > ready
    slow = crowded[np.minimum(trace.at.astype(int), len(crowded) - 1)]
    each = [size for _, size, _ in sizes]
    return Outcome(
        node_hours=nodes.node_s / 3600,
        within_ttft=float(1 - late.mean()),
        within_tpot=float(1 - slow.mean()),
        wait_p90_s=float(np.percentile(wait, 90)),
        changes=len(sizes) - 1,
        nodes_least=min(each),
        nodes_most=max(each),
        requests=len(trace.at),
        seconds=float(len(ready)),
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
    if policy.pools is not None:
        raise InvalidField("pools are not sized here; `python -m benchmarks autoscaling` plays them", field="pools")
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
    """The same with a size that never changes: what a policy is to be compared with."""
    return policy.model_copy(update={"min_replicas": nodes, "max_replicas": nodes, "block": 1, "schedules": []})


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
