"""Autoscaling: each policy looks at its target and what is served there, decides, and has the target resized.

A decision, its memory and the change of the target's spec are one transaction: a crash finds all of them or none, and
the next look continues there. Shrinking takes several looks: who would leave is written down and drained first, and
the target is resized when nothing runs there any more. Without CloudMatrix-Infer nothing shrinks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError, Unavailable
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.decision import SENTENCES, Observation, Recommendation, recommend, scaled
from matrixcompute.autoscaling.policy import Reason, ScalingDecision, ScalingPolicyRequest, ScalingState
from matrixcompute.clients.inference import Inference
from matrixcompute.instances.service import InstanceService
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingMemoryRow, ScalingPolicyRow

log = logging.getLogger(__name__)

WINDOW_S = 30.0
"""Over which what comes in is measured."""
DECISIONS_KEPT = 10
SCALABLE = ("Active", "Updating", "Repairing")
LIMITS = (Reason.TOO_MANY_REPLICAS, Reason.TOO_FEW_REPLICAS, Reason.SCALE_UP_LIMIT, Reason.SCALE_DOWN_LIMIT)
UNMEASURED = (Reason.METRIC_UNAVAILABLE, Reason.SERVICE_UNAVAILABLE)
UNABLE = (Reason.TARGET_NOT_FOUND, Reason.TARGET_NOT_READY, Reason.REFUSED)


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

    async def reconcile(self) -> str:
        """Look at every policy once. What goes wrong with one is written into it and keeps none of the others."""
        with self._store.reading() as session:
            names = [row.name for row in self._store.scaling_policies(session)]
        changed = 0
        for name in names:
            try:
                changed += await self._look(name)
            except MatrixError as refused:
                log.warning("a scaling policy waits", extra={"policy": name, "why": refused.message})
                self._note(name, Reason.REFUSED, refused.message)
        return f"{changed} of {len(names)} targets resized"

    async def _look(self, name: str) -> bool:
        """One policy; whether its target was resized."""
        with self._store.reading() as session:
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                return False
            target, policy, marked = row.target, row.policy, row.draining
            instance = session.get(InstanceRow, target)
            if instance is None or instance.state not in SCALABLE or instance.shape.power == "Off":
                missing = instance is None
                reason = Reason.TARGET_NOT_FOUND if missing else Reason.TARGET_NOT_READY
            else:
                reason = None
                observation = Observation(instance.shape.nodes, instance.ready_nodes)
        if reason is not None:
            self._note(name, reason, SENTENCES[reason])
            return False
        deployments: list[str] = []
        away = ""
        try:
            deployments = await self._deployments(target)
            observation = await self._observed(observation, deployments, policy)
        except Unavailable as gone:
            away = gone.message
        found = self._decide(name, observation, away)
        if found is None or found.replicas >= observation.members:
            if marked is not None and not away:
                await self._stay(name, deployments)
            return found is not None and found.replicas > observation.members
        return await self._shrink(name, target, found, deployments)

    # -- deciding ------------------------------------------------------------------------------------------------------

    async def _deployments(self, target: str) -> list[str]:
        if self._inference is None:
            raise Unavailable("no CloudMatrix-Infer is configured")
        return await self._inference.served_on(target)

    async def _observed(
        self, observation: Observation, deployments: Sequence[str], policy: ScalingPolicyRequest
    ) -> Observation:
        """With what the deployments on the target say; what one of them does not say is not known of any."""
        assert self._inference is not None
        named = {each.object.described_object.name for each in policy.metrics} - {""}
        statistics = {each: await self._inference.statistics(each, WINDOW_S) for each in deployments}
        metrics: dict[str, float] = {}
        for each, shown in statistics.items():
            if shown.get("measuredS", 0) >= WINDOW_S and (not named or name_of(each) in named):
                for metric, value in numbers(shown).items():
                    metrics[metric] = metrics.get(metric, 0.0) + value
        work = [shown.get("work") for shown in statistics.values()]
        if not work or any(each is None for each in work):
            return replace(observation, metrics=metrics)
        known: list[dict[str, float]] = [each for each in work if each is not None]
        return replace(
            observation,
            metrics=metrics,
            load=sum(each["nodes"] for each in known),
            backlog=sum(each["backlogNodeSeconds"] for each in known),
            start_s=max(each["startS"] for each in known),
            stays_s=max(each["staysS"] for each in known),
        )

    def _decide(self, name: str, observation: Observation, away: str) -> Recommendation | None:
        """Decide and write it down; a larger target is asked for in the same transaction. None where the policy or
        what was observed has changed meanwhile."""
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = None if row is None else session.get(InstanceRow, row.target)
            if row is None or instance is None or instance.shape.nodes != observation.members:
                return None
            blocks = [each.nodes for each in instance.shape.placement.blocks or []]
            least = max(row.policy.min_replicas, instance.shape.min_nodes or 0)
            policy = row.policy.model_copy(
                update={"block": lcm(row.policy.block, *blocks), "min_replicas": min(least, row.policy.max_replicas)}
            )
            memory = session.get(ScalingMemoryRow, name)
            state = ScalingState.of(memory.state if memory is not None else None)
            found = recommend(observation, policy, state, now)
            if away:
                found = replace(found, reason=Reason.SERVICE_UNAVAILABLE, message=away)
            if found.replicas > observation.members:
                self._instance_service.resize(session, instance, found.replicas)
                change = found.replicas - observation.members
                found = replace(found, state=scaled(found.state, policy, change, now))
                row.last_scale_at = now
            if memory is None:
                session.add(memory := ScalingMemoryRow(policy=name, state={}))
            memory.state = found.state.wire()
            row.forecast_replicas = found.forecast
            self._write(session, row, observation.members, found.replicas, found.reason, found.message)
        if found.replicas > observation.members:
            self._wake()
        return found

    def _write(
        self, session: Any, row: ScalingPolicyRow, current: int, desired: int, reason: Reason, message: str
    ) -> None:
        """What was decided, if that is news: into the status, the conditions, and for a change into an event."""
        now = self._clock.now()
        if (row.current_replicas, row.desired_replicas, row.reason) == (current, desired, reason):
            return
        changes = desired != row.desired_replicas and desired != current
        row.current_replicas, row.desired_replicas, row.reason, row.message = current, desired, reason, message
        decision = ScalingDecision(
            at=timestamp(now), current_replicas=current, desired_replicas=desired, reason=reason, message=message
        )
        row.decisions = [*(row.decisions or []), decision.wire()][-DECISIONS_KEPT:]
        active, able, limited = reason not in (*UNMEASURED, *UNABLE), reason not in UNABLE, reason in LIMITS
        row.set_condition("ScalingActive", active, "ValidMetricFound" if active else reason, message, now)
        row.set_condition("AbleToScale", able, "ReadyForNewScale" if able else reason, message, now)
        row.set_condition("ScalingLimited", limited, reason if limited else "DesiredWithinRange", message, now)
        if changes:
            text = f"scaling policy {name_of(row.name)}: {message}"
            self._store.record_event(session, row.target, reason, text, now)

    def _note(self, name: str, reason: Reason, message: str) -> None:
        """That nothing is changed, and why."""
        with self._store.transaction() as session:
            if (row := session.get(ScalingPolicyRow, name)) is not None:
                instance = session.get(InstanceRow, row.target)
                nodes = 0 if instance is None else instance.shape.nodes
                desired = row.desired_replicas if reason == Reason.DRAINING else nodes
                self._write(session, row, nodes, desired, reason, message)

    # -- shrinking -----------------------------------------------------------------------------------------------------

    async def _shrink(self, name: str, target: str, found: Recommendation, deployments: Sequence[str]) -> bool:
        """Have those drained who leave; resize once nothing runs there. Whether it was resized."""
        assert self._inference is not None
        leaving = await self._leaving(name, target, found.replicas)
        if leaving is None:
            self._note(name, Reason.CHANGE_UNDER_WAY, SENTENCES[Reason.CHANGE_UNDER_WAY])
            return False
        asked = deployments if leaving else ()
        drains = [(await self._inference.drain(each, leaving)).get("drain") or {} for each in asked]
        running = [each for each in drains if each.get("state", "Drained") != "Drained"]
        if running:
            requests = sum(each.get("requests", 0) for each in running)
            self._note(
                name, Reason.DRAINING, f"{requests} requests run on nodes that are to leave: {', '.join(leaving)}"
            )
            return False
        now = self._clock.now()
        with self._store.transaction() as session:
            row = session.get(ScalingPolicyRow, name)
            instance = session.get(InstanceRow, target)
            memory = session.get(ScalingMemoryRow, name)
            if row is None or instance is None or memory is None or row.draining != leaving:
                return False
            change = found.replicas - instance.shape.nodes
            self._instance_service.resize(session, instance, found.replicas, leaving)
            memory.state = scaled(ScalingState.of(memory.state), row.policy, change, now).wire()
            row.draining, row.last_scale_at = None, now
        self._wake()
        return True

    async def _leaving(self, name: str, target: str, nodes: int) -> list[str] | None:
        """Who leaves, written down before anybody is drained; None while a change is under way. Nobody has to where
        members are missing anyway."""
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

    async def _stay(self, name: str, deployments: Sequence[str]) -> None:
        """End a drain: the target keeps its nodes."""
        assert self._inference is not None
        for each in deployments:
            await self._inference.undrain(each)
        with self._store.transaction() as session:
            if (row := session.get(ScalingPolicyRow, name)) is not None:
                row.draining = None


def numbers(statistics: dict[str, Any]) -> dict[str, float]:
    """The figures of a deployment's statistics and of its work, by their names."""
    flat = {**statistics, **(statistics.get("work") or {})}
    return {name: float(value) for name, value in flat.items() if isinstance(value, int | float) and value is not True}
