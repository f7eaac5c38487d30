"""The compared policies: ours, and other autoscalers from their published formulas.

Each is a function of what can be observed of both roles at a tick. The others' formulas are implemented as their
documentation states them (HPA v2, Knative's KPA, llm-d's token-aware KEDA guide and variant autoscaler, Dynamo's
planner). Where they use an engine's rate, they get the rate at which our engine meets the objective, which favours
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil

from benchmarks.autoscaler.pools import MEMBER_NODES, TPOT_S, TTFT_S, Policy, RoleObservation
from benchmarks.autoscaler.spares import Spares
from matrixcompute.autoscaling.decision import Observation, recommend, state_after_scaling
from matrixcompute.autoscaling.policy import Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, state_after_pool_scaling
from matrixcompute.autoscaling.warm_spares import recommend_with_spares

MEMBERS_MAX = 64
OBJECTIVE = {"ttftSeconds": TTFT_S, "tpotSeconds": TPOT_S}
Rule = Callable[[RoleObservation], int]


def policy_spec(block: int = MEMBER_NODES, **more: object) -> ScalingPolicySpec:
    nodes = MEMBERS_MAX * MEMBER_NODES
    given = {"scaleTargetRef": {"name": "pool"}, "minReplicas": block, "maxReplicas": nodes // block * block}
    return ScalingPolicySpec.model_validate({**given, "block": block, **more})


@dataclass
class PerRolePolicy:
    """The product's own decision, once for each role, in nodes."""

    policy: ScalingPolicySpec
    states: dict[str, ScalingState] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    extra_signals: Callable[[RoleObservation], dict[str, float]] = lambda seen: {}

    def __call__(self, seen: list[RoleObservation]) -> list[int]:
        return [self._decide(each) for each in seen]

    def _decide(self, seen: RoleObservation) -> int:
        observation = Observation(
            seen.members * MEMBER_NODES,
            seen.ready * MEMBER_NODES,
            seen.load * MEMBER_NODES,
            seen.backlog_s * MEMBER_NODES,
            self.extra_signals(seen),
            seen.start_s,
            seen.stays_s,
        )
        found = recommend(observation, self.policy, self.states.get(seen.role, ScalingState()), seen.now)
        change = found.replicas - observation.members
        self.states[seen.role] = state_after_scaling(found.state, self.policy, change, seen.now)
        self.reasons.append(found.reason)
        return found.replicas // MEMBER_NODES


@dataclass
class PooledPolicy:
    """The product's own decision over both pools, in nodes."""

    policy: ScalingPolicySpec
    state: ScalingState = field(default_factory=ScalingState)
    reasons: list[Reason] = field(default_factory=list)
    spares: Spares | None = None
    """The spares that the policy takes into account."""
    known_start_s: float | None = None
    """An upper limit on the start time that the policy is told; None: it is told the real one."""

    def __call__(self, seen: list[RoleObservation]) -> list[int]:
        if self.known_start_s is not None:
            seen = [replace(each, start_s=min(each.start_s, self.known_start_s)) for each in seen]
        prefill, decode = (_observation(each) for each in seen)
        nodes, ready = prefill.members + decode.members, prefill.ready + decode.ready
        whole, beside = Observation(nodes, ready), self.spares
        if beside is not None:
            prefill, decode = (replace(each, start_s=beside.join_s) for each in (prefill, decode))
            boot_s = beside.start_s - beside.join_s
            whole = replace(whole, spares=beside.count * MEMBER_NODES, boot_s=boot_s)
        looked = PoolsObservation(whole, prefill, decode, prefill_block=MEMBER_NODES, decode_block=MEMBER_NODES)
        found = recommend_with_spares(looked, self.policy, self.state, seen[0].now)
        assert found.pools is not None
        self.state = state_after_pool_scaling(found.state, self.policy, looked.sizes, found.pools, seen[0].now)
        self.reasons.append(found.reason)
        return [found.pools.prefill // MEMBER_NODES, found.pools.decode // MEMBER_NODES]


@dataclass
class SingleNumber:
    """The product's decision on a single number of nodes, split between the roles as in the paper's deployment."""

    policy: ScalingPolicySpec
    state: ScalingState = field(default_factory=ScalingState)

    def __call__(self, seen: list[RoleObservation]) -> list[int]:
        prefill, decode = seen
        members, ready = prefill.members + decode.members, prefill.ready + decode.ready
        load = members * max(prefill.load / max(1, prefill.members), decode.load / max(1, decode.members))
        backlog_s = prefill.backlog_s * members / max(1, prefill.members)
        looked = Observation(
            members * MEMBER_NODES, ready * MEMBER_NODES, load * MEMBER_NODES, backlog_s * MEMBER_NODES,
            start_s=prefill.start_s, stays_s=decode.stays_s,
        )  # fmt: skip
        found = recommend(looked, self.policy, self.state, prefill.now)
        self.state = state_after_scaling(found.state, self.policy, found.replicas - looked.members, prefill.now)
        return default_split(found.replicas // MEMBER_NODES)


def default_split(members: int) -> list[int]:
    """The members of each role if a deployment sets no sizes: 12 nodes of 32 are for prefill."""
    prefill = max(1, round(members * 12 / 32))
    return [prefill, max(1, members - prefill)]


def _observation(seen: RoleObservation) -> Observation:
    sizes = (seen.members * MEMBER_NODES, seen.ready * MEMBER_NODES)
    work = (seen.load * MEMBER_NODES, seen.backlog_s * MEMBER_NODES)
    return Observation(*sizes, *work, start_s=seen.start_s, stays_s=seen.stays_s, queues=seen.role == "prefill")


def hpa(prefill: str, decode: str, block: int) -> Policy:
    """HPA v2 with its defaults on one metric per role: the queue (5 per member) or the utilization (0.8)."""
    targets = {"waiting": 5.0, "busy": 0.8, "kv": 0.8}

    def rule(metric: str) -> PerRolePolicy:
        target = {"type": "Value", "value": targets[metric]}
        if metric == "waiting":
            target = {"type": "AverageValue", "averageValue": targets[metric] / MEMBER_NODES}
        metrics = [{"type": "Object", "object": {"metric": {"name": metric}, "target": target}}]
        return PerRolePolicy(
            policy_spec(block, metrics=metrics), extra_signals=lambda seen: {metric: float(getattr(seen, metric))}
        )

    rules = {"prefill": rule(prefill), "decode": rule(decode)}
    return lambda seen: [rules[each.role]([each])[0] for each in seen]


@dataclass
class Kpa:
    """Knative: the mean load of a minute over the target; in panic mode that of six seconds, without scaling in."""

    target: float = 0.7
    seen: deque[tuple[float, float]] = field(default_factory=deque)
    panics_until: float = -1.0

    def __call__(self, seen: RoleObservation) -> int:
        work = max(seen.load, seen.busy * max(1, seen.ready))
        self.seen.append((seen.now, work))
        while self.seen[0][0] <= seen.now - 60:
            self.seen.popleft()
        stable = sum(each for _, each in self.seen) / len(self.seen) / self.target
        burst = [each for at, each in self.seen if at > seen.now - 6]
        panic = sum(burst) / len(burst) / self.target
        if panic >= 2 * max(1, seen.ready):
            self.panics_until = seen.now + 60
        if seen.now < self.panics_until:
            return max(seen.members, ceil(panic))
        return ceil(max(stable, 0.01))


@dataclass
class Stabilized:
    """Scales in to the highest proposal of a window, as KEDA over HPA does."""

    rule: Rule
    window_s: float = 300.0
    proposals: deque[tuple[float, int]] = field(default_factory=deque)

    def __call__(self, seen: RoleObservation) -> int:
        self.proposals.append((seen.now, self.rule(seen)))
        while self.proposals[0][0] <= seen.now - self.window_s:
            self.proposals.popleft()
        return max(size for _, size in self.proposals)


def token_aware(seen: RoleObservation) -> int:
    """Prefill: queued uncached tokens over what a member processes within the allowed time. Decode: KV use of 0.8."""
    if seen.role == "prefill":
        return ceil(max(1.0, seen.backlog_s / (TTFT_S - 1.0)))
    return ceil(max(1.0, seen.kv * seen.ready / 0.8))


def wva(seen: RoleObservation) -> int:
    """Add a member if mean spare capacity is below a tenth or the queue is long; remove one if use would stay below
    0.8."""
    use = max(seen.kv, seen.busy)
    if use > 0.9 or seen.waiting > 3 * seen.ready:
        return seen.members + (seen.members == seen.ready)
    if seen.ready > 1 and use * seen.ready / (seen.ready - 1) < 0.8:
        return seen.members - 1
    return seen.members


@dataclass
class Forecast:
    """Dynamo's throughput loop: every three minutes, as many members as the load of the last three keeps busy."""

    period_s: float = 180.0
    loads: list[float] = field(default_factory=list)
    size: int = 0
    next_at: float = 0.0

    def __call__(self, seen: RoleObservation) -> int:
        self.loads.append(seen.load)
        if seen.now >= self.next_at:
            self.size = ceil(max(1.0, sum(self.loads) / len(self.loads)))
            self.loads, self.next_at = [], seen.now + self.period_s
        return self.size


def load_loop(seen: RoleObservation) -> int:
    """Dynamo's load loop: add a member if requests will miss the objective; remove one if the rest would stay below a
    load of 0.8."""
    if seen.late:
        return seen.members + (seen.members == seen.ready)
    if seen.ready > 1 and seen.load / (seen.ready - 1) < 0.8 and not seen.backlog_s > seen.ready:
        return seen.members - 1
    return seen.members


def per_role(make: Callable[[], Rule], block: int) -> Policy:
    """The policy that applies a rule to each role, in whole blocks."""
    rules: dict[str, Rule] = {"prefill": make(), "decode": make()}
    step = max(1, block // MEMBER_NODES)

    def policy(seen: list[RoleObservation]) -> list[int]:
        sizes = [min(MEMBERS_MAX, max(1, rules[each.role](each))) for each in seen]
        return [-(-size // step) * step for size in sizes]

    return policy


def combined_loops() -> Rule:
    """Dynamo's load loop with the throughput loop as its floor."""
    forecast = Forecast()
    return lambda seen: max(forecast(seen), load_loop(seen))


BASELINES: dict[str, tuple[float, Callable[[int], Policy]]] = {
    "HPA queue": (15.0, lambda block: hpa("waiting", "waiting", block)),
    "HPA KV 0.8": (15.0, lambda block: hpa("busy", "kv", block)),
    "KPA": (5.0, lambda block: per_role(Kpa, block)),
    "KEDA tokens": (30.0, lambda block: per_role(lambda: Stabilized(token_aware), block)),
    "WVA": (30.0, lambda block: per_role(lambda: wva, block)),
    "Dynamo forecast": (15.0, lambda block: per_role(Forecast, block)),
    "Dynamo load": (5.0, lambda block: per_role(lambda: load_loop, block)),
    "Dynamo both": (5.0, lambda block: per_role(combined_loops, block)),
}
"""By name: the tick (s), and a function that makes a new policy for a block size (nodes)."""


def default_policy(
    block: int = MEMBER_NODES, spares: Spares | None = None, known_start_s: float | None = None
) -> PooledPolicy:
    """The policy of a user who sets a target, a maximum and that pools are sized; `spares` are those that it takes into
    account. Decode is sized in whole members here. `known_start_s`: the longest start time that it is told."""
    given: dict[str, object] = {
        "pools": {role: {"minReplicas": MEMBER_NODES} for role in ("prefill", "decode")},
        "objective": OBJECTIVE,
        "minReplicas": 2 * MEMBER_NODES,
        "maxReplicas": 2 * MEMBERS_MAX * MEMBER_NODES // block * block,
    }
    if spares is not None:
        given["warmSpares"] = spares.count * MEMBER_NODES
    policy = policy_spec(block, **given)
    return PooledPolicy(policy, spares=spares, known_start_s=known_start_s)


def single_number_policy(block: int = MEMBER_NODES) -> SingleNumber:
    """The policy of a user who sets a target, a minimum and a maximum."""
    nodes = 2 * MEMBERS_MAX * MEMBER_NODES
    return SingleNumber(policy_spec(block, minReplicas=2 * MEMBER_NODES, maxReplicas=nodes // block * block))
