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
from matrixcompute.autoscaling.decision import SENTENCES, Observation, Recommendation, scaled
from matrixcompute.autoscaling.node_waits import NodeWaits
from matrixcompute.autoscaling.policy import (
    PoolSizes,
    Reason,
    ScalingPolicyRequest,
    ScalingState,
    draining_text,
    owner_of,
)
from matrixcompute.autoscaling.pools import PoolsObservation, pools_scaled
from matrixcompute.autoscaling.warm_spares import recommend_with_spares, with_node_waits
from matrixcompute.clients.inference import Inference
from matrixcompute.instances.service import InstanceService
from matrixcompute.reconcilers.scaling_basis import Situation, Views, decision_basis, situation_of
from matrixcompute.reconcilers.scaling_signals import statistics_of
from matrixcompute.reconcilers.scaling_status import ScalingStatus
from matrixcompute.reconcilers.scaling_targets import Undecidable, refusal
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingMemoryRow, ScalingPolicyRow

log = logging.getLogger(__name__)

ZERO = PoolSizes(prefill=0, decode=0)


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
        policies = self._store.records.found(ScalingPolicyRow, self._store.scaling_policies)
        names = [row.name for row in policies]
        changed = 0
        for name in names:
            try:
                changed += await self._size_target(name)
            except MatrixError as refused:
                log.warning("a scaling policy waits", extra={"policy": name, "why": refused.message})
                self._status.note(name, Reason.REFUSED, refused.message)
        return f"{changed} of {len(names)} targets resized"

    async def _size_target(self, name: str) -> bool:
        """Observe one policy's target, decide, and carry the decision out. Returns whether the target was resized."""
        self._notice_return(name)
        seen = await self._observe(name)
        if seen is None:
            return False
        basis = decision_basis(seen)
        if isinstance(basis, Undecidable):
            self._status.note(name, basis.reason, basis.message)
            if seen.unable is not None and not seen.unavailable:
                await self._converge(name, seen.served)
            return False
        found = self._decide(name, basis, seen.unavailable, _changing(seen.served))
        if found is not None and found.replicas < seen.nodes:
            if not found.replicas:
                return await self._to_zero(name, seen.target, found, basis, seen.served)
            return await self._shrink(name, seen.target, found, seen.served)
        if not seen.unavailable:
            if seen.draining is not None:
                await self._end_drain(name, seen.served, seen.draining)
            await self._converge(name, seen.served)
        return found is not None and found.replicas > seen.nodes

    async def _observe(self, name: str) -> Situation | None:
        """What is stored of a policy and its target, and what is served there. None if the policy is gone."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return None
            seen = situation_of(row, session.get(InstanceRow, row.target))
        try:
            seen = replace(seen, served=await self._served(seen.target))
            if seen.unable is None:
                statistics = await statistics_of(self._reached, seen.served, seen.policy)
                seen = replace(seen, statistics=statistics)
        except Unavailable as gone:
            return replace(seen, unavailable=gone.message)
        return seen

    def _notice_return(self, name: str) -> None:
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
    def _reached(self) -> Inference:
        if self._inference is None:
            raise Unavailable("no CloudMatrix-Infer is configured")
        return self._inference

    async def _served(self, target: str) -> Views:
        return await self._reached.deployments_on(target)

    def _decide(
        self, name: str, seen: Observation | PoolsObservation, away: str, changing: bool
    ) -> Recommendation | None:
        """Decide, store the decision, and request a larger target or other pools in the same transaction. None if the
        policy or the observed size has changed meanwhile."""
        now, pools = self._clock.now(), seen if isinstance(seen, PoolsObservation) else None
        whole = seen.whole if isinstance(seen, PoolsObservation) else seen
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
                found = recommend_with_spares(with_node_waits(pools, waits), policy, state, now)
                if changing and found.replicas <= whole.members and found.replicas and found.pools != pools.sizes:
                    found = replace(found, replicas=whole.members, pools=pools.sizes, reason=Reason.CHANGE_UNDER_WAY)
            else:
                found = recommend_with_spares(with_node_waits(whole, waits), policy, state, now)
            if away:
                found = replace(found, reason=Reason.SERVICE_UNAVAILABLE, message=away)
            found = replace(found, state=self._applied(session, row, instance, policy, found, pools, now))
            if memory is None:
                session.add(memory := ScalingMemoryRow(policy=name, state={}))
            memory.state = found.state.wire()
            row.forecast_replicas = found.forecast
            if found.replicas >= whole.members or not self._status.decided_already(row, whole.members, found):
                self._status.write(session, row, whole.members, found)
        if found.replicas > whole.members:
            self._wake()
        return found

    def _applied(
        self,
        session: Any,
        row: ScalingPolicyRow,
        instance: InstanceRow,
        policy: ScalingPolicyRequest,
        found: Recommendation,
        pools: PoolsObservation | None,
        now: float,
    ) -> ScalingState:
        """Apply a change that needs no drain: more nodes, or other pools on the same nodes. Returns the next state."""
        state, nodes = found.state, 0 if row.scaled_to_zero else instance.shape.nodes
        if found.replicas < nodes:
            return state
        if not nodes:
            if found.replicas:
                self._instance_service.unsuspend(session, instance, found.replicas)
                back = state.returns_to
                row.desired_pools = back.wire() if back is not None and back.nodes == found.replicas else None
                row.last_scale_at = now
            return state
        if found.replicas > nodes:
            self._instance_service.resize(session, instance, found.replicas)
            row.last_scale_at = now
        if pools is None or found.pools is None:
            if policy.pools is None:
                row.desired_pools = None
            return scaled(state, policy, found.replicas - nodes, now) if found.replicas > nodes else state
        row.desired_pools = found.pools.wire()
        return pools_scaled(state, policy, pools.sizes, found.pools, now)

    # -- the pools -----------------------------------------------------------------------------------------------------

    async def _converge(self, name: str, served: Views) -> None:
        """Make the deployments converge to the stored pools, or to their own specs if none are stored."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return
            wanted = row.sizes
        for each, view in served.items():
            await self._rescale(name, each, view, wanted)

    async def _rescale(self, name: str, deployment: str, view: Mapping[str, Any], wanted: PoolSizes | None) -> None:
        scale, by = view.get("scale") or {}, owner_of(name)
        if wanted is None:
            if scale.get("by") == by:
                await self._reached.unscale(deployment)
            return
        asked = PoolSizes(
            prefill=scale.get("prefillNodes", -1),
            decode=scale.get("decodeNodes", -1),
            caching=scale.get("cachingNodes"),
        )
        if asked != wanted or scale.get("by") != by:
            await self._reached.rescale(deployment, wanted.prefill, wanted.decode, wanted.caching, by)

    async def _to_zero(
        self, name: str, target: str, found: Recommendation, seen: Observation | PoolsObservation, served: Views
    ) -> bool:
        """Scale the pools to zero, which is refused while requests run, then suspend the target. A request that arrives
        in between waits for both to return."""
        try:
            for each, view in served.items():
                await self._rescale(name, each, view, ZERO)
        except Conflict as busy:
            self._status.note(name, Reason.CHANGE_UNDER_WAY, busy.message)
            await self._converge(name, await self._served(target))
            return False
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or row.scaled_to_zero or not served:
                return False
            self._status.write(session, row, instance.shape.nodes, found)
            self._instance_service.suspend(session, instance)
            returns_to = seen.sizes if isinstance(seen, PoolsObservation) else None
            memory.state = found.state.model_copy(update={"returns_to": returns_to}).wire()
            row.desired_pools, row.draining, row.last_scale_at = ZERO.wire(), None, now
        self._wake()
        return True

    # -- shrinking -----------------------------------------------------------------------------------------------------

    async def _shrink(self, name: str, target: str, found: Recommendation, served: Views) -> bool:
        """Drain the leaving nodes, and resize once nothing runs on them. Returns whether the target was resized."""
        if self._withdraw_refused(name, target, found):
            return True
        leaving = await self._leaving(name, target, found.replicas)
        if leaving is None:
            self._status.note(name, Reason.CHANGE_UNDER_WAY, SENTENCES[Reason.CHANGE_UNDER_WAY])
            return False
        if found.pools is not None:
            for each, view in served.items():
                await self._rescale(name, each, view, found.pools)
        asked = list(served) if leaving else []
        drains = [(await self._reached.drain(each, leaving, by=owner_of(name))).get("drain") or {} for each in asked]
        running = [each for each in drains if each.get("state", "Drained") != "Drained"]
        if running:
            requests = sum(each.get("requests", 0) for each in running)
            self._status.note(name, Reason.DRAINING, draining_text(requests, ", ".join(leaving)))
            return False
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or row.draining != leaving:
                return False
            self._status.write(session, row, instance.shape.nodes, found)
            change = found.replicas - instance.shape.nodes
            self._instance_service.resize(session, instance, found.replicas, leaving)
            state = ScalingState.of(memory.state)
            before = row.sizes
            if found.pools is not None and before is not None:
                memory.state = pools_scaled(state, row.policy, before, found.pools, now).wire()
            else:
                memory.state = scaled(state, row.policy, change, now).wire()
            row.desired_pools = None if found.pools is None else found.pools.wire()
            row.draining, row.last_scale_at = None, now
        self._wake()
        return True

    def _withdraw_refused(self, name: str, target: str, found: Recommendation) -> bool:
        """Before any node leaves, withdraw the request for nodes that were refused. Returns whether there were any."""
        now = self._clock.now()
        with self._store.transaction() as session:
            row, instance = session.get(ScalingPolicyRow, name), session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or instance.last_active is None:
                return False
            asked, size = instance.shape.nodes, max(found.replicas, instance.last_active.nodes)
            if refusal(instance) is None or size >= asked:
                return False
            self._instance_service.resize(session, instance, size)
            memory.state = scaled(ScalingState.of(memory.state), row.policy, size - asked, now).wire()
            row.desired_pools = found.pools.wire() if found.pools is not None and found.pools.nodes == size else None
            row.draining, row.last_scale_at = None, now
        self._wake()
        return True

    async def _leaving(self, name: str, target: str, nodes: int) -> list[str] | None:
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
            marked, shape = row.draining or [], instance.shape.model_copy(update={"nodes": nodes})
        if leaves and len(marked) == leaves and members.issuperset(marked):
            return list(marked)
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
        for each, view in served.items():
            drain = view.get("drain") or {}
            # Drains by earlier releases, where policies did not name themselves, have no owner.
            if drain.get("by") == owner_of(name) or (not drain.get("by") and drain.get("nodes") == sorted(draining)):
                await self._reached.undrain(each)
        with self._store.transaction() as session:
            if (row := session.get(ScalingPolicyRow, name)) is not None:
                row.draining = None


def _changing(served: Views) -> bool:
    """Whether a deployment is still changing to the pools requested last."""
    return any((view.get("scale") or {}).get("state") == "Changing" for view in served.values())
