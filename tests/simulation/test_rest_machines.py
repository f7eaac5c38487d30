"""Whatever users ask over REST, whatever hardware does and whichever service ends meanwhile: the accountant, who reads
REST alone, finds nothing wrong, and everything settles."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, reproduce_failure, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.matrixcontainer.kubeapi.postgres import a_database, needs_postgres
from tests.simulation import rest_mishaps, rest_users
from tests.simulation.rest_actions import ACTIONS, Happening, of
from tests.simulation.rest_life import Life
from tests.simulation.rest_mishaps import SERVICE, seat
from tests.small_stack import PostgresStack, ReplicatedStack, SmallStack
from tests.stack import Stack

REPLAY = "REST_MACHINES_REPLAY"
"""The environment variable with the one life to be lived again, as a failure prints it."""

BEGINNINGS = [of(rest_users.ensure_instance), of(rest_users.ensure_instance), of(rest_users.ensure_allocation)]
WAITS = st.sampled_from([0, 0, 1, 5, 20, 60])
KILLED = st.one_of(st.none(), st.none(), st.none(), st.tuples(SERVICE.strategy, st.integers(0, 40)))
"""Now and then a service ends while it is asked, or while it asks others."""


class Users(RuleBasedStateMachine):
    """Users of a stack."""

    make: Callable[[Path], Stack] = SmallStack
    heard: Counter[str] = Counter()
    exported = ""
    """Where the last life that failed was written as a scenario, or why it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(type(self).make)
        self.whole = True

    @initialize(begun=st.lists(st.one_of(*BEGINNINGS), min_size=2, max_size=4))
    def somebody_is_there(self, begun: list[Happening]) -> None:
        for happening in begun:
            self.something_happens(happening, None, 0)
        self.something_happens(Happening(rest_mishaps.wait, {"wait_s": 120}), None, 0)

    @rule(happening=st.one_of(*ACTIONS.values()), killed=KILLED, wait_s=WAITS)
    def something_happens(self, happening: Happening, killed: tuple[str, int] | None, wait_s: float) -> None:
        self.whole = False
        awaited = happening.on(self.life)
        if killed is not None:
            awaited = self.life.kill_during(awaited, seat(self.life, killed[0]), killed[1])
        self.life.step(awaited, wait_s)
        self.whole = True

    def teardown(self) -> None:
        settled = False
        try:
            if self.whole:  # what is broken already is reported as it is
                self.life.settle()
                settled = True
        finally:
            if not settled:
                type(self).exported = exported(self.life)
            self.life.close()
            type(self).heard += self.life.heard


def exported(life: Life) -> str:
    """What befell a life, as a scenario file: where that is."""
    try:
        file = life.history.export(life.loop.time())
    except LookupError as nothing:
        return f"No scenario is written: {nothing}"
    return f"What befell it, as a scenario: {file} (matrixctl scenario run {file})"


class UsersOfReplicas(Users):
    """Users of a stack whose MatrixResource and MatrixCompute have two replicas each."""

    make = ReplicatedStack
    heard: Counter[str] = Counter()


class UsersOfPostgres(Users):
    """The same on PostgreSQL."""

    make = PostgresStack
    heard: Counter[str] = Counter()


def live(machine: type[Users], lives: int, steps: int, **more: Any) -> None:
    """So many lives of it, or the one that the environment names. What fails says how it is replayed."""
    chosen = settings(
        max_examples=lives,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        **more,
    )
    if replayed := os.environ.get(REPLAY):
        version, _, blob = replayed.partition(":")
        machine = reproduce_failure(version, blob.encode())(machine)
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except BaseException as failed:
        for failure in failed.exceptions if isinstance(failed, BaseExceptionGroup) else [failed]:
            notes = "\n".join(getattr(failure, "__notes__", []))
            if found := re.search(r"reproduce_failure\('([^']*)', b'([^']*)'\)", notes):
                test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
                failure.add_note(f"Replay it: {REPLAY}={found[1]}:{found[2]} python -m pytest -m '' '{test}'")
            if machine.exported:
                failure.add_note(machine.exported)
        raise


MACHINES = [Users, UsersOfReplicas]
LIVES, STEPS, SEED = (f"REST_MACHINES_{name}" for name in ("LIVES", "STEPS", "SEED"))
"""Environment variables of the soak: how many lives of each machine, of how many steps, and from which seed they are
drawn (without one, from a new one each time)."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", MACHINES)
def test_random_requests_break_no_invariant(machine: type[Users]) -> None:
    """The same lives every time, reported as they are: new ones, made small, are what the soak is for."""
    machine.heard.clear()
    live(machine, 2, 12, derandomize=True, phases=[Phase.explicit, Phase.generate])
    assert machine.heard["PUT instances 202"] > 0
    assert machine.heard["DELETE instances 202"] > 0, "what is left is given back"


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("machine", MACHINES)
def test_many_random_runs_break_no_invariant(machine: type[Users]) -> None:
    live_on(machine)


@needs_postgres
@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_many_random_runs_on_postgresql_break_no_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_database() as url:
        monkeypatch.setattr(PostgresStack, "server", url.rpartition("/")[0])
        live_on(UsersOfPostgres)


def live_on(machine: type[Users]) -> None:
    seeded = seed(int(os.environ[SEED]))(machine) if SEED in os.environ else machine
    live(seeded, int(os.environ.get(LIVES, "60")), int(os.environ.get(STEPS, "30")), database=None)
