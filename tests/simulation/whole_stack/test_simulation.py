"""The simulation itself: one seed has one history, what is drawn happens, and what is broken is found."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

from tests.accounting import Acknowledged
from tests.simulation import rest_life
from tests.simulation.whole_stack import simulation
from tests.simulation.whole_stack.journals import Journals
from tests.simulation.whole_stack.life import SimulatedLife
from tests.simulation.whole_stack.mishaps import MISHAPS
from tests.simulation.whole_stack.mutations import MUTATIONS
from tests.simulation.whole_stack.seeds import SOAK_EVENTS, SOAK_SEEDS, lived
from tests.simulation.whole_stack.simulation import Outcome, simulate

FOUND_BY = {"commits_are_lost": 5, "nothing_is_released": 0, "policies_forget_their_targets": 2}
"""A seed that finds each."""


def elsewhere(seed: int, events: int, hash_seed: str) -> str:
    """What another process says of a seed."""
    command = [sys.executable, "-m", "tests.simulation.whole_stack", str(seed), "--events", str(events)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    return found.stdout.split()[-1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.soak), 5])
def test_same_seed_gives_the_same_history(seed: int) -> None:
    first, again, other = simulate(seed, 300), simulate(seed, 300), simulate(seed + 2, 30)
    assert first.events == again.events
    assert first.hash == again.hash
    assert other.events != first.events[:30]
    assert elsewhere(seed, 300, "7") == first.hash[:16]


def test_every_event_kind_occurs() -> None:
    kinds: dict[str, int] = {}
    for outcome in (simulate(seed, 200) for seed in (2, 7, 70)):
        kinds |= {kind: kinds.get(kind, 0) + count for kind, count in outcome.kinds.items()}
    assert kinds.keys() >= {*MISHAPS, "request", "answer", "watch", "news", "kill at commit"}, kinds


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", FOUND_BY)
def test_injected_bug_is_found(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_life, "SETTLED_WITHIN_S", 300.0)  # nobody has to wait for what never comes
    with MUTATIONS[mutation]():
        found: Outcome = simulate(FOUND_BY[mutation])
    assert found.failure is not None
    events = min(len(found.events) + 1, found.asked)
    assert found.replay == f"python -m tests.simulation.whole_stack {found.seed} --events {events}"


def test_leftover_of_the_last_event_is_found_by_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"again": simulate(3, 40).events[-1].split(" ", 1)[1]}
    judged = Journals.broken

    def broken(journals: Journals, acknowledged: Acknowledged) -> list[str]:
        return ["wrong"] if wrong.get("seen") else judged(journals, acknowledged)

    class Watched(SimulatedLife):
        def happened(self, kind: str, event: str) -> None:
            super().happened(kind, event)
            wrong.pop("seen", None)
            if self.events and self.events[-1].endswith(wrong["again"]):
                wrong["seen"] = "until the next event is judged"

    monkeypatch.setattr(Journals, "broken", broken)
    monkeypatch.setattr(simulation, "SimulatedLife", Watched)
    found = simulate(3, 80)
    wrong.pop("seen", None)
    assert len(found.events) == 40
    assert found.replay.endswith("--events 41")
    assert str(simulate(3, 41).failure) == str(found.failure) == "wrong"


def _lived(seed: int) -> str | None:
    try:
        lived(seed, SOAK_EVENTS)
    except Exception as failed:
        return "\n".join([f"seed {seed}: {failed}", *getattr(failed, "__notes__", [])])
    return None


@pytest.mark.soak
@pytest.mark.timeout(172_800)
def test_many_long_simulations_keep_every_invariant() -> None:
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=100) as workers:
        failed = [each for each in workers.imap_unordered(_lived, range(SOAK_SEEDS)) if each is not None]
    assert not failed, "\n\n".join(failed)
