"""recommend_pools: how many nodes each role should have, and so the instance as a whole. Pure, like `recommend`.

Prefill and decode are each sized by their own work, as if alone, with the policy's windows and rates: prefill by the
prompts that arrive and wait (to meet the objective for the first token), decode by the batch slots and KV memory that
answers take within theirs. The size is their sum, in whole blocks and within the bounds. Extra nodes stay where they
are, or else go to the busier pool; if there are too many, the less busy pool gives them up. If the sum stays while its
parts change, nodes change their role. Caching uses the memory of both: as many nodes as keep new data for long enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from matrixcommon.model.quantities import pluralized
from matrixcompute.autoscaling.behavior import record_change, round_to_blocks, stabilize
from matrixcompute.autoscaling.decision import (
    SENTENCES,
    Observation,
    Recommendation,
    recommend,
    scale_to_or_from_zero,
    schedule_floor,
)
from matrixcompute.autoscaling.policy import PoolBounds, PoolSizes, Reason, ScalingPolicySpec, ScalingState

ROLES = ("prefill", "decode")
DRAIN_FACTOR = 2.0
"""A node drains for this many times the mean stay of a request."""


@dataclass(frozen=True)
class PoolsObservation:
    """What is observed of the roles at one moment. `whole` is the instance; its members are those of the roles."""

    whole: Observation
    prefill: Observation
    decode: Observation
    caching: int | None = None
    """Nodes that lend their memory to the cache now; None: all."""
    caching_needs: float | None = None
    """Nodes whose memory the cache needs; None: unknown."""
    prefill_block: int = 1
    """Nodes per instance of prefill."""
    decode_block: int = 1

    def of(self, role: str) -> Observation:
        return self.prefill if role == "prefill" else self.decode

    def block(self, role: str) -> int:
        return self.prefill_block if role == "prefill" else self.decode_block

    @property
    def sizes(self) -> PoolSizes:
        return PoolSizes(prefill=self.prefill.members, decode=self.decode.members, caching=self.caching)


def recommend_pools(
    observed: PoolsObservation, policy: ScalingPolicySpec, state: ScalingState, now: float
) -> Recommendation:
    """Recommend the sizes for this moment. `state` is not changed; the recommendation carries the next one."""
    assert policy.pools is not None
    if (zero_switch := scale_to_or_from_zero(observed.whole, policy, state, now)) is not None:
        return zero_switch
    least = sum(bounds_of(role, observed, policy)[0] for role in ROLES)
    if least > round_to_blocks(policy.max_replicas, policy.block, up=False):
        sentence = SENTENCES[Reason.TOO_MANY_REPLICAS]
        message = f"the model needs {pluralized(least, 'node')}; {sentence} is {policy.max_replicas}"
        return Recommendation(observed.sizes.nodes, state, Reason.TOO_MANY_REPLICAS, message, pools=observed.sizes)
    found = {
        role: recommend(
            observed.of(role), _role_policy(role, observed, policy), state.pools.get(role, ScalingState()), now
        )
        for role in ROLES
    }
    desired = _kept_while_draining({role: each.replicas for role, each in found.items()}, observed, policy)
    sizes, limit = _combine(desired, observed, policy, schedule_floor(policy.schedules, now))
    memory = {role: each.state for role, each in found.items()}
    caching, memory["caching"] = _caching(observed, policy, sum(sizes.values()), state, now)
    pools = PoolSizes(prefill=sizes["prefill"], decode=sizes["decode"], caching=caching)
    reason = _reason(found, pools, observed, limit)
    forecasts = [each.forecast for each in found.values() if each.forecast is not None]
    return Recommendation(
        pools.nodes,
        state.model_copy(update={"pools": memory}),
        reason,
        _message(reason, found, pools, observed),
        sum(forecasts) if len(forecasts) == len(ROLES) else None,
        pools,
    )


def state_after_pool_scaling(
    state: ScalingState, policy: ScalingPolicySpec, before: PoolSizes, after: PoolSizes, now: float
) -> ScalingState:
    """The state after the pools were resized: each change counts against the rates of its own pool."""
    pools = {role: each.model_copy() for role, each in state.pools.items()}
    for role in ROLES:
        record_change(
            pools.setdefault(role, ScalingState()), policy.behavior, getattr(after, role) - getattr(before, role), now
        )
    return state.model_copy(update={"pools": pools})


def bounds_of(role: str, observed: PoolsObservation, policy: ScalingPolicySpec) -> tuple[int, int]:
    """The minimum and maximum nodes of a role, in whole blocks; the minimum is never below what the model needs."""
    assert policy.pools is not None
    block = observed.block(role)
    own: PoolBounds = getattr(policy.pools, role)
    other: PoolBounds = getattr(policy.pools, ROLES[1 - ROLES.index(role)])
    least = round_to_blocks(max(own.min_replicas, observed.of(role).least), block)
    most = policy.max_replicas - other.min_replicas if own.max_replicas is None else own.max_replicas
    return least, max(least, round_to_blocks(most, block, up=False))


def _role_policy(role: str, observed: PoolsObservation, policy: ScalingPolicySpec) -> ScalingPolicySpec:
    """The policy as applied to one role alone."""
    least, most = bounds_of(role, observed, policy)
    objective = policy.objective
    if objective.ttft_seconds is not None:
        # The last prompt waits for the backlog before it, and then takes its own prefill time.
        allowed = max(1.0, objective.ttft_seconds - observed.prefill.stays_s)
        objective = objective.model_copy(update={"backlog_seconds": allowed})
    alone = {"min_replicas": least, "max_replicas": most, "block": observed.block(role), "objective": objective}
    return policy.model_copy(update={**alone, "pools": None, "schedules": []})


def _kept_while_draining(
    desired: Mapping[str, int], observed: PoolsObservation, policy: ScalingPolicySpec
) -> dict[str, int]:
    """While one pool grows, the other keeps nodes that would take longer to drain than a new node takes to start: if
    handed over, they would count as present but arrive late. `max_replicas` takes precedence."""
    kept = dict(desired)
    for role, other in (ROLES, ROLES[::-1]):
        current = observed.of(role)
        drains_late = DRAIN_FACTOR * current.stays_s > current.start_s
        if desired[role] < current.members and desired[other] > observed.of(other).members and drains_late:
            kept[role] = min(current.members, max(desired[role], policy.max_replicas - desired[other]))
    return kept


def _combine(
    desired: Mapping[str, int], observed: PoolsObservation, policy: ScalingPolicySpec, scheduled: int
) -> tuple[dict[str, int], Reason | None]:
    """The sizes of both roles, in whole blocks and within the bounds, and the bound that changed them, if any."""
    assert policy.pools is not None
    floor = max(policy.min_replicas, policy.pools.least, observed.whole.least, scheduled)
    most = round_to_blocks(policy.max_replicas, policy.block, up=False)
    total = sum(desired.values())
    size = min(round_to_blocks(max(total, floor, _size_without_signal(observed, policy)), policy.block), most)
    sizes, limit = dict(desired), None
    if total > most:
        limit = Reason.TOO_MANY_REPLICAS
    elif total < floor:
        limit = Reason.SCHEDULE_FLOOR if floor == scheduled > policy.min_replicas else Reason.TOO_FEW_REPLICAS
    while (over := sum(sizes.values()) - size) > 0 and (role := _least_loaded_role(sizes, over, observed, policy)):
        sizes[role] -= observed.block(role)
    while (missing := size - sum(sizes.values())) > 0:
        role = _most_loaded_role(sizes, missing, observed, policy)
        sizes[role] += observed.block(role)
    return sizes, limit


def _size_without_signal(observed: PoolsObservation, policy: ScalingPolicySpec) -> int:
    """The members to keep while the load of a role is unknown: nodes that bounds take from one role go to the other,
    within its own bounds. 0 if both loads are known."""
    if all(observed.of(role).load is not None for role in ROLES):
        return 0
    return min(observed.whole.members, sum(bounds_of(role, observed, policy)[1] for role in ROLES))


def _least_loaded_role(
    sizes: Mapping[str, int], over: int, observed: PoolsObservation, policy: ScalingPolicySpec
) -> str | None:
    """The role with the least work per node among those above their minimum; None if there is none."""
    candidates = [role for role in ROLES if sizes[role] > bounds_of(role, observed, policy)[0]]
    return min(candidates, key=lambda role: _load_per_node(role, sizes, observed), default=None)


def _most_loaded_role(
    sizes: Mapping[str, int], missing: int, observed: PoolsObservation, policy: ScalingPolicySpec
) -> str:
    """The role that gets the extra nodes: one that has them now, else the one with more work per node. Decode takes
    what is less than a whole block of prefill."""
    candidates = [
        role for role in ROLES if missing >= observed.block(role) and sizes[role] < bounds_of(role, observed, policy)[1]
    ] or ["decode"]
    return max(
        candidates, key=lambda role: (sizes[role] < observed.of(role).members, _load_per_node(role, sizes, observed))
    )


def _load_per_node(role: str, sizes: Mapping[str, int], observed: PoolsObservation) -> float:
    return (observed.of(role).load or 0.0) / max(1, sizes[role])


def _caching(
    observed: PoolsObservation, policy: ScalingPolicySpec, nodes: int, state: ScalingState, now: float
) -> tuple[int | None, ScalingState]:
    """The nodes that lend their memory to the cache, and the next state. Growth is immediate: nothing has to start."""
    assert policy.pools is not None
    memory = state.pools.get("caching", ScalingState()).model_copy()
    bounds = policy.pools.caching
    if bounds is None:
        return None, memory
    current = nodes if observed.caching is None else min(observed.caching, nodes)
    desired = current if observed.caching_needs is None else ceil(observed.caching_needs - 1e-9)
    most = min(nodes, bounds.max_replicas or nodes)
    desired = max(1, min(max(desired, bounds.min_replicas), most))
    return max(1, min(stabilize(memory, policy.behavior, desired, current, now), most)), memory


def _reason(
    found: Mapping[str, Recommendation], pools: PoolSizes, observed: PoolsObservation, limit: Reason | None
) -> Reason:
    before, size = observed.sizes, observed.whole.members
    changed = [role for role in ROLES if getattr(pools, role) != getattr(before, role)]
    if changed and pools.nodes == size:
        return Reason.ROLES_REBALANCED
    if limit is not None:
        return limit
    if pools.nodes != size:
        up = pools.nodes > size
        moved = [role for role in changed if (getattr(pools, role) > getattr(before, role)) == up]
        return next(
            (found[role].reason for role in moved if found[role].replicas != observed.of(role).members),
            Reason.ABOVE_TARGET if up else Reason.BELOW_TARGET,
        )
    if pools.caching != before.caching and pools.caching is not None:
        more = pools.caching > (size if before.caching is None else before.caching)
        return Reason.ABOVE_TARGET if more else Reason.BELOW_TARGET
    if any(each.replicas != observed.of(role).members for role, each in found.items()):
        return Reason.WHOLE_BLOCKS
    reasons = [each.reason for each in found.values() if each.reason != Reason.DESIRED_WITHIN_RANGE]
    return reasons[0] if reasons else Reason.DESIRED_WITHIN_RANGE


def _message(reason: Reason, found: Mapping[str, Recommendation], pools: PoolSizes, observed: PoolsObservation) -> str:
    parts = []
    for role in ROLES:
        current = observed.of(role)
        work = "" if current.load is None else f", the work of {current.load:.1f} comes in"
        waits = f", {current.backlog:.0f} s wait" if current.backlog >= 1 else ""
        parts.append(f"{role} {pluralized(current.members, 'node')}{work}{waits}, goes to {getattr(pools, role)}")
    if pools.caching is not None:
        parts.append(f"caching {pools.caching}")
    return f"{'; '.join(parts)}: {SENTENCES[reason]}"
