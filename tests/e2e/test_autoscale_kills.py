"""kill -9 in the middle of growing and of shrinking delays the autoscaling story and does not change its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from services.matrixctl.demo.autoscale import AUTOSCALE, NAME, AutoscaleRun
from services.matrixctl.demo.gauge import Sample
from services.matrixctl.demo.run import run_demo
from services.matrixctl.demo.step_runner import Step
from services.matrixctl.supervisor.state_folder import StateFolder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

DELAY_S = 900.0
"""What each promise in time may take longer: what died starts again, and an autoscaler waits its window anew."""
POLL_PERIOD_WALL_S = 0.05


class KillOnSample:
    """Kills a process once, as soon as a sample of the gauge says so."""

    def __init__(self, folder: StateFolder, victim: str, when: Callable[[Sample], bool]) -> None:
        self._folder, self._victim, self._when = folder, victim, when
        self._stopped = threading.Event()
        self.killed = 0

    def wrapping(self, step: Step) -> Step:
        def action(run: AutoscaleRun) -> None:
            thread = threading.Thread(target=self._kill_when_due, args=(run,), daemon=True)
            thread.start()
            try:
                step.action(run)
            finally:
                self._stopped.set()
                thread.join()

        return replace(step, action=action)

    def _kill_when_due(self, run: AutoscaleRun) -> None:
        while not self._stopped.wait(POLL_PERIOD_WALL_S):
            if self._when(run.gauge.last):
                holder = self._folder.process_lock(self._victim).holder()
                if holder is not None:
                    holder.signal(signal.SIGKILL)
                    self.killed = holder.pid
                    return


@pytest.mark.soak  # in make test the same is done in virtual time: tests/stories/test_scale_in.py
@pytest.mark.parametrize("victim", ["compute", "kube", "infer"])
def test_the_end_is_the_same_when_one_dies(victim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = StateFolder(tmp_path / "demo")
    strikes = {
        "grow": KillOnSample(folder, victim, lambda sample: sample.desired > sample.ready > 0),
        "shrink": KillOnSample(folder, victim, lambda sample: 0 < sample.desired < sample.ready),
    }
    steps = tuple(strikes[step.name].wrapping(step) if step.name in strikes else step for step in AUTOSCALE.steps)
    story = replace(
        AUTOSCALE,
        steps=steps,
        begin=lambda reach, cluster, manifest: AutoscaleRun(reach, cluster, manifest, NAME, delay_s=DELAY_S),
    )
    code = run_demo(story, folder.path, keep=False)
    printed = capsys.readouterr().out
    assert code == 0, printed
    pids = {strike.killed for strike in strikes.values()}
    assert len(pids) == 2, "both strikes hit, and the second one hit a process that had started again"
    assert 0 not in pids, printed
    assert "one change of direction" in printed
