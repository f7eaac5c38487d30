"""Phase: play the method, with or without some of its faults, until every expectation is decided."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from matrixcommon.model.errors import MatrixError
from matrixcompute.scenarios.context import LEAST_PAUSE_S, Ended, RunContext
from matrixcompute.scenarios.readings import Frame, read
from matrixcompute.scenarios.report import Outcome
from matrixcompute.scenarios.schema import Action, Expectation, seconds
from matrixcompute.scenarios.strikes import Strike
from matrixcompute.scenarios.tracking import Tracker
from matrixcompute.scenarios.world import Look


@dataclass
class Watched:
    """An expectation that is being tracked, and its context."""

    tracker: Tracker
    frame: Frame


@dataclass
class Unproven:
    """An action whose effect has not been seen yet."""

    action: Action
    deadline: float
    frame: Frame


class Phase:
    """`skipped`: actions to leave out; expectations about them count from when they would have begun."""

    def __init__(
        self,
        run: RunContext,
        targets: dict[str, list[str]],
        strikes: Sequence[Strike],
        skipped: Sequence[str],
        expected: Sequence[Expectation],
    ) -> None:
        self._run = run
        self._targets = targets
        self._strikes = strikes
        self._skipped = skipped
        self._expected = list(expected)
        self._order = count()
        self._due: list[tuple[float, int, Action, bool]] = []
        self._watched: list[Watched] = []
        self._unproven: list[Unproven] = []

    async def run(self) -> list[Outcome]:
        """Raises Ended if the run is stopped or a fault shows no effect."""
        run, started_at = self._run, self._run.clock.now()
        frame = await self._frame()
        for action in run.scenario.method:
            self._plan(started_at + seconds(action.at), action, begins=True)
        while True:
            while self._due and self._due[0][0] <= run.clock.now() + LEAST_PAUSE_S / 2:
                _, _, action, begins = heapq.heappop(self._due)
                await (self._begin(action) if begins else self._clear(action))
            now, look = run.clock.now(), Look(run.world)
            await self._check_stop_conditions(look, frame)
            await self._verify(now, look)
            for each in self._watched:
                await self._watch(each, now, look)
            run.check_stopped()
            begun = not any(begins for _, _, _, begins in self._due)
            if begun and not self._unproven and all(each.tracker.outcome for each in self._watched):
                return [self._outcome(each) for each in self._expected]
            await run.pause(self._next())

    def _plan(self, at: float, action: Action, *, begins: bool) -> None:
        heapq.heappush(self._due, (at, next(self._order), action, begins))

    def _next(self) -> float:
        """When the next thing has to be done or decided."""
        times = [at for at, _, _, _ in self._due[:1]] + [each.deadline for each in self._unproven]
        times += [each.tracker.deadline for each in self._watched if each.tracker.outcome is None]
        return min(times, default=self._run.clock.now() + self._run.look_s)

    def _outcome(self, expectation: Expectation) -> Outcome:
        found = next(each.tracker.outcome for each in self._watched if each.tracker.expectation is expectation)
        assert found is not None
        return found

    async def _frame(self) -> Frame:
        """A frame as of now: events so far are not counted."""
        look = Look(self._run.world)
        events = [*await look.all("compute", "events"), *await look.all("link", "events")]
        return Frame(self._run.scenario, self._targets, frozenset(each["name"] for each in events))

    # -- doing -------------------------------------------------------------------------------------------------------

    async def _begin(self, action: Action) -> None:
        run, frame = self._run, await self._frame()
        look = Look(run.world)
        expected = [each for each in self._expected if run.scenario.action(each.after) is action]
        before = [(await read(each, look, frame)).holds for each in expected]
        began_at = run.changed_at = run.clock.now()
        self._watched += [
            Watched(Tracker(each, began_at, before_it, least_s=run.least_s), frame)
            for each, before_it in zip(expected, before, strict=True)
        ]
        if action.name in self._skipped:
            return
        for strike in self._of(action):
            await strike.put(run.world, run.names)
            run.note("injected", action.name, f"{strike.kind} on {strike.target}")
        patience_s = max(seconds(action.verify.within), run.least_s)
        self._unproven.append(Unproven(action, began_at + patience_s, frame))
        if action.duration is not None:
            self._plan(began_at + seconds(action.duration), action, begins=False)

    async def _clear(self, action: Action) -> None:
        """Clear an action's faults; if a service does not answer, retry at the next look."""
        run = self._run
        try:
            for strike in self._of(action):
                await strike.clear(run.world, run.names)
        except MatrixError as refused:
            if not refused.retryable:
                raise
            self._plan(run.clock.now() + run.look_s, action, begins=False)
        else:
            run.changed_at = run.clock.now()
            run.note("cleared", action.name)

    def _of(self, action: Action) -> list[Strike]:
        return [each for each in self._strikes if each.action == action.name]

    # -- observing ---------------------------------------------------------------------------------------------------

    async def _check_stop_conditions(self, look: Look, frame: Frame) -> None:
        for number, each in enumerate(self._run.scenario.stop_conditions):
            if each.source is not None:
                continue
            reading = await read(each, look, frame)
            if reading.holds:
                text = f"stopConditions[{number}]: {each.sentence()}: {reading.message}"
                self._run.note("stopped", each.sentence(), reading.message)
                raise Ended("STOPPED", text)

    async def _verify(self, now: float, look: Look) -> None:
        for each in list(self._unproven):
            reading = await read(each.action.verify, look, each.frame)
            if reading.holds:
                self._run.note("verified", each.action.name, each.action.verify.sentence())
                self._unproven.remove(each)
            elif now >= each.deadline - LEAST_PAUSE_S / 2:
                self._run.note("unverified", each.action.name, f"{each.action.verify.sentence()}: {reading.message}")
                effect = f"{each.action.verify.sentence()}: {reading.message}"
                raise Ended("INVALID", f"{each.action.name} had no effect: {effect}")

    async def _watch(self, each: Watched, now: float, look: Look) -> None:
        tracker = each.tracker
        if tracker.outcome is not None:
            return
        reading = await read(tracker.expectation, look, each.frame)
        tracker.take(now, reading.holds, reading.message)
        outcome = tracker.outcome
        if outcome is not None:
            after = "" if outcome.seconds is None else f"after {outcome.seconds:g} s"
            self._run.note("met" if outcome.passed else "missed", outcome.name, after or outcome.message)
