"""Phase: play the method, with or without some of its faults, until every expectation is decided."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from matrixcommon.model.errors import MatrixError
from matrixcompute.scenarios.context import PAUSE_S_MIN, RunContext, RunEnded
from matrixcompute.scenarios.fault_injections import FaultInjection
from matrixcompute.scenarios.readings import ReadContext, evaluate
from matrixcompute.scenarios.report import Outcome
from matrixcompute.scenarios.schema import Action, Expectation, seconds
from matrixcompute.scenarios.service_clients import Snapshot
from matrixcompute.scenarios.tracking import Tracker


@dataclass
class TrackedExpectation:
    """An expectation that is being tracked, and its context."""

    tracker: Tracker
    context: ReadContext


@dataclass
class PendingVerification:
    """An action whose effect has not been seen yet."""

    action: Action
    deadline: float
    context: ReadContext


class Phase:
    """`skipped`: actions to leave out; expectations about them count from when they would have begun."""

    def __init__(
        self,
        run: RunContext,
        targets: dict[str, list[str]],
        injections: Sequence[FaultInjection],
        skipped: Sequence[str],
        expected: Sequence[Expectation],
    ) -> None:
        self._run = run
        self._targets = targets
        self._injections = injections
        self._skipped = skipped
        self._expected = list(expected)
        self._order = count()
        self._due: list[tuple[float, int, Action, bool]] = []
        self._tracked: list[TrackedExpectation] = []
        self._pending: list[PendingVerification] = []

    async def run(self) -> list[Outcome]:
        """Raises RunEnded if the run is stopped or a fault shows no effect."""
        run, started_at = self._run, self._run.clock.now()
        context = await self._read_context()
        for action in run.scenario.method:
            self._schedule(started_at + seconds(action.at), action, begins=True)
        while True:
            while self._due and self._due[0][0] <= run.clock.now() + PAUSE_S_MIN / 2:
                _, _, action, begins = heapq.heappop(self._due)
                await (self._begin(action) if begins else self._clear(action))
            now, snapshot = run.clock.now(), Snapshot(run.clients)
            await self._check_stop_conditions(snapshot, context)
            await self._verify(now, snapshot)
            for each in self._tracked:
                await self._track(each, now, snapshot)
            run.check_stopped()
            begun = not any(begins for _, _, _, begins in self._due)
            if begun and not self._pending and all(each.tracker.outcome for each in self._tracked):
                return [self._outcome(each) for each in self._expected]
            await run.pause(self._next_due())

    def _schedule(self, at: float, action: Action, *, begins: bool) -> None:
        heapq.heappush(self._due, (at, next(self._order), action, begins))

    def _next_due(self) -> float:
        """When the next thing has to be done or decided."""
        times = [at for at, _, _, _ in self._due[:1]] + [each.deadline for each in self._pending]
        times += [each.tracker.deadline for each in self._tracked if each.tracker.outcome is None]
        return min(times, default=self._run.clock.now() + self._run.poll_interval_s)

    def _outcome(self, expectation: Expectation) -> Outcome:
        found = next(each.tracker.outcome for each in self._tracked if each.tracker.expectation is expectation)
        assert found is not None
        return found

    async def _read_context(self) -> ReadContext:
        """The context as of now: events so far are not counted."""
        snapshot = Snapshot(self._run.clients)
        events = [*await snapshot.list_all("compute", "events"), *await snapshot.list_all("link", "events")]
        return ReadContext(self._run.scenario, self._targets, frozenset(each["name"] for each in events))

    # -- doing -------------------------------------------------------------------------------------------------------

    async def _begin(self, action: Action) -> None:
        run, context = self._run, await self._read_context()
        snapshot = Snapshot(run.clients)
        expected = [each for each in self._expected if run.scenario.action(each.after) is action]
        before = [(await evaluate(each, snapshot, context)).holds for each in expected]
        began_at = run.changed_at = run.clock.now()
        self._tracked += [
            TrackedExpectation(Tracker(each, began_at, met_before, limit_s_min=run.limit_s_min), context)
            for each, met_before in zip(expected, before, strict=True)
        ]
        if action.name in self._skipped:
            return
        for injection in self._injections_of(action):
            await injection.inject(run.clients, run.fault_prefix)
            run.record("injected", action.name, f"{injection.kind} on {injection.target}")
        timeout_s = max(seconds(action.verify.within), run.limit_s_min)
        self._pending.append(PendingVerification(action, began_at + timeout_s, context))
        if action.duration is not None:
            self._schedule(began_at + seconds(action.duration), action, begins=False)

    async def _clear(self, action: Action) -> None:
        """Clear an action's faults; if a service does not answer, retry at the next poll."""
        run = self._run
        try:
            for injection in self._injections_of(action):
                await injection.clear(run.clients, run.fault_prefix)
        except MatrixError as refused:
            if not refused.retryable:
                raise
            self._schedule(run.clock.now() + run.poll_interval_s, action, begins=False)
        else:
            run.changed_at = run.clock.now()
            run.record("cleared", action.name)

    def _injections_of(self, action: Action) -> list[FaultInjection]:
        return [each for each in self._injections if each.action == action.name]

    # -- observing ---------------------------------------------------------------------------------------------------

    async def _check_stop_conditions(self, snapshot: Snapshot, context: ReadContext) -> None:
        for number, each in enumerate(self._run.scenario.stop_conditions):
            if each.source is not None:
                continue
            reading = await evaluate(each, snapshot, context)
            if reading.holds:
                text = f"stopConditions[{number}]: {each.sentence()}: {reading.message}"
                self._run.record("stopped", each.sentence(), reading.message)
                raise RunEnded("STOPPED", text)

    async def _verify(self, now: float, snapshot: Snapshot) -> None:
        for each in list(self._pending):
            reading = await evaluate(each.action.verify, snapshot, each.context)
            if reading.holds:
                self._run.record("verified", each.action.name, each.action.verify.sentence())
                self._pending.remove(each)
            elif now >= each.deadline - PAUSE_S_MIN / 2:
                self._run.record("unverified", each.action.name, f"{each.action.verify.sentence()}: {reading.message}")
                effect = f"{each.action.verify.sentence()}: {reading.message}"
                raise RunEnded("INVALID", f"{each.action.name} had no effect: {effect}")

    async def _track(self, each: TrackedExpectation, now: float, snapshot: Snapshot) -> None:
        tracker = each.tracker
        if tracker.outcome is not None:
            return
        reading = await evaluate(tracker.expectation, snapshot, each.context)
        tracker.observe(now, reading.holds, reading.message)
        outcome = tracker.outcome
        if outcome is not None:
            after = "" if outcome.seconds is None else f"after {outcome.seconds:g} s"
            self._run.record("met" if outcome.passed else "missed", outcome.name, after or outcome.message)
