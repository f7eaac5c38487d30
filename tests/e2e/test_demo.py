"""The demo's stories hold on a real stack, whole, and clean up after themselves.

That of failover is told from a wheel, by `test_package.py`.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from services.catalogue import PROCESSES
from services.matrixctl.demo.failover import FAILOVER, STEPS
from services.matrixctl.demo.run import DEMOS, run_demo
from services.matrixctl.demo.step_runner import Step
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stack_report, stop_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(590)]


def test_a_stack_that_is_kept_is_shown_with_a_way_into_its_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "demo")
    try:
        assert run_demo(replace(FAILOVER, steps=STEPS[:1]), folder.path, keep=True) == 0
        address, _, code = next(word for word in capsys.readouterr().out.split() if "/#login=" in word).partition(
            "#login="
        )
        assert "<title>" in httpx.get(address, trust_env=False).text
        redeemed = httpx.post(f"{address}login-links:redeem", json={"code": code}, trust_env=False)
        assert redeemed.is_success, redeemed.text
        assert stack_report(folder).running
    finally:
        stop_stack(folder)


@pytest.mark.parametrize("name", sorted(DEMOS.keys() - {FAILOVER.name}))
def test_a_demo_tells_every_step_and_leaves_nothing_running(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_demo(DEMOS[name], tmp_path / "demo", keep=False)
    text = capsys.readouterr().out
    assert code == 0, text
    for step in DEMOS[name].steps:
        assert step.title in text
    assert "every step succeeded" in text
    assert not stack_report(StateFolder(tmp_path / "demo")).running


@pytest.mark.soak
@pytest.mark.parametrize("victim", [process.name for process in PROCESSES])
def test_the_demo_survives_the_death_of(victim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 of that process half a second into every step."""
    folder = StateFolder(tmp_path / "demo")
    timers: list[threading.Timer] = []

    def kill() -> None:
        if holder := folder.process_lock(victim).holder():
            holder.signal(signal.SIGKILL)

    def struck(step: Step) -> Step:
        def action(run: object) -> None:
            timers.append(threading.Timer(0.5, kill))
            timers[-1].start()
            step.action(run)

        return replace(step, action=action)

    code = run_demo(replace(FAILOVER, steps=tuple(struck(step) for step in STEPS)), folder.path, keep=False)
    for timer in timers:
        timer.join()
    assert code == 0, capsys.readouterr().out
