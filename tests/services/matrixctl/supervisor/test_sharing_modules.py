"""What most processes share is imported once, before they start; who shares little starts before that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.supervisor import Supervisor
from tests.services.matrixctl.conftest import SupervisedStack, eventually


def supervisor_of(stack: SupervisedStack) -> Supervisor:
    """One whose `beta` shares little."""
    alpha, beta = stack.processes
    stack.folder.prepare()
    return Supervisor(stack.folder, StackRequest((alpha, replace(beta, shares_modules=False)), shared=()))


def test_who_shares_little_starts_first(supervised_stack: SupervisedStack) -> None:
    supervisor = supervisor_of(supervised_stack)
    started: list[list[str]] = []

    def share() -> None:
        started.append([name for name, runtime in supervisor.runtimes.items() if runtime.is_child])

    try:
        supervisor.begin(share)
    finally:
        supervisor.stop_all()
    assert started == [["beta"]]


def test_nothing_is_left_where_the_shared_modules_cannot_be_imported(supervised_stack: SupervisedStack) -> None:
    supervisor = supervisor_of(supervised_stack)

    pids: list[int] = []

    def share() -> None:
        pids.append(eventually(lambda: supervised_stack.pid("beta")))
        raise ImportError("no such module")

    with pytest.raises(ImportError):
        supervisor.begin(share)
    assert pids
    assert supervised_stack.pid("beta") == 0
