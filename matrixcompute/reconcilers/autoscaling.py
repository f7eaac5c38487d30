"""Autoscaling: for each policy, observe the target and its deployments, decide, and resize the target.

A decision, its state and the change of the target's spec are one transaction, so a crash leaves all of them or none,
and the next tick continues from there. The decided pools are a column of the policy, and every tick makes the
deployments converge to it. Shrinking takes several ticks: the leaving nodes are recorded and drained first, and the
target is resized once nothing runs on them. On the way to zero the pools go before the nodes, so a request that arrives
in between waits and brings both back. Without CloudMatrix-Infer nothing shrinks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import lcm
from typing import Any

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, MatrixError, Unavailable
from matrixcompute.autoscaling.behavior import bounds
from matrixcompute.autoscaling.decision import SENTENCES, Observation, Recommendation, state_after_scaling
from matrixcompute.autoscaling.node_waits import NodeWaits
from matrixcompute.autoscaling.policy import (
    PoolSizes,
    Reason,
    ScalingPolicyRequest,
    ScalingState,
    draining_text,
    owner_of,
)
from matrixcompute.autoscaling.pools import PoolsObservation, state_after_pool_scaling
from matrixcompute.autoscaling.warm_spares import recommend_with_spares, with_node_waits
from matrixcompute.clients.inference import Inference
from matrixcompute.instances.service import InstanceService
from matrixcompute.reconcilers.scaling_basis import Situation, Views, decision_basis, read_situation
from matrixcompute.reconcilers.scaling_signals import statistics_of
from matrixcompute.reconcilers.scaling_status import ScalingStatus
from matrixcompute.reconcilers.scaling_targets import Undecidable, refusal
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingMemoryRow, ScalingPolicyRow

log = logging.getLogger(__name__)

ZERO_POOLS = PoolSizes(prefill=0, decode=0)


class AutoscalingReconciler:
    """`reconcile` once per tick. `wake` is called after a target was resized."""

    def __init__(
        self,
        store: ComputeStore,
        instance_service: InstanceService,
        inference: Inference | None,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._instance_service = instance_service
        self._inference = inference
        self._clock = clock
        self._wake = wake
        self._status = ScalingStatus(store, clock)

    async def reconcile(self) -> str:
        """Process every policy once. An error of one is recorded in its status and does not stop the others."""
        policies = self._store.records.query_unless_known_empty(ScalingPolicyRow, self._store.scaling_policies)
        names = [row.name for row in policies]
        changed = 0
        for name in names:
            try:
                changed += await self._size_target(name)
            except MatrixError as refused:
                log.warning("a scaling policy waits", extra={"policy": name, "why": refused.message})
                self._status.record_unchanged(name, Reason.REFUSED, refused.message)
        return f"{changed} of {len(names)} targets resized"

    async def _size_target(self, name: str) -> bool:
        """Observe one policy's target, decide, and carry the decision out. Returns whether the target was resized."""
        self._resume_sizing(name)
        situation = await self._observe(name)
        if situation is None:
            return False
        basis = decision_basis(situation)
        if isinstance(basis, Undecidable):
            self._status.record_unchanged(name, basis.reason, basis.message)
            if situation.not_scalable is not None and not situation.unavailable:
                await self._converge(name, situation.served)
            return False
        recommendation = self._decide(name, basis, situation.unavailable, _changing(situation.served))
        if recommendation is not None and recommendation.replicas < situation.nodes:
            if not recommendation.replicas:
                return await self._scale_to_zero(name, situation.target, recommendation, basis, situation.served)
            return await self._shrink(name, situation.target, recommendation, situation.served)
        if not situation.unavailable:
            if situation.draining is not None:
                await self._end_drain(name, situation.served, situation.draining)
            await self._converge(name, situation.served)
        return recommendation is not None and recommendation.replicas > situation.nodes

    async def _observe(self, name: str) -> Situation | None:
        """What is stored of a policy and its target, and what is served there. None if the policy is gone."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return None
            situation = read_situation(row, session.get(InstanceRow, row.target))
        try:
            situation = replace(situation, served=await self._deployments(situation.target))
            if situation.not_scalable is None:
                statistics = await statistics_of(self._required_inference, situation.served, situation.policy)
                situation = replace(situation, statistics=statistics)
        except Unavailable as error:
            return replace(situation, unavailable=error.message)
        return situation

    def _resume_sizing(self, name: str) -> None:
        """Resume normal sizing of a target that was scaled to zero and has since been unsuspended or recreated."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None or not row.scaled_to_zero:
                return
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, row.target) if row is not None else None
            if row is not None and row.scaled_to_zero and instance is not None and not instance.shape.suspend:
                row.desired_pools = None

    # -- deciding ------------------------------------------------------------------------------------------------------

    @property
    def _required_inference(self) -> Inference:
        if self._inference is None:
            raise Unavailable("no CloudMatrix-Infer is configured")
        return self._inference

    async def _deployments(self, target: str) -> Views:
        return await self._required_inference.deployments_on(target)

    def _decide(
        self, name: str, observed: Observation | PoolsObservation, unavailable: str, changing: bool
    ) -> Recommendation | None:
        """Decide, store the decision, and request a larger target or other pools in the same transaction. None if the
        policy or the observed size has changed meanwhile."""
        now, pools = self._clock.now(), observed if isinstance(observed, PoolsObservation) else None
        whole = observed.whole if isinstance(observed, PoolsObservation) else observed
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = None if row is None else session.get(InstanceRow, row.target)
            if row is None or instance is None or (0 if row.scaled_to_zero else instance.shape.nodes) != whole.members:
                return None
            blocks = [each.nodes for each in instance.shape.placement.blocks or []]
            policy = row.policy.model_copy(update={"block": lcm(row.policy.block, *blocks)})
            least, most = bounds(policy)
            if most < max(least, policy.block):
                raise Conflict(
                    f"nodes come {policy.block} at a time, in blocks of the policy and of the target's placement, but "
                    f"no multiple of that is between minReplicas, {policy.min_replicas}, and maxReplicas, "
                    f"{policy.max_replicas}"
                )
            memory = session.get(ScalingMemoryRow, name)
            state = ScalingState.of(memory.state if memory is not None else None)
            waits = NodeWaits.of(instance.node_waits)
            if pools is not None and policy.pools is not None:
                recommendation = recommend_with_spares(with_node_waits(pools, waits), policy, state, now)
                if (
                    changing
                    and recommendation.replicas <= whole.members
                    and recommendation.replicas
                    and recommendation.pools != pools.sizes
                ):
                    recommendation = replace(
                        recommendation, replicas=whole.members, pools=pools.sizes, reason=Reason.CHANGE_UNDER_WAY
                    )
            else:
                recommendation = recommend_with_spares(with_node_waits(whole, waits), policy, state, now)
            if unavailable:
                recommendation = replace(recommendation, reason=Reason.SERVICE_UNAVAILABLE, message=unavailable)
            recommendation = replace(
                recommendation, state=self._apply_change(session, row, instance, policy, recommendation, pools, now)
            )
            if memory is None:
                session.add(memory := ScalingMemoryRow(policy=name, state={}))
            memory.state = recommendation.state.wire()
            row.forecast_replicas = recommendation.forecast
            if recommendation.replicas >= whole.members or not self._status.is_repeated(
                row, whole.members, recommendation
            ):
                self._status.write(session, row, whole.members, recommendation)
        if recommendation.replicas > whole.members:
            self._wake()
        return recommendation

    def _apply_change(
        self,
        session: Any,
        row: ScalingPolicyRow,
        instance: InstanceRow,
        policy: ScalingPolicyRequest,
        recommendation: Recommendation,
        pools: PoolsObservation | None,
        now: float,
    ) -> ScalingState:
        """Apply a change that needs no drain: more nodes, or other pools on the same nodes. Returns the next state."""
        state, nodes = recommendation.state, 0 if row.scaled_to_zero else instance.shape.nodes
        if recommendation.replicas < nodes:
            return state
        if not nodes:
            if recommendation.replicas:
                self._instance_service.unsuspend(session, instance, recommendation.replicas)
                returns_to = state.returns_to
                row.desired_pools = (
                    returns_to.wire()
                    if returns_to is not None and returns_to.nodes == recommendation.replicas
                    else None
                )
                row.last_scale_at = now
            return state
        if recommendation.replicas > nodes:
            self._instance_service.resize(session, instance, recommendation.replicas)
            row.last_scale_at = now
        if pools is None or recommendation.pools is None:
            if policy.pools is None:
                row.desired_pools = None
            return (
                state_after_scaling(state, policy, recommendation.replicas - nodes, now)
                if recommendation.replicas > nodes
                else state
            )
        row.desired_pools = recommendation.pools.wire()
        return state_after_pool_scaling(state, policy, pools.sizes, recommendation.pools, now)

    # -- the pools -----------------------------------------------------------------------------------------------------

    async def _converge(self, name: str, served: Views) -> None:
        """Make the deployments converge to the stored pools, or to their own specs if none are stored."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return
            desired = row.sizes
        for deployment, view in served.items():
            await self._rescale(name, deployment, view, desired)

    async def _rescale(self, name: str, deployment: str, view: Mapping[str, Any], desired: PoolSizes | None) -> None:
        scale, by = view.get("scale") or {}, owner_of(name)
        if desired is None:
            if scale.get("by") == by:
                await self._required_inference.unscale(deployment)
            return
        requested = PoolSizes(
            prefill=scale.get("prefillNodes", -1),
            decode=scale.get("decodeNodes", -1),
            caching=scale.get("cachingNodes"),
        )
        if requested != desired or scale.get("by") != by:
            await self._required_inference.rescale(deployment, desired.prefill, desired.decode, desired.caching, by)

    async def _scale_to_zero(
        self,
        name: str,
        target: str,
        recommendation: Recommendation,
        observed: Observation | PoolsObservation,
        served: Views,
    ) -> bool:
        """Scale the pools to zero, which is refused while requests run, then suspend the target. A request that arrives
        in between waits for both to return."""
        try:
            for deployment, view in served.items():
                await self._rescale(name, deployment, view, ZERO_POOLS)
        except Conflict as conflict:
            self._status.record_unchanged(name, Reason.CHANGE_UNDER_WAY, conflict.message)
            await self._converge(name, await self._deployments(target))
            return False
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or row.scaled_to_zero or not served:
                return False
            self._status.write(session, row, instance.shape.nodes, recommendation)
            self._instance_service.suspend(session, instance)
            returns_to = observed.sizes if isinstance(observed, PoolsObservation) else None
            memory.state = recommendation.state.model_copy(update={"returns_to": returns_to}).wire()
            row.desired_pools, row.draining, row.last_scale_at = ZERO_POOLS.wire(), None, now
        self._wake()
        return True

    # -- shrinking -----------------------------------------------------------------------------------------------------

    async def _shrink(self, name: str, target: str, recommendation: Recommendation, served: Views) -> bool:
        """Drain the leaving nodes, and resize once nothing runs on them. Returns whether the target was resized."""
        if self._withdraw_refused(name, target, recommendation):
            return True
        leaving = await self._select_leaving(name, target, recommendation.replicas)
        if leaving is None:
            self._status.record_unchanged(name, Reason.CHANGE_UNDER_WAY, SENTENCES[Reason.CHANGE_UNDER_WAY])
            return False
        if recommendation.pools is not None:
            for each, view in served.items():
                await self._rescale(name, each, view, recommendation.pools)
        requested = list(served) if leaving else []
        drains = [
            (await self._required_inference.drain(each, leaving, by=owner_of(name))).get("drain") or {}
            for each in requested
        ]
        running = [each for each in drains if each.get("state", "Drained") != "Drained"]
        if running:
            requests = sum(each.get("requests", 0) for each in running)
            self._status.record_unchanged(name, Reason.DRAINING, draining_text(requests, ", ".join(leaving)))
            return False
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or row.draining != leaving:
                return False
            self._status.write(session, row, instance.shape.nodes, recommendation)
            change = recommendation.replicas - instance.shape.nodes
            self._instance_service.resize(session, instance, recommendation.replicas, leaving)
            state = ScalingState.of(memory.state)
            before = row.sizes
            if recommendation.pools is not None and before is not None:
                memory.state = state_after_pool_scaling(state, row.policy, before, recommendation.pools, now).wire()
            else:
                memory.state = state_after_scaling(state, row.policy, change, now).wire()
            row.desired_pools = None if recommendation.pools is None else recommendation.pools.wire()
            row.draining, row.last_scale_at = None, now
        self._wake()
        return True

    def _withdraw_refused(self, name: str, target: str, recommendation: Recommendation) -> bool:
        """Before any node leaves, withdraw the request for nodes that were refused. Returns whether there were any."""
        now = self._clock.now()
        with self._store.transaction() as session:
            row, instance = session.get(ScalingPolicyRow, name), session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or instance.last_active is None:
                return False
            requested, size = instance.shape.nodes, max(recommendation.replicas, instance.last_active.nodes)
            if refusal(instance) is None or size >= requested:
                return False
            self._instance_service.resize(session, instance, size)
            memory.state = state_after_scaling(ScalingState.of(memory.state), row.policy, size - requested, now).wire()
            row.desired_pools = (
                recommendation.pools.wire()
                if recommendation.pools is not None and recommendation.pools.nodes == size
                else None
            )
            row.draining, row.last_scale_at = None, now
        self._wake()
        return True

    async def _select_leaving(self, name: str, target: str, nodes: int) -> list[str] | None:
        """Return the members that will leave, and record them before any drain starts. None while another change is in
        progress; an empty list if missing members make up for it."""
        with self._store.reading() as session:
            row, instance = session.get(ScalingPolicyRow, name), session.get(InstanceRow, target)
            if row is None or instance is None:
                return None
            settled = instance.state == "Active" and instance.generation == instance.observed_generation
            members = {each["node"] for each in instance.members or [] if each["role"] == "member"}
            missing = next((each for each in instance.conditions or [] if each["reason"] == "MembersMissing"), None)
            if not settled or (len(members) != instance.shape.nodes and missing is None):
                return None
            leaves = max(0, len(members) - nodes)
            recorded, shape = row.draining or [], instance.shape.model_copy(update={"nodes": nodes})
        if leaves and len(recorded) == leaves and members.issuperset(recorded):
            return list(recorded)
        leaving: list[str] = []
        if leaves:
            plan = await self._instance_service.ensure(target, shape, validate_only=True)
            leaving = sorted(members - {each.node for each in plan.members if each.role == "member"})
        if len(leaving) != leaves:
            return None
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return None
            row.draining = leaving
        return leaving

    async def _end_drain(self, name: str, served: Views, draining: list[str]) -> None:
        """End this policy's drain, so that the target keeps its nodes. A drain of another owner, such as a repair,
        continues."""
        for deployment, view in served.items():
            drain = view.get("drain") or {}
            # Drains by earlier releases, where policies did not name themselves, have no owner.
            if drain.get("by") == owner_of(name) or (not drain.get("by") and drain.get("nodes") == sorted(draining)):
                await self._required_inference.undrain(deployment)
        with self._store.transaction() as session:
            if (row := session.get(ScalingPolicyRow, name)) is not None:
                row.draining = None


def _changing(served: Views) -> bool:
    """Whether a deployment is still changing to the pools requested last."""
    return any((view.get("scale") or {}).get("state") == "Changing" for view in served.values())
