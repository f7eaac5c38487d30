"""recommend_with_spares: the size for the times that nodes really take to start, with the target's own spares as a
tier of capacity. Pure, like `recommend`.

The observation's start time is from a node being ready to it serving; before that it boots, or joins from a spare.
A spare has booted and serves sooner than a free node, so capacity that is needed before a free node could serve need
not be members: spares can cover it. The size is decided twice, once as if every new node had to boot, once as if every
one came from a spare. The difference is covered by warm spares, as far as there are any; the rest are members. So
members and warm spares together are never fewer than the decision for booting nodes, and members never fewer than the
decision for joining spares.

Spares that are still booting count: within the horizon of the first decision they are ready, as a free node taken now
would be.
"""

from __future__ import annotations

from dataclasses import replace

from matrixcommon.model.quantities import pluralized
from matrixcompute.autoscaling.decision import SENTENCES, Observation, Recommendation, recommend
from matrixcompute.autoscaling.node_waits import NodeWaits
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import ROLES, PoolsObservation, recommend_pools


def recommend_with_spares(
    observed: Observation | PoolsObservation, policy: ScalingPolicySpec, state: ScalingState, now: float
) -> Recommendation:
    """Recommend the size for this moment; with `warmSpares` 0, as if every new node had to boot."""
    whole = observed.whole if isinstance(observed, PoolsObservation) else observed
    booted = _recommend(_with_later_start(observed, whole.boot_s), policy, state, now)
    if not policy.warm_spares:
        return booted
    joined = _recommend(_with_later_start(observed, whole.join_s), policy, state.joined or ScalingState(), now)
    if not booted.replicas:
        return booted
    found = replace(booted, state=booted.state.model_copy(update={"joined": joined.state}))
    spares_left = min(whole.spares, policy.warm_spares)
    if booted.pools is None or joined.pools is None:
        covered = _whole_blocks(min(spares_left, booted.replicas - joined.replicas), policy.block)
        return _cover_with_spares(found, covered, found.pools, whole, joined)
    assert isinstance(observed, PoolsObservation)
    sizes = {role: getattr(booted.pools, role) for role in ROLES}
    for role in ROLES:
        gap = sizes[role] - getattr(joined.pools, role)
        covered_here = _whole_blocks(min(spares_left, gap), max(policy.block, observed.block(role)))
        sizes[role], spares_left = sizes[role] - covered_here, spares_left - covered_here
    caching = booted.pools.caching
    pools = PoolSizes(**sizes, caching=None if caching is None else min(caching, sum(sizes.values())))
    return _cover_with_spares(found, booted.pools.nodes - pools.nodes, pools, whole, joined)


def with_node_waits(observed: Observation | PoolsObservation, waits: NodeWaits) -> Observation | PoolsObservation:
    """The observation with these waits for new nodes."""
    if isinstance(observed, PoolsObservation):
        return replace(observed, whole=replace(observed.whole, boot_s=waits.boot_s, join_s=waits.join_s))
    return replace(observed, boot_s=waits.boot_s, join_s=waits.join_s)


def _recommend(
    observed: Observation | PoolsObservation, policy: ScalingPolicySpec, state: ScalingState, now: float
) -> Recommendation:
    if isinstance(observed, PoolsObservation):
        return recommend_pools(observed, policy, state, now)
    return recommend(observed, policy, state, now)


def _with_later_start(observed: Observation | PoolsObservation, delay_s: float) -> Observation | PoolsObservation:
    """The observation with a start time longer by `delay_s`."""
    if isinstance(observed, PoolsObservation):
        prefill, decode = (
            replace(each, start_s=each.start_s + delay_s) for each in (observed.prefill, observed.decode)
        )
        return replace(observed, prefill=prefill, decode=decode)
    return replace(observed, start_s=observed.start_s + delay_s)


def _whole_blocks(nodes: int, block: int) -> int:
    return max(0, nodes) // block * block


def _cover_with_spares(
    found: Recommendation, covered: int, pools: PoolSizes | None, whole: Observation, joined: Recommendation
) -> Recommendation:
    if not covered:
        return found
    replicas, reason = found.replicas - covered, Reason.SPARES_COVER
    if replicas > whole.members:
        reason = joined.reason if joined.replicas > whole.members else found.reason
    has = f"{pluralized(whole.members, 'node')} and {pluralized(whole.spares, 'spare')}"
    message = f"{has}; {found.replicas} proposed, {covered} of them covered by spares, goes to {replicas}: "
    return replace(found, replicas=replicas, pools=pools, reason=reason, message=message + SENTENCES[reason])
