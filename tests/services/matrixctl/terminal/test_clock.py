"""`matrixctl clock`: on a stack of stand-ins, what it asks, prints and refuses."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from matrixcommon.emulation.stack_clock import read_timeline, write_timeline
from matrixcommon.model.errors import Conflict
from matrixcommon.model.timeline import Timeline
from services.matrixctl.commands.options import parse_duration_s, parse_instant_s, parse_seconds
from services.matrixctl.commands.running.clock import _show_progress
from services.matrixctl.supervisor.state_folder import StateFolder
from tests.services.matrixctl.conftest import SupervisedStack, eventually
from tests.services.matrixctl.inprocess import run_matrixctl

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str], supervised_stack: SupervisedStack) -> Ctl:
    def run(*words: str) -> tuple[int, str, str]:
        return run_matrixctl(capsys, "clock", *words, "--state", str(supervised_stack.folder.path))

    return run


def shown(ctl: Ctl) -> dict[str, object]:
    found: dict[str, object] = json.loads(ctl("show", "-o", "json")[1])
    return found


def test_pause_speed_and_until_are_carried_out_and_nobody_is_started_again(
    ctl: Ctl, supervised_stack: SupervisedStack
) -> None:
    before = supervised_stack.up(scale=60.0)
    assert shown(ctl)["speed"] == 60.0
    code, out, _ = ctl("pause")
    assert (code, "paused" in out) == (0, True)
    standing = shown(ctl)
    assert standing["paused"] is True
    assert shown(ctl)["emulatedTime"] == standing["emulatedTime"]
    code, out, _ = ctl("for", "10m", "--speed", "6000")
    assert code == 0
    assert "paused" in out
    gone = datetime.fromisoformat(str(shown(ctl)["emulatedTime"])) - datetime.fromisoformat(
        str(standing["emulatedTime"])
    )
    assert gone.total_seconds() == pytest.approx(600, abs=0.01)
    ctl("speed", "7")
    after = supervised_stack.stack()
    assert after.time.scale == 7
    assert [child.pid for child in after.children.values()] == [child.pid for child in before.children.values()]


def test_what_stood_still_resumes_at_its_speed_and_what_runs_keeps_its_plans(
    ctl: Ctl, supervised_stack: SupervisedStack
) -> None:
    supervised_stack.up(scale=60.0)
    ctl("pause")
    ctl("pause")
    assert ctl("resume")[0] == 0
    assert shown(ctl)["speed"] == 60.0
    planned = read_timeline(supervised_stack.folder.clock_file).run_until(time.time(), 60.0, time.time() + 1e9, 7.0)
    assert planned.running_speed(time.time()) == 60.0
    before = supervised_stack.folder.clock_file.read_text()
    code, out, _ = ctl("resume")
    assert (code, "speed 60" in out) == (0, True)
    assert supervised_stack.folder.clock_file.read_text() == before


def test_it_stays_as_it_was_set_over_kill_9_of_all_and_over_down_and_up(
    ctl: Ctl, supervised_stack: SupervisedStack
) -> None:
    supervised_stack.up(scale=60.0)
    ctl("speed", "7")
    reached = supervised_stack.stack().time.emulated(time.time())
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    for holder in supervised_stack.folder.holders().values():
        os.kill(holder.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive() and not supervised_stack.folder.holders())
    stack = supervised_stack.up()
    assert stack.time.scale == 7
    assert stack.time.emulated(time.time()) >= reached
    assert supervised_stack.settings("alpha")["CLOUDMATRIX_CLOCK_FILE"] == str(supervised_stack.folder.clock_file)


def test_a_new_supervisor_takes_over_what_runs_without_touching_its_time(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up(scale=60.0)
    written = supervised_stack.folder.clock_file.read_text()
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    supervised_stack.up()
    assert supervised_stack.folder.clock_file.read_text() == written


def test_an_interrupted_run_goes_on_at_the_speed_it_had(
    ctl: Ctl, supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised_stack.up(scale=5.0)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("services.matrixctl.commands.running.clock._show_progress", interrupted)
    code, _, _ = ctl("for", "5d", "--speed", "6")
    assert code == 130
    speeds = [each.speed for each in read_timeline(supervised_stack.folder.clock_file).changes]
    assert speeds == [5.0, 6.0, 5.0]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("speed", "100001"), "SPEED"),
        (("speed", "--", "-1"), None),
        (("for", "10 minutes"), "DURATION"),
        (("for", "0s"), "DURATION"),
        (("until", "25:00"), "WHEN"),
        (("until", "2001-01-01T00:00:00Z"), "WHEN"),
        (("until", "0001-01-01T00:00:00+23:59"), "WHEN"),
        (("until", "9999-12-31T23:59:59-23:59"), "WHEN"),
        (("for", "99999999d"), "DURATION"),
        (("for", f"{'9' * 400}d"), "DURATION"),
        (("for", "1h", "--speed", "0"), "--speed"),
        (("for", "1h", "--then", "1e9"), "--then"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    running_stack: SupervisedStack, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], field: str | None
) -> None:
    written = running_stack.folder.clock_file.read_text()
    code, _, err = run_matrixctl(capsys, "clock", *words, "--state", str(running_stack.folder.path))
    assert code == 2
    assert field is None or f"[field {field}]" in err
    assert running_stack.folder.clock_file.read_text() == written


def test_without_a_stack_it_says_so(capsys: pytest.CaptureFixture[str], supervised_stack: SupervisedStack) -> None:
    code, _, err = run_matrixctl(
        capsys, "clock", "show", "--state", str(StateFolder(supervised_stack.folder.path / "none").path)
    )
    assert (code, err.startswith("NotRunning: ")) == (3, True)


def test_who_waits_goes_by_the_clock_as_others_change_it(tmp_path: Path) -> None:
    file, now = tmp_path / "clock.json", time.time()
    write_timeline(file, Timeline.steady(0.0, now, 1.8e9))
    with pytest.raises(Conflict, match=r"was changed meanwhile and will not reach 2027-01-15T09:00:00\.000Z"):
        _show_progress(file, 1.8e9, 1.8e9 + 3600)
    write_timeline(file, Timeline.steady(0.0, now, 1.8e9 + 3600))
    assert _show_progress(file, 1.8e9, 1.8e9 + 3600).speed(now) == 0.0


def test_a_time_of_day_is_the_next_one_and_durations_add_up() -> None:
    now = datetime.fromisoformat("2026-11-24T13:30:00+00:00").timestamp()
    at = partial(parse_instant_s, now_s=lambda: now, field="WHEN")
    assert at("14:00") - now == 1800
    assert at("13:30") - now == 86400
    assert at("2026-11-24T13:30:01Z") - now == 1
    assert at("2026-11-24T13:30:01") - now == 1
    assert at("+1h30m") - now == 5400
    assert parse_duration_s("1h30m", "DURATION") == 5400
    assert parse_duration_s("0.5d", "DURATION") == 43200
    assert (parse_seconds("4h"), parse_seconds("14400"), parse_seconds("0.5")) == (14400, 14400, 0.5)
