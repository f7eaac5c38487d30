"""The supervisor keeps one living process per name, whatever is killed, itself included."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from services.matrixctl.output.screen import NotRunning
from services.matrixctl.snapshots.snapshot import request_of
from services.matrixctl.supervisor import supervisor as supervising
from services.matrixctl.supervisor.probe import Readiness, free_port
from services.matrixctl.supervisor.process_lock import started_at
from services.matrixctl.supervisor.state_folder import StackTime, StateFolder
from services.matrixctl.supervisor.supervisor import StackRequest, Supervisor
from services.matrixctl.supervisor.up import stack_report, start_supervisor, stop_stack, watch_until_ready
from tests.services.matrixctl.conftest import Bench, eventually


def test_up_makes_all_ready_and_down_leaves_nothing(bench: Bench) -> None:
    stack = bench.up()
    pids = [child.pid for child in stack.children.values()]
    assert all(started_at(pid) for pid in pids)
    assert sorted(stop_stack(bench.folder)) == ["alpha", "beta", "supervisor"]
    assert not any(started_at(pid) for pid in pids)
    assert not list(bench.folder.run.iterdir())
    assert stop_stack(bench.folder) == []


def test_a_child_has_its_own_session_folder_log_and_settings(bench: Bench) -> None:
    stack = bench.up(scale=60.0, seed=7)
    seen = bench.settings("beta")
    assert seen["pid"] == seen["sid"] == stack.children["beta"].pid
    assert seen["cwd"] == str(bench.folder.path)
    assert seen["CLOUDMATRIX_ALPHA_URL"] == stack.children["alpha"].url
    assert seen["CLOUDMATRIX_CLOCK_FILE"] == str(bench.folder.clock_file)
    assert seen["CLOUDMATRIX_SEED"] == "7"
    assert "CLOUDMATRIX_BETA_URL" not in seen
    assert "CLOUDMATRIX_ALPHA_URL" not in bench.settings("alpha")
    assert "beta says hello" in (bench.folder.logs / "beta.log").read_text()


def test_who_is_not_in_the_stack_is_nowhere(bench: Bench) -> None:
    """By default it would be looked for where another stack of this machine may have its own."""
    alpha, beta = bench.processes
    bench.up(processes=(alpha, replace(beta, calls=(*beta.calls, "gamma"))))
    assert bench.settings("beta")["CLOUDMATRIX_GAMMA_URL"] == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_dies_is_started_again(bench: Bench, number: signal.Signals) -> None:
    first = bench.up().children["alpha"].pid
    os.kill(first, number)
    eventually(lambda: bench.pid("alpha") not in (0, first) and bench.stack().children["alpha"].ready)
    child = bench.stack().children["alpha"]
    assert child.restarts == 1
    assert child.last_exit in ("killed by SIGKILL", "exit 0")


def test_a_process_that_keeps_dying_is_tried_less_and_less_often(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "exit")
    start_supervisor(bench.folder, StackRequest(bench.processes, shared=()).to_json())
    eventually(lambda: bench.stack().children["beta"].restarts >= 3)
    assert bench.stack().children["beta"].last_exit == "exit 3"
    eventually(lambda: bench.stack().children["alpha"].ready)
    report = stack_report(bench.folder)
    assert report.running
    assert not report.ready


def test_a_disk_that_takes_nothing_is_no_reason_to_leave_processes_alone(bench: Bench) -> None:
    first = bench.up().children["alpha"].pid
    in_the_way = bench.folder.stack_file.with_name("stack.json.new")
    in_the_way.mkdir()
    for _ in range(2):
        before = bench.pid("alpha")
        os.kill(before, signal.SIGKILL)
        eventually(lambda before=before: bench.pid("alpha") not in (0, before), "alpha is started again")
    assert bench.stack().children["alpha"].pid == first
    log = (bench.folder.logs / "supervisor.log").read_text()
    assert log.count("what changes cannot be written down") == 1
    in_the_way.rmdir()
    eventually(lambda: bench.stack().children["alpha"].pid == bench.pid("alpha"), "it is written as soon as it can be")
    in_the_way.mkdir()
    assert sorted(stop_stack(bench.folder)) == ["alpha", "beta", "supervisor"]
    in_the_way.rmdir()


def test_a_second_supervisor_finds_the_seat_taken(bench: Bench) -> None:
    bench.up()
    first = bench.folder.supervisor()
    assert start_supervisor(bench.folder, StackRequest(bench.processes, shared=()).to_json()) == first
    again = subprocess.run(
        [sys.executable, "-m", "services.matrixctl.supervisor.supervisor", "--state", str(bench.folder.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 75
    assert "another supervisor" in again.stderr


def test_when_the_supervisor_is_killed_the_next_one_takes_its_children_over(bench: Bench) -> None:
    before = bench.up(scale=60.0)
    supervisor = bench.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    report = stack_report(bench.folder)
    assert report.running
    assert not report.ready
    after = bench.up()
    assert {child.pid for child in after.children.values()} == {child.pid for child in before.children.values()}
    assert after.time == before.time
    os.kill(after.children["beta"].pid, signal.SIGKILL)
    eventually(lambda: bench.pid("beta") not in (0, after.children["beta"].pid))


def test_children_with_other_settings_are_replaced_one_by_one(bench: Bench) -> None:
    before = bench.up(seed=7)
    supervisor = bench.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    bench.up(seed=8)
    assert bench.settings("alpha")["CLOUDMATRIX_SEED"] == "8"
    assert not any(started_at(child.pid) for child in before.children.values())


def test_children_at_another_speed_run_on(bench: Bench) -> None:
    before = bench.up(scale=60.0)
    supervisor = bench.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    after = bench.up(scale=10.0)
    assert {child.pid for child in after.children.values()} == {child.pid for child in before.children.values()}
    eventually(lambda: bench.stack().time.scale == 10.0)
    assert bench.stack().time.anchor_emulated > before.time.anchor_emulated


def test_down_works_when_the_supervisor_is_dead(bench: Bench) -> None:
    pids = [child.pid for child in bench.up().children.values()]
    supervisor = bench.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    assert sorted(stop_stack(bench.folder)) == ["alpha", "beta"]
    assert not any(started_at(pid) for pid in pids)
    assert not list(bench.folder.run.iterdir())


def test_a_deaf_process_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_ALPHA", "deaf")
    monkeypatch.setattr("services.matrixctl.supervisor.up.STOP_TIMEOUT_WALL_S", 10.0)
    pid = bench.up().children["alpha"].pid
    stop_stack(bench.folder)
    assert started_at(pid) is None


def test_a_taken_port_is_exchanged_and_callers_hear_of_it(bench: Bench) -> None:
    bench.up()
    current = bench.stack().children["alpha"]
    stop_stack(bench.folder)
    import socket

    with socket.create_server(("127.0.0.1", current.port)):
        stack = bench.up()
        assert stack.children["alpha"].port != current.port
        assert bench.settings("beta")["CLOUDMATRIX_ALPHA_URL"] == stack.children["alpha"].url


def test_two_stacks_run_beside_each_other(bench: Bench, tmp_path: Path) -> None:
    bench.up()
    other = Bench(tmp_path / "other")
    other.processes = bench.processes
    try:
        other.up()
        assert {child.port for child in other.stack().children.values()}.isdisjoint(
            {child.port for child in bench.stack().children.values()}
        )
        stop_stack(bench.folder)
        assert httpx.get(other.stack().children["alpha"].url + "/readyz", trust_env=False).status_code == 200
    finally:
        stop_stack(other.folder)


def test_without_fork_a_child_is_a_fresh_interpreter(bench: Bench) -> None:
    from services.matrixctl.supervisor.process_spawn import spawn

    bench.folder.prepare()
    process_lock = bench.folder.process_lock("alpha").path
    settings = os.environ | {"CLOUDMATRIX_HOST": "127.0.0.1", "CLOUDMATRIX_PORT": str(free_port("127.0.0.1"))}
    pid = spawn(
        "alpha", bench.processes[0].module, dict(settings), process_lock, bench.folder.logs / "alpha.log", False
    )
    eventually(lambda: bench.pid("alpha") == pid)
    assert stop_stack(bench.folder) == ["alpha"]
    os.waitpid(pid, 0)


def test_emulated_time_never_goes_back() -> None:
    first = StackTime(60.0, 1000.0, 1000.0)
    stopped = StackTime(60.0, 1000.0, 1000.0, stopped_wall=1100.0)
    assert first.emulated(1100.0) == 7000.0
    assert stopped.next_run(1.0, 2000.0) == StackTime(1.0, 2000.0, 7000.0)
    assert first.next_run(1.0, 2000.0) == StackTime(1.0, 2000.0, 61000.0), "an unknown end may have been just now"
    assert stopped.next_run(1.0, 9000.0).anchor_emulated == 9000.0, "and today is never behind"


def test_who_never_answered_yet_is_given_longer_than_who_fell_silent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large machine takes its processes minutes until they listen, where other things run beside them."""
    bench.folder.prepare()
    supervisor = Supervisor(bench.folder, StackRequest(bench.processes, shared=()))
    wall, answers, replaced = SimpleNamespace(now=0.0), Readiness(False, False, "not listening yet"), []
    monkeypatch.setattr(supervising, "time", SimpleNamespace(monotonic=lambda: wall.now))
    monkeypatch.setattr(supervising, "probe_readiness", lambda *_: answers)
    monkeypatch.setattr(supervisor, "_replace", lambda name, why: replaced.append((name, why)))
    supervisor._update("alpha", pid=1, state="Starting")
    for wall.now in (1.0, 61.0, 599.0):
        supervisor._probe("alpha")
    assert replaced == []
    wall.now = 601.0
    supervisor._probe("alpha")
    assert replaced == [("alpha", "no answer for 600 s")]
    wall.now, answers = 610.0, Readiness(True, False, "the first reports of its nodes")
    supervisor._probe("alpha")
    answers = Readiness(False, False, "no answer")
    for wall.now in (660.0, 672.0):
        supervisor._probe("alpha")
    assert replaced[1:] == [("alpha", "no answer for 60 s")]


def test_a_state_keeps_its_database_and_a_restart_its_address(bench: Bench) -> None:
    bench.folder.prepare()
    asked = StackRequest(bench.processes, seed=7, database="postgresql://one/{service}", host="0.0.0.0", shared=())
    begun = Supervisor(bench.folder, asked).stack
    bench.folder.write(begun)
    again = Supervisor(bench.folder, StackRequest(bench.processes, shared=())).stack
    assert (again.database, again.seed, again.host) == ("postgresql://one/{service}", 7, "127.0.0.1")
    same = request_of(begun)
    assert (same.database, same.host) == (asked.database, asked.host)
    moved = Supervisor(
        bench.folder, StackRequest(bench.processes, database="postgresql://two/{service}", shared=())
    ).stack
    assert moved.database == "postgresql://two/{service}"


def test_a_terminal_that_is_closed_leaves_nothing_behind(bench: Bench) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        bench.up()
    finally:
        signal.signal(signal.SIGHUP, before)
    supervisor = bench.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGHUP)
    eventually(lambda: not supervisor.alive())
    assert bench.folder.holders() == {}
    assert bench.stack().time.stopped_wall is not None


def test_a_stack_ends_whose_state_folder_is_taken_away(bench: Bench) -> None:
    begun = bench.up()
    first = bench.folder.supervisor()
    assert first is not None
    first.signal(signal.SIGKILL)
    eventually(lambda: not first.alive())
    bench.up()  # has taken over what the first had left
    second = bench.folder.supervisor()
    assert second is not None
    shutil.rmtree(bench.folder.run)
    eventually(lambda: not second.alive())
    assert not any(started_at(child.pid) for child in begun.children.values())


def test_who_cannot_be_started_now_is_tried_again_and_the_others_are_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    bench.folder.prepare()
    supervisor = Supervisor(bench.folder, StackRequest(bench.processes, shared=()))
    monkeypatch.setattr(supervising, "spawn", no_room)
    waits = []
    for _ in range(3):
        supervisor.runtimes["alpha"].retry_at = 0.0
        supervisor._ensure("alpha")
        waits.append(supervisor.runtimes["alpha"].backoff_s)
    child = supervisor.stack.children["alpha"]
    assert (child.state, child.last_exit) == ("Restarting", "not started: Resource temporarily unavailable")
    assert waits == sorted(set(waits)), "it is tried less and less often"
    monkeypatch.setattr(supervising, "spawn", lambda *_: 4711)
    supervisor.runtimes["alpha"].retry_at = 0.0
    supervisor._ensure("alpha")
    assert (supervisor.stack.children["alpha"].pid, supervisor.runtimes["alpha"].own) == (4711, True)


@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own alone")
def test_processes_are_found_where_they_listen_also_after_that_was_changed(bench: Bench) -> None:
    begun = StackRequest(bench.processes, host="127.0.0.2", shared=())
    bench.folder.prepare()
    bench.folder.write(Supervisor(bench.folder, begun).stack)
    assert bench.stack().children["alpha"].url.startswith("http://127.0.0.2:")
    process_lock = bench.folder.process_lock("alpha")
    process_lock.acquire()  # as if it had outlived its supervisor
    urls = {
        host: Supervisor(bench.folder, replace(begun, host=host)).stack.children["alpha"].url
        for host in ("127.0.0.2", "127.0.0.1", "0.0.0.0")
    }
    process_lock.release()
    assert urls["127.0.0.2"] == bench.stack().children["alpha"].url
    assert all(urls[host].startswith("http://127.0.0.1:") for host in ("127.0.0.1", "0.0.0.0"))


@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own alone")
def test_a_port_has_to_be_free_wherever_the_process_listens(bench: Bench) -> None:
    bench.folder.prepare()
    with socket.create_server(("127.0.0.2", bench.processes[0].port)):
        inside = Supervisor(bench.folder, StackRequest(bench.processes, shared=())).stack
        everywhere = Supervisor(bench.folder, StackRequest(bench.processes, host="0.0.0.0", shared=())).stack
    assert inside.children["alpha"].port == bench.processes[0].port
    assert everywhere.children["alpha"].port != bench.processes[0].port


def test_who_waits_for_a_stack_that_is_taken_down_is_told_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "exit")
    supervisor = start_supervisor(bench.folder, StackRequest(bench.processes, shared=()).to_json())
    waiting = watch_until_ready(bench.folder, supervisor, 60.0)
    next(waiting)
    stop_stack(bench.folder)
    with pytest.raises(NotRunning, match="was stopped while it started"):
        list(waiting)


def test_an_operator_hears_where_the_kubernetes_api_listens_now(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    supervisor = Supervisor(folder, StackRequest(shared=()))
    before = supervisor.fingerprint("operator")
    assert supervisor.environment("operator")["CLOUDMATRIX_KUBE_URL"] == supervisor.stack.children["kube"].url
    supervisor._update("kube", url="https://127.0.0.1:1")
    assert supervisor.environment("operator")["CLOUDMATRIX_KUBE_URL"] == "https://127.0.0.1:1"
    assert supervisor.fingerprint("operator") != before, "it is started anew"
