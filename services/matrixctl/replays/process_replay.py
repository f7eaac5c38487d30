"""Replay of a recording on a stack of real processes: each request is sent again at its time, by the stack's own clock.

The outcome is compared as for any recording of real processes: by the states that each object went through. The replay
ends at the first object that takes another course, at the first request that is refused although it was accepted when
recorded, or when everything recorded has been observed. A process that dies meanwhile invalidates the replay, which
says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import httpx

from matrixcommon.model.errors import InternalError
from services.matrixctl.clients.kubernetes import stack_cluster
from services.matrixctl.replays.initial_state import prepare_stack
from services.matrixctl.supervisor.machine_check import ready_timeout_wall_s
from services.matrixctl.supervisor.state_folder import Stack, StateFolder
from services.matrixctl.supervisor.up import show_progress, start_supervisor, stop_stack
from services.recordings import recording as recordings
from services.recordings.comparison import Difference, compare_states, first_divergence
from services.recordings.journals import events_since
from services.recordings.recording import Action, Event, Recording

POLL_PERIOD_WALL_S = 0.2
ANSWER_TIMEOUT_WALL_S, ANSWER_TIMEOUT_WALL_S_MAX = 1.0, 120.0
"""How long to wait for an answer before sending the next request, and in total: some requests wait for later events."""
LATENESS_S_MAX, LATENESS_WALL_S_MAX = 600.0, 60.0
"""How much later than recorded things may happen: emulated seconds, as in virtual time, or wall seconds, since some
work takes real time, more of it on a busy machine. The longer of both applies."""
CONCURRENCY_MAX = 16

ReportProgress = Callable[[float, str], object]
"""Called with emulated seconds since the start, and the request, or nothing if only time has passed."""


@dataclass(frozen=True)
class Outcome:
    """`difference`: the first one, observed `at_s` emulated seconds after the start; None if there was none."""

    difference: Difference | None
    at_s: float


def replay(file: Path, folder: StateFolder, report_progress: ReportProgress, keep: bool = False) -> Outcome:
    """Replay on a stack in that folder, which is stopped afterwards unless `keep`.

    Raises InvalidField, UnknownSnapshot; Conflict for a folder whose stack is in use, before anything is changed;
    InternalError if the stack does not start, or one of its processes dies.
    """
    recorded = recordings.read_recording(file)
    request, since = prepare_stack(folder, file, recorded.about)
    threads = ThreadPoolExecutor(CONCURRENCY_MAX, thread_name_prefix="replay")
    try:
        supervisor = start_supervisor(folder, request.to_json())
        show_progress(folder, supervisor, ready_timeout_wall_s(folder, request.topology))
        return Replay(folder, recorded, since, report_progress).run(threads)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # requests still waiting get no answer
        if not keep:
            stop_stack(folder)


class Replay:
    """The replay of one recording, on a stack that is ready and in the recording's initial state."""

    def __init__(
        self, folder: StateFolder, recorded: Recording, since: dict[str, int], report_progress: ReportProgress
    ) -> None:
        self._folder, self._recorded, self._report_progress = folder, recorded, report_progress
        self._since = dict(since)
        self._events: list[Event] = []
        self._compared = 0
        self._pending: dict[Future[int], Action] = {}
        stack = self._read_stack()
        self._restarts = {name: child.restarts for name, child in stack.children.items()}
        self._began_s = stack.time.emulated(time.time())
        token = {"Authorization": f"Bearer {folder.admin_token()}"}
        self._http = {
            name: httpx.Client(base_url=child.url, headers=token, timeout=ANSWER_TIMEOUT_WALL_S_MAX, trust_env=False)
            for name, child in stack.children.items()
            if name != "kube"
        }
        self._http["kube"] = stack_cluster(folder).http

    def run(self, threads: ThreadPoolExecutor) -> Outcome:
        """Run to the end, or to the first difference."""
        waiting = [action for action in self._recorded.actions if action.sleep_s is None]
        over_wall = 0.0
        length_s = max([self._recorded.about.length_s, *(action.at_s for action in waiting)])
        while True:
            at_s = self._poll()
            if (difference := self._find_refusal() or self._find_divergence()) is not None:
                return Outcome(difference, at_s)
            if at_s >= length_s and not waiting:
                difference = compare_states(self._recorded.events, self._events)
                over_wall = over_wall or time.monotonic()
                late = at_s > length_s + LATENESS_S_MAX and time.monotonic() > over_wall + LATENESS_WALL_S_MAX
                if difference is None or late:
                    return Outcome(difference, at_s)
            if waiting and at_s >= waiting[0].at_s:
                self._report_progress(at_s, str(waiting[0]))
                self._send(waiting.pop(0), threads)
            else:
                self._report_progress(at_s, "")
                time.sleep(POLL_PERIOD_WALL_S)

    def _send(self, action: Action, threads: ThreadPoolExecutor) -> None:
        """Send a request in a thread, so that one that is answered late does not delay the others."""
        asked = threads.submit(self._status_of, action)
        self._pending[asked] = action
        wait((asked,), timeout=ANSWER_TIMEOUT_WALL_S)

    def _status_of(self, action: Action) -> int:
        body = action.body.encode("latin-1")
        client = self._http[action.service]
        return client.request(action.method, action.path, headers=action.headers, content=body).status_code

    def _find_refusal(self) -> Difference | None:
        """The first request that was accepted when recorded and is refused now. Raises InternalError if one was not
        answered."""
        for asked in [each for each in self._pending if each.done()]:
            action = self._pending.pop(asked)
            try:
                status = asked.result()
            except httpx.HTTPError as wrong:
                raise InternalError(f"{action} was not answered: {wrong or type(wrong).__name__}") from wrong
            if action.status < 400 <= status:
                return Difference(f"{action}: answered with {action.status}", f"{action}: refused with {status}")
        return None

    def _find_divergence(self) -> Difference | None:
        """The first difference between observed and recorded states; checked only after new events."""
        if len(self._events) == self._compared:
            return None
        self._compared = len(self._events)
        return first_divergence(self._recorded.events, self._events)

    def _poll(self) -> float:
        """Read new events; returns the emulated seconds passed. Raises InternalError if a process has died."""
        stack = self._read_stack()
        for name, child in stack.children.items():
            if child.restarts != self._restarts[name]:
                log = self._folder.logs / f"{name}.log"
                raise InternalError(
                    f"{name} died during the replay ({child.last_exit}), so the replay shows nothing; see {log}"
                )
        if self._folder.supervisor() is None:
            raise InternalError(
                f"the stack in {self._folder.path} was stopped during the replay, so the replay shows nothing"
            )
        for event in events_since(self._folder.path, self._since):
            self._events.append(event)
            self._since[event.service] = max(self._since[event.service], event.revision)
        return stack.time.emulated(time.time()) - self._began_s

    def _read_stack(self) -> Stack:
        stack = self._folder.read()
        if stack is None:
            raise InternalError(f"the stack in {self._folder.path} is gone")
        return stack
