"""When a replay on real processes ends. The processes are stand-ins here; real ones are in
tests/e2e/test_snapshots.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from matrixcommon.model.errors import InternalError
from services.matrixctl.replays import process_replay
from services.matrixctl.replays.process_replay import Outcome, Replay
from services.matrixctl.supervisor.state_folder import Child, Stack, StackTime
from services.recordings.recording import About, Action, Event, Recording
from tests.services.recordings.test_replay import event

SCALE = 1000.0
ABOUT = About(exact=False, seed=1, time_scale=SCALE, began_s=0, length_s=60)


def asked(at_s: float, path: str) -> Action:
    return Action(at_s=at_s, service="compute", method="PUT", path=path, status=202)


class Processes:
    """A folder whose stack is ready; `comes` are the changes that its journals have from the start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, comes: list[Event]) -> None:
        self.path = self.logs = Path("/nowhere")
        when = StackTime(SCALE, time.time(), 0.0)
        self.stack = Stack((), when, children={"compute": Child("compute", url="http://compute")})
        self.seen: list[str] = []
        self.reported: list[tuple[float, str]] = []
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(202)
        monkeypatch.setattr(process_replay, "stack_cluster", lambda _: SimpleNamespace(http=None))
        monkeypatch.setattr(process_replay, "events_since", lambda _, since: [] if since["compute"] else comes)
        monkeypatch.setattr(process_replay, "POLL_PERIOD_WALL_S", 0.001)

    def read(self) -> Stack:
        return self.stack

    def supervisor(self) -> bool:
        return True

    def admin_token(self) -> str:
        return "token"

    def replayed(self, actions: tuple[Action, ...], events: list[Event]) -> Outcome:
        folder: Any = self
        recorded = Recording(about=ABOUT, actions=actions, events=tuple(events))
        replay = Replay(folder, recorded, {"compute": 0}, lambda at_s, text: self.reported.append((at_s, text)))
        replay._http["compute"] = httpx.Client(base_url="http://compute", transport=httpx.MockTransport(self._answered))
        with ThreadPoolExecutor(2) as threads:
            return replay.run(threads)

    def _answered(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request.url.path)
        return self.answer(request)


LIFE = [event(1, "a", "Pending"), event(2, "a", "Active")]


def test_all_is_asked_at_its_moment_and_the_same_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, LIFE)
    waits = Action(at_s=5, sleep_s=10)
    outcome = processes.replayed((asked(10, "/v1/instances/a"), waits, asked(20, "/v1/instances/b")), LIFE)
    assert outcome.difference is None
    assert outcome.at_s >= ABOUT.length_s
    assert processes.seen == ["/v1/instances/a", "/v1/instances/b"]
    moments = [at_s for at_s, text in processes.reported if text]
    assert moments[0] >= 10
    assert moments[1] >= 20


def test_it_ends_with_the_first_object_that_goes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, [event(1, "a", "Pending"), event(2, "a", "Failed")])
    outcome = processes.replayed((asked(40, "/v1/instances/b"),), LIFE)
    assert str(outcome.difference) == "recorded: instance a, state 2: Active\nreplayed: instance a, state 2: Failed"
    assert processes.seen == [], "before anything else is asked"


def test_it_ends_with_the_first_request_that_is_refused_though_it_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, LIFE)
    processes.answer = lambda _: httpx.Response(409)
    refused_before = asked(1, "/v1/instances/a").model_copy(update={"status": 422})
    outcome = processes.replayed((refused_before, asked(2, "/v1/instances/b")), LIFE)
    assert str(outcome.difference) == (
        "recorded: compute PUT /v1/instances/b: answered with 202\n"
        "replayed: compute PUT /v1/instances/b: refused with 409"
    )


def test_what_never_comes_is_waited_for_and_then_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, LIFE[:1])
    monkeypatch.setattr(process_replay, "LATENESS_WALL_S_MAX", 0.1)
    outcome = processes.replayed((), LIFE)
    assert str(outcome.difference) == "recorded: instance a, state 2: Active\nreplayed: no further event"
    assert outcome.at_s > ABOUT.length_s + process_replay.LATENESS_S_MAX


def test_a_process_that_ends_makes_a_replay_worth_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, LIFE)

    def ends(_: httpx.Request) -> httpx.Response:
        child = replace(processes.stack.children["compute"], restarts=1, last_exit="killed by SIGKILL")
        processes.stack = processes.stack.with_child(child)
        return httpx.Response(202)

    processes.answer = ends
    with pytest.raises(InternalError, match=r"compute died during the replay \(killed by SIGKILL\)"):
        processes.replayed((asked(1, "/v1/instances/a"),), LIFE)


def test_so_does_a_request_that_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, LIFE)

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    processes.answer = gone
    with pytest.raises(InternalError, match="compute PUT /v1/instances/a was not answered: refused"):
        processes.replayed((asked(1, "/v1/instances/a"),), LIFE)
