"""kill -9 of all the other processes, while the chain is at work (`chain.py`), and of the supervisor."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from services.catalogue import PROCESSES
from services.matrixctl.supervisor.up import stack_report
from tests.e2e.conftest import RealStack, eventually
from tests.e2e.survives_kill.chain import ASKERS, converged, survives

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.parametrize("victim", [process.name for process in PROCESSES if process.name not in ASKERS])
def test_the_chain_survives_the_death_of(victim: str, real_stack: RealStack, tmp_path: Path) -> None:
    survives(victim, real_stack, tmp_path)


def test_the_stack_survives_the_death_of_its_supervisor(real_stack: RealStack) -> None:
    supervisor = real_stack.folder.supervisor()
    assert supervisor is not None
    before = {name: holder.pid for name, holder in real_stack.folder.holders().items()}
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive(), "the supervisor is dead")
    assert stack_report(real_stack.folder).running
    real_stack.up()
    assert {name: holder.pid for name, holder in real_stack.folder.holders().items()} == before
    converged(real_stack)
