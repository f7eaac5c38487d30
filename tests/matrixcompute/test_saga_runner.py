"""What the saga runner promises of any verb: steps in their order, undone in reverse, taken up after a kill at any
durable write, looked at again on its clock or at a nudge, and ended by the verb that overtakes it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import looptime
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, InsufficientCapacity, MatrixError, Unavailable
from matrixcommon.persistence.database_session import Database
from matrixcompute.contract import InstanceRequest
from matrixcompute.operations.saga import WAIT_S, Saga, SagaRunner, Step, StepContext, StepFunction, StepPending
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.store.store import Base, ComputeStore, EventRow, InstanceRow, SagaRow
from services.chassis.database import DatabaseEngine
from tests.clocks import LoopClock

DO, UNDO = "do", "undo"
Call = tuple[str, int]
"""A step done or undone, by its place in the saga."""


class Killed(BaseException):
    """The process ends here."""


class World:
    """What the steps act on. It outlives every process: which effects there are, and every call that reached it."""

    def __init__(self, steps: int, undoable: set[int] | None = None, refused: int | None = None) -> None:
        """`refused`: the step that is refused for good, however often it is asked."""
        self.refused = refused
        self.effects: set[int] = set()
        self.calls: list[Call] = []
        self.raises: dict[Call, list[Exception]] = defaultdict(list)
        """What a call answers with before it succeeds, in this order."""
        undoable = set(range(steps)) if undoable is None else undoable
        self.saga = Saga(
            "test",
            tuple(Step(self._step(DO, at), self._step(UNDO, at) if at in undoable else None) for at in range(steps)),
            refused=_refused,
        )
        self.undoable = undoable

    def _step(self, kind: str, at: int) -> StepFunction:
        async def step(context: StepContext) -> None:
            self.calls.append((kind, at))
            await asyncio.sleep(1)
            if self.raises[kind, at]:
                raise self.raises[kind, at].pop(0)
            if (kind, at) == (DO, self.refused):
                raise InsufficientCapacity("no room")
            (self.effects.add if kind == DO else self.effects.discard)(at)

        step.__name__ = f"{kind}_{at}"
        return step

    def order(self) -> list[Call]:
        """The calls without those that only say again what the one before said."""
        return [call for at, call in enumerate(self.calls) if at == 0 or call != self.calls[at - 1]]


def _refused(session: Session, instance: InstanceRow, refused: MatrixError, now: float) -> None:
    instance.move("Pending")


class KillingStore(ComputeStore):
    """Ends the process at its `at`-th transaction, right before or right after that is committed."""

    at: int | None = None
    before: bool = False
    transactions = 0
    killed = False

    @contextlib.contextmanager
    def transaction(self, dry: bool = False) -> Iterator[Any]:
        self.transactions += 1
        self.killed |= (kills := self.transactions == self.at)
        with super().transaction(dry) as session:
            yield session
            if kills and self.before:
                raise Killed
        if kills:
            raise Killed


class Process:
    """One life of the runner on a database that outlives it."""

    def __init__(self, folder: Path, *sagas: Saga) -> None:
        self.database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        Base.metadata.create_all(self.database.engine)
        self.clock = LoopClock()
        self.store = KillingStore(Database(self.database.sessions, Base.metadata, self.clock))
        # No step of these sagas asks a neighbour anything.
        self.runner = SagaRunner(
            {saga.verb: saga for saga in sagas},
            self.store,
            None,
            self.clock,
            RecoveryPolicy(),  # type: ignore[arg-type]
        )

    def open(self, verb: str = "test", instance: str = "one") -> str:
        """Write a saga down for an instance, which is made where there is none."""
        with self.store.transaction() as session:
            row = session.get(InstanceRow, instance)
            if row is None:
                request = InstanceRequest(nodes=1)
                row = InstanceRow(
                    name=instance, project="default", labels={}, spec=request.wire(), state="Provisioning",
                    generation=1, conditions=[], members=[], slices=[],
                )  # fmt: skip
                session.add(row)
            return self.runner.open(session, verb, row).name

    def saga(self, name: str) -> SagaRow:
        with self.store.reading() as session:
            row = session.get(SagaRow, name)
            assert row is not None
            session.expunge(row)
            return row

    async def ended(self, name: str, within_s: float = 3600) -> SagaRow:
        """The saga once it has ended; every task of the runner that was killed raises here."""
        started = self.clock.now()
        while self.saga(name).status in ("Running", "Undoing"):
            for task in self.runner._tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            assert self.clock.now() - started < within_s, f"{name} never ends"
            await asyncio.sleep(0.5)
        return self.saga(name)

    async def stop(self) -> None:
        await self.runner.stop()
        self.database.close()


@contextlib.asynccontextmanager
async def a_process(folder: Path, *sagas: Saga) -> AsyncIterator[Process]:
    process = Process(folder, *sagas)
    try:
        yield process
    finally:
        await process.stop()


async def run_to_the_end(folder: Path, world: World) -> SagaRow:
    async with a_process(folder, world.saga) as process:
        name = process.open()
        process.runner.resume()
        return await process.ended(name)


@pytest.mark.looptime
async def test_steps_are_done_in_order_and_each_once(tmp_path):
    world = World(4)
    row = await run_to_the_end(tmp_path, world)
    assert (row.status, row.state, row.step) == ("Done", "Done", 4)
    assert world.calls == [(DO, 0), (DO, 1), (DO, 2), (DO, 3)]
    assert row.steps == ["do_0", "do_1", "do_2", "do_3"]
    assert row.finished_at is not None


@pytest.mark.looptime
async def test_a_refused_step_undoes_itself_and_what_was_done_before_last_first(tmp_path):
    world = World(4, undoable={0, 1, 3}, refused=3)
    async with a_process(tmp_path, world.saga) as process:
        name = process.open()
        process.runner.resume()
        row = await process.ended(name)
        assert (row.status, row.error["reason"]) == ("Failed", "InsufficientCapacity")
        assert world.calls[4:] == [(UNDO, 3), (UNDO, 1), (UNDO, 0)]
        assert world.effects == {2}, "only what nothing undoes is left"
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one").state == "Pending", "the verb says where that leaves the instance"
            event = session.scalars(select(EventRow)).one()
            assert (event.type, event.reason, event.message) == ("Warning", "InsufficientCapacity", "no room")


@pytest.mark.looptime
async def test_what_cannot_be_undone_yet_is_undone_later_and_never_given_up(tmp_path):
    world = World(2, refused=1)
    world.raises[UNDO, 1] = [Conflict("refused"), StepPending("the agents have yet to clear"), ValueError("a defect")]
    row = await run_to_the_end(tmp_path, world)
    assert row.status == "Failed"
    assert world.calls == [(DO, 0), (DO, 1), *[(UNDO, 1)] * 4, (UNDO, 0)]
    assert world.effects == set()


@pytest.mark.looptime
@pytest.mark.parametrize(
    "answer", [StepPending("nodes are being deployed"), Unavailable("MatrixResource is away"), ValueError("a defect")]
)
async def test_a_step_that_cannot_go_on_says_why_and_is_asked_again_on_the_clock(tmp_path, answer):
    world = World(1)
    world.raises[DO, 0] = [answer, answer]
    async with a_process(tmp_path, world.saga) as process:
        name = process.open()
        started = process.clock.now()
        process.runner.resume()
        await asyncio.sleep(5)
        message = process.saga(name).message
        assert (type(answer).__name__ if isinstance(answer, ValueError) else str(answer)) in message
        row = await process.ended(name)
        assert row.finished_at - started == pytest.approx(2 * WAIT_S + 3, abs=1), "three calls, two rests"
        assert (row.status, row.message) == ("Done", ""), "what it waited for is no longer said"


@pytest.mark.looptime
async def test_a_nudge_ends_the_wait_of_that_instance_alone(tmp_path):
    world = World(1)
    world.raises[DO, 0] = [StepPending("waits"), StepPending("waits")]
    async with a_process(tmp_path, world.saga) as process:
        process.open(instance="one")
        process.open(instance="other")
        process.runner.resume()
        await asyncio.sleep(3)
        assert world.calls == [(DO, 0)] * 2
        process.runner.nudge("one")
        await asyncio.sleep(3)
        assert world.calls == [(DO, 0)] * 3, "one was asked again, the other still rests"
        process.runner.nudge()
        await asyncio.sleep(3)
        assert world.calls == [(DO, 0)] * 4


@pytest.mark.looptime
async def test_the_verb_that_overtakes_ends_the_one_before_in_the_middle_of_its_step(tmp_path):
    first, second = World(3), World(1)
    later = Saga("later", second.saga.steps, refused=_refused)
    async with a_process(tmp_path, first.saga, later) as process:
        overtaken = process.open()
        process.runner.resume()
        await asyncio.sleep(1.5)
        name = process.open("later")
        process.runner.resume()
        assert (await process.ended(name)).status == "Done"
        row = process.saga(overtaken)
        assert (row.status, row.message) == ("Cancelled", "overtaken by later")
        await asyncio.sleep(60)
        assert first.calls == [(DO, 0), (DO, 1)], "nothing more of it happens, and nothing of it is undone"
        assert process.saga(overtaken).step == 1
        with process.store.reading() as session:
            assert session.get(InstanceRow, "one").operation == name


@pytest.mark.looptime
async def test_two_instances_go_on_beside_each_other_and_a_second_resume_starts_nothing_twice(tmp_path):
    world = World(3)
    async with a_process(tmp_path, world.saga) as process:
        names = [process.open(instance=instance) for instance in ("one", "other")]
        assert process.runner.resume() == 2
        assert process.runner.resume() == 2
        started = process.clock.now()
        ended = [await process.ended(name) for name in names]
        assert {row.status for row in ended} == {"Done"}
        assert max(row.finished_at for row in ended) - started < 4, "neither waited for the other"
        assert sorted(world.calls) == sorted([(DO, 0), (DO, 1), (DO, 2)] * 2)
        assert process.runner.resume() == 0, "what has ended has no task any more"


# -- any saga, any answers, a kill at any durable write ---------------------------------------------------------------

PASSING = st.sampled_from([StepPending, Unavailable, RuntimeError])


@st.composite
def worlds(draw) -> Callable[[], World]:
    """Makes the same world anew each time."""
    steps = draw(st.integers(1, 4))
    undoable = draw(st.sets(st.integers(0, steps - 1)))
    refused = draw(st.none() | st.integers(0, steps - 1))
    calls = [(kind, at) for kind in (DO, UNDO) for at in range(steps)]
    passing = {call: draw(st.lists(PASSING, max_size=2)) for call in calls if draw(st.booleans())}

    def make() -> World:
        world = World(steps, undoable, refused)
        for call, kinds in passing.items():
            world.raises[call] = [kind("not yet") for kind in kinds]
        return world

    return make


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(make=worlds(), before=st.booleans())
def test_killed_at_any_durable_write_it_ends_as_if_it_had_not_been(make, before):
    """In one run for every write of the whole story, the process ends there and another goes on."""
    with contextlib.closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(_killed_at_each_write(make, before))


async def _killed_at_each_write(make: Callable[[], World], before: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writes = await _with_kill(Path(folder), make, None, before)
    for at in range(2, writes + 1):  # the first opens the saga: before it there is nothing
        with tempfile.TemporaryDirectory() as folder:
            await _with_kill(Path(folder), make, at, before)


async def _with_kill(folder: Path, make: Callable[[], World], at: int | None, before: bool) -> int:
    """Carry one saga to its end, with one process that ends at the `at`-th write; how many writes there were."""
    world = make()
    refused = world.refused
    async with a_process(folder, world.saga) as process:
        process.store.at, process.store.before = at, before
        name = process.open()
        process.runner.resume()
        with contextlib.suppress(Killed):
            row = await process.ended(name)
        writes, killed = process.store.transactions, process.store.killed
    assert killed == (at is not None)
    if killed:
        async with a_process(folder, world.saga) as process:
            process.runner.resume()
            row = await process.ended(name)
    steps = len(world.saga.steps)
    forwards = [(DO, step) for step in range(steps if refused is None else refused + 1)]
    backwards = (
        [] if refused is None else [(UNDO, step) for step in reversed(range(refused + 1)) if step in world.undoable]
    )
    assert world.order() == forwards + backwards
    assert row.status == ("Done" if refused is None else "Failed")
    left = set(range(steps)) if refused is None else set(range(refused)) - world.undoable
    assert world.effects == left
    return writes
