"""Turn CloudMatrix-Infer's statistics of a scaling policy's target into the observation that it decides from.

A value that one deployment does not report is unknown for the whole target, since a partial sum would shrink a target
that is under load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.decision import TICK_S, WINDOW_S, Observation
from matrixcompute.autoscaling.policy import PoolSizes, ScalingPolicyRequest
from matrixcompute.autoscaling.pools import PoolsObservation
from matrixcompute.clients.inference import Inference

Statistics = Mapping[str, dict[str, Any]]
"""The statistics of each deployment on the target, by key."""


async def statistics_of(
    inference: Inference, deployments: Mapping[str, Any], policy: ScalingPolicyRequest
) -> Statistics:
    over_s = WINDOW_S if policy.metrics else TICK_S
    return {each: await inference.statistics(each, over_s, policy.objective.tpot_seconds) for each in deployments}


def observe_target(observation: Observation, statistics: Statistics, policy: ScalingPolicyRequest) -> Observation:
    """The observation with what the deployments report: metrics, work, and how long they have been idle."""
    named = {each.object.described_object.name for each in policy.metrics} - {""}
    metrics: dict[str, float] = {}
    for each, shown in statistics.items():
        if shown.get("measuredS", 0) >= WINDOW_S and (not named or name_of(each) in named):
            for metric, value in numeric_statistics(shown).items():
                metrics[metric] = metrics.get(metric, 0.0) + value
    observation = replace(
        observation,
        metrics=metrics,
        idle_s=min((each.get("idleS", 0.0) for each in statistics.values()), default=None),
        waiting=sum(_waiting(each) for each in statistics.values()),
    )
    work = [shown.get("work") for shown in statistics.values()]
    if not work or any(each is None for each in work):
        return observation
    known: list[dict[str, float]] = [each for each in work if each is not None]
    return replace(
        observation,
        load=sum(each["nodes"] for each in known),
        backlog=sum(each["backlogNodeSeconds"] for each in known),
        start_s=max(each["startS"] for each in known),
        stays_s=max(each["staysS"] for each in known),
        least=max(observation.least, sum(int(each.get("decodeNodesMin", 0)) + 1 for each in known)),  # each has its own
    )


def observe_pools(
    whole: Observation, sizes: PoolSizes, view: Mapping[str, Any], statistics_view: Mapping[str, Any]
) -> PoolsObservation:
    """The observation by pool, of the target's only deployment. `sizes`: the pools decided last."""
    work = statistics_view.get("work")
    role_counts = Counter(view.get("roles", {}).values())
    prefill, decode = (
        Observation(members, min(members, role_counts[role]), start_s=whole.start_s)
        for role, members in (("prefill", sizes.prefill), ("decode", sizes.decode))
    )
    if work is None:
        return PoolsObservation(whole, prefill, decode, sizes.caching)
    block = int(work["prefillInstanceNodes"])
    return PoolsObservation(
        whole,
        replace(
            prefill,
            load=work["prefillNodes"],
            backlog=work["prefillBacklogNodeSeconds"],
            stays_s=work["promptS"],
            queues=True,
            least=min(block, sizes.prefill),
        ),
        replace(decode, load=work["decodeNodes"], stays_s=work["staysS"], least=int(work["decodeNodesMin"])),
        sizes.caching,
        work["cachingNodes"],
        block,
    )


def current_pool_sizes(decided: PoolSizes | None, nodes: int, view: Mapping[str, Any]) -> PoolSizes | None:
    """The pools of a target of `nodes` nodes: as decided, else as laid out; None if neither is known."""
    if decided is not None and decided.nodes == nodes:
        return decided
    role_counts = Counter(view.get("roles", {}).values())
    if role_counts["prefill"] and role_counts["decode"] and role_counts["prefill"] < nodes:
        return PoolSizes(prefill=role_counts["prefill"], decode=nodes - role_counts["prefill"])
    return None


def numeric_statistics(statistics: Mapping[str, Any]) -> dict[str, float]:
    """The numeric statistics of a deployment, including those of its work, by name."""
    flat = {**statistics, **(statistics.get("work") or {})}
    return {name: float(value) for name, value in flat.items() if isinstance(value, int | float) and value is not True}


def count_spares(members: Iterable[dict[str, object]]) -> int:
    """The number of an instance's spares."""
    return sum(each["role"] == "spare" for each in members)


def _waiting(statistics: Mapping[str, Any]) -> int:
    """Requests that wait for a deployment scaled to zero; built-in load counts as one."""
    return int(statistics.get("activationQueue", 0)) + (
        statistics.get("state") == "Idle" and statistics.get("load") is not None
    )
