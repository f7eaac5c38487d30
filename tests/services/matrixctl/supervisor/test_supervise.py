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

from services.matrixctl.snapshots.snapshot import request_of
from services.matrixctl.supervisor import supervisor as supervising
from services.matrixctl.supervisor.probe import Readiness, free_port
from services.matrixctl.supervisor.process_lock import started_at
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StackTime, StateFolder
from services.matrixctl.supervisor.supervisor import Supervisor
from services.matrixctl.supervisor.up import stack_report, start_supervisor, stop_stack
from tests.services.matrixctl.conftest import SupervisedStack, eventually


def test_up_makes_all_ready_and_down_leaves_nothing(supervised_stack: SupervisedStack) -> None:
    stack = supervised_stack.up()
    pids = [child.pid for child in stack.children.values()]
    assert all(started_at(pid) for pid in pids)
    assert sorted(stop_stack(supervised_stack.folder)) == ["alpha", "beta", "supervisor"]
    assert not any(started_at(pid) for pid in pids)
    assert not list(supervised_stack.folder.run.iterdir())
    assert stop_stack(supervised_stack.folder) == []


@pytest.mark.parametrize("supervised", [True, False])
def test_a_process_can_call_others_while_it_stops(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch, supervised: bool
) -> None:
    """The operator finishes its requests and releases its Lease, so that the next one need not wait for either."""
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "asks")
    monkeypatch.setattr("services.matrixctl.supervisor.up.PROCESSES", supervised_stack.processes)
    supervised_stack.up()
    supervisor = supervised_stack.folder.supervisor()
    if supervisor is not None and not supervised:
        supervisor.signal(signal.SIGKILL)
    stop_stack(supervised_stack.folder)
    assert "alpha answered 200" in (supervised_stack.folder.logs / "beta.log").read_text()


def test_a_child_has_its_own_session_folder_log_and_settings(supervised_stack: SupervisedStack) -> None:
    stack = supervised_stack.up(scale=60.0, seed=7)
    seen = supervised_stack.settings("beta")
    assert seen["pid"] == seen["sid"] == stack.children["beta"].pid
    assert seen["cwd"] == str(supervised_stack.folder.path)
    assert seen["CLOUDMATRIX_ALPHA_URL"] == stack.children["alpha"].url
    assert seen["CLOUDMATRIX_CLOCK_FILE"] == str(supervised_stack.folder.clock_file)
    assert seen["CLOUDMATRIX_SEED"] == "7"
    assert "CLOUDMATRIX_BETA_URL" not in seen
    assert "CLOUDMATRIX_ALPHA_URL" not in supervised_stack.settings("alpha")
    assert "beta says hello" in (supervised_stack.folder.logs / "beta.log").read_text()


def test_who_is_not_in_the_stack_is_nowhere(supervised_stack: SupervisedStack) -> None:
    """By default it would be looked for where another stack of this machine may have its own."""
    alpha, beta = supervised_stack.processes
    supervised_stack.up(processes=(alpha, replace(beta, calls=(*beta.calls, "gamma"))))
    assert supervised_stack.settings("beta")["CLOUDMATRIX_GAMMA_URL"] == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_dies_is_started_again(supervised_stack: SupervisedStack, number: signal.Signals) -> None:
    first = supervised_stack.up().children["alpha"].pid
    os.kill(first, number)
    eventually(
        lambda: supervised_stack.pid("alpha") not in (0, first) and supervised_stack.stack().children["alpha"].ready
    )
    child = supervised_stack.stack().children["alpha"]
    assert child.restarts == 1
    assert child.last_exit in ("killed by SIGKILL", "exit 0")


def test_a_process_that_keeps_dying_is_tried_less_and_less_often(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "exit")
    start_supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=()).to_json())
    eventually(lambda: supervised_stack.stack().children["beta"].restarts >= 3)
    assert supervised_stack.stack().children["beta"].last_exit == "exit 3"
    eventually(lambda: supervised_stack.stack().children["alpha"].ready)
    report = stack_report(supervised_stack.folder)
    assert report.running
    assert not report.ready


def test_a_disk_that_takes_nothing_is_no_reason_to_leave_processes_alone(supervised_stack: SupervisedStack) -> None:
    first = supervised_stack.up().children["alpha"].pid
    in_the_way = supervised_stack.folder.stack_file.with_name("stack.json.new")
    in_the_way.mkdir()
    for _ in range(2):
        before = supervised_stack.pid("alpha")
        os.kill(before, signal.SIGKILL)
        eventually(lambda before=before: supervised_stack.pid("alpha") not in (0, before), "alpha is started again")
    assert supervised_stack.stack().children["alpha"].pid == first
    log = (supervised_stack.folder.logs / "supervisor.log").read_text()
    assert log.count("what changes cannot be written down") == 1
    in_the_way.rmdir()
    eventually(
        lambda: supervised_stack.stack().children["alpha"].pid == supervised_stack.pid("alpha"),
        "it is written as soon as it can be",
    )
    in_the_way.mkdir()
    assert sorted(stop_stack(supervised_stack.folder)) == ["alpha", "beta", "supervisor"]
    in_the_way.rmdir()


def test_a_second_supervisor_finds_the_seat_taken(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    first = supervised_stack.folder.supervisor()
    assert (
        start_supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=()).to_json())
        == first
    )
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "services.matrixctl.supervisor.supervisor",
            "--state",
            str(supervised_stack.folder.path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 75
    assert "another supervisor" in again.stderr


def test_when_the_supervisor_is_killed_the_next_one_takes_its_children_over(supervised_stack: SupervisedStack) -> None:
    before = supervised_stack.up(scale=60.0)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    report = stack_report(supervised_stack.folder)
    assert report.running
    assert not report.ready
    after = supervised_stack.up()
    assert {child.pid for child in after.children.values()} == {child.pid for child in before.children.values()}
    assert after.time == before.time
    os.kill(after.children["beta"].pid, signal.SIGKILL)
    eventually(lambda: supervised_stack.pid("beta") not in (0, after.children["beta"].pid))


def test_children_with_other_settings_are_replaced_one_by_one(supervised_stack: SupervisedStack) -> None:
    before = supervised_stack.up(seed=7)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    supervised_stack.up(seed=8)
    assert supervised_stack.settings("alpha")["CLOUDMATRIX_SEED"] == "8"
    assert not any(started_at(child.pid) for child in before.children.values())


def test_children_at_another_speed_run_on(supervised_stack: SupervisedStack) -> None:
    before = supervised_stack.up(scale=60.0)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    after = supervised_stack.up(scale=10.0)
    assert {child.pid for child in after.children.values()} == {child.pid for child in before.children.values()}
    eventually(lambda: supervised_stack.stack().time.scale == 10.0)
    assert supervised_stack.stack().time.anchor_emulated > before.time.anchor_emulated


def test_down_works_when_the_supervisor_is_dead(supervised_stack: SupervisedStack) -> None:
    pids = [child.pid for child in supervised_stack.up().children.values()]
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    assert sorted(stop_stack(supervised_stack.folder)) == ["alpha", "beta"]
    assert not any(started_at(pid) for pid in pids)
    assert not list(supervised_stack.folder.run.iterdir())


def test_a_deaf_process_is_killed(supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_ALPHA", "deaf")
    monkeypatch.setattr("services.matrixctl.supervisor.up.STOP_TIMEOUT_WALL_S", 10.0)
    pid = supervised_stack.up().children["alpha"].pid
    stop_stack(supervised_stack.folder)
    assert started_at(pid) is None


def test_a_taken_port_is_exchanged_and_callers_hear_of_it(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    current = supervised_stack.stack().children["alpha"]
    stop_stack(supervised_stack.folder)
    import socket

    with socket.create_server(("127.0.0.1", current.port)):
        stack = supervised_stack.up()
        assert stack.children["alpha"].port != current.port
        assert supervised_stack.settings("beta")["CLOUDMATRIX_ALPHA_URL"] == stack.children["alpha"].url


def test_two_stacks_run_beside_each_other(supervised_stack: SupervisedStack, tmp_path: Path) -> None:
    supervised_stack.up()
    other = SupervisedStack(tmp_path / "other")
    other.processes = supervised_stack.processes
    try:
        other.up()
        assert {child.port for child in other.stack().children.values()}.isdisjoint(
            {child.port for child in supervised_stack.stack().children.values()}
        )
        stop_stack(supervised_stack.folder)
        assert httpx.get(other.stack().children["alpha"].url + "/readyz", trust_env=False).status_code == 200
    finally:
        stop_stack(other.folder)


def test_without_fork_a_child_is_a_fresh_interpreter(supervised_stack: SupervisedStack) -> None:
    from services.matrixctl.supervisor.process_spawn import spawn

    supervised_stack.folder.prepare()
    process_lock = supervised_stack.folder.process_lock("alpha").path
    settings = os.environ | {"CLOUDMATRIX_HOST": "127.0.0.1", "CLOUDMATRIX_PORT": str(free_port("127.0.0.1"))}
    pid = spawn(
        "alpha",
        supervised_stack.processes[0].module,
        dict(settings),
        process_lock,
        supervised_stack.folder.logs / "alpha.log",
        False,
    )
    eventually(lambda: supervised_stack.pid("alpha") == pid)
    assert stop_stack(supervised_stack.folder) == ["alpha"]
    os.waitpid(pid, 0)


def test_emulated_time_never_goes_back() -> None:
    first = StackTime(60.0, 1000.0, 1000.0)
    stopped = StackTime(60.0, 1000.0, 1000.0, stopped_wall=1100.0)
    assert first.emulated(1100.0) == 7000.0
    assert stopped.next_run(1.0, 2000.0) == StackTime(1.0, 2000.0, 7000.0)
    assert first.next_run(1.0, 2000.0) == StackTime(1.0, 2000.0, 61000.0), "an unknown end may have been just now"
    assert stopped.next_run(1.0, 9000.0).anchor_emulated == 9000.0, "and today is never behind"


def test_who_never_answered_yet_is_given_longer_than_who_fell_silent(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large machine takes its processes minutes until they listen, where other things run beside them."""
    supervised_stack.folder.prepare()
    supervisor = Supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=()))
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


def test_a_state_keeps_its_database_and_a_restart_its_address(supervised_stack: SupervisedStack) -> None:
    supervised_stack.folder.prepare()
    asked = StackRequest(
        supervised_stack.processes, seed=7, database="postgresql://one/{service}", host="0.0.0.0", shared=()
    )
    begun = Supervisor(supervised_stack.folder, asked).stack
    supervised_stack.folder.write(begun)
    again = Supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=())).stack
    assert (again.database, again.seed, again.host) == ("postgresql://one/{service}", 7, "127.0.0.1")
    same = request_of(begun)
    assert (same.database, same.host) == (asked.database, asked.host)
    moved = Supervisor(
        supervised_stack.folder,
        StackRequest(supervised_stack.processes, database="postgresql://two/{service}", shared=()),
    ).stack
    assert moved.database == "postgresql://two/{service}"


def test_a_terminal_that_is_closed_leaves_nothing_behind(supervised_stack: SupervisedStack) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        supervised_stack.up()
    finally:
        signal.signal(signal.SIGHUP, before)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    supervisor.signal(signal.SIGHUP)
    eventually(lambda: not supervisor.alive())
    assert supervised_stack.folder.holders() == {}
    assert supervised_stack.stack().time.stopped_wall is not None


def test_a_stack_ends_whose_state_folder_is_taken_away(supervised_stack: SupervisedStack) -> None:
    begun = supervised_stack.up()
    first = supervised_stack.folder.supervisor()
    assert first is not None
    first.signal(signal.SIGKILL)
    eventually(lambda: not first.alive())
    supervised_stack.up()  # has taken over what the first had left
    second = supervised_stack.folder.supervisor()
    assert second is not None
    shutil.rmtree(supervised_stack.folder.run)
    eventually(lambda: not second.alive())
    assert not any(started_at(child.pid) for child in begun.children.values())


def test_who_cannot_be_started_now_is_tried_again_and_the_others_are_kept(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    supervised_stack.folder.prepare()
    supervisor = Supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=()))
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
    assert (supervisor.stack.children["alpha"].pid, supervisor.runtimes["alpha"].is_child) == (4711, True)


@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own alone")
def test_processes_are_found_where_they_listen_also_after_that_was_changed(supervised_stack: SupervisedStack) -> None:
    begun = StackRequest(supervised_stack.processes, host="127.0.0.2", shared=())
    supervised_stack.folder.prepare()
    supervised_stack.folder.write(Supervisor(supervised_stack.folder, begun).stack)
    assert supervised_stack.stack().children["alpha"].url.startswith("http://127.0.0.2:")
    process_lock = supervised_stack.folder.process_lock("alpha")
    process_lock.acquire()  # as if it had outlived its supervisor
    urls = {
        host: Supervisor(supervised_stack.folder, replace(begun, host=host)).stack.children["alpha"].url
        for host in ("127.0.0.2", "127.0.0.1", "0.0.0.0")
    }
    process_lock.release()
    assert urls["127.0.0.2"] == supervised_stack.stack().children["alpha"].url
    assert all(urls[host].startswith("http://127.0.0.1:") for host in ("127.0.0.1", "0.0.0.0"))


@pytest.mark.skipif(sys.platform == "darwin", reason="it has one address of its own alone")
def test_a_port_has_to_be_free_wherever_the_process_listens(supervised_stack: SupervisedStack) -> None:
    supervised_stack.folder.prepare()
    with socket.create_server(("127.0.0.2", supervised_stack.processes[0].port)):
        inside = Supervisor(supervised_stack.folder, StackRequest(supervised_stack.processes, shared=())).stack
        everywhere = Supervisor(
            supervised_stack.folder, StackRequest(supervised_stack.processes, host="0.0.0.0", shared=())
        ).stack
    assert inside.children["alpha"].port == supervised_stack.processes[0].port
    assert everywhere.children["alpha"].port != supervised_stack.processes[0].port


def test_an_operator_hears_where_the_kubernetes_api_listens_now(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    supervisor = Supervisor(folder, StackRequest(shared=()))
    before = supervisor.fingerprint("operator")
    assert supervisor.environment("operator")["CLOUDMATRIX_KUBE_URL"] == supervisor.stack.children["kube"].url
    supervisor._update("kube", url="https://127.0.0.1:1")
    assert supervisor.environment("operator")["CLOUDMATRIX_KUBE_URL"] == "https://127.0.0.1:1"
    assert supervisor.fingerprint("operator") != before, "it is started anew"
