"""Record a test's requests to a world in this process, so that they can be replayed."""

from __future__ import annotations

import asyncio

import httpx

from services.recordings.journals import events_since, revisions
from services.recordings.recording import About, Action, Recording
from services.recordings.write_log import MUTATING_METHODS, RECORDED_HEADERS
from services.testing.cluster import Cluster


class Recorder:
    """Records one life of a world, from the moment at which it was ready."""

    def __init__(self, stack: Cluster) -> None:
        self._stack = stack
        self.began_s = stack.clock.now()
        self.initial_state = stack.initial_state()
        self.since = revisions(stack.folder)
        self.actions: list[Action] = []

    async def sleep(self, seconds: float) -> None:
        """Advance time, and record that."""
        self.actions.append(Action(at_s=self.now_s(), sleep_s=seconds))
        await asyncio.sleep(seconds)

    def transport_to(self, name: str) -> httpx.AsyncBaseTransport:
        """Return a transport to a service, or to `kube`, that records requests which may change state."""
        inner = self._stack.kube_http._transport if name == "kube" else self._stack.transport_to(name)
        return _RecordingTransport(self, name, inner)

    def record(self, service: str, request: httpx.Request, at_s: float, status: int) -> None:
        headers = {key: request.headers[key] for key in RECORDED_HEADERS if key in request.headers}
        path, body = request.url.raw_path.decode(), request.content.decode("latin-1")
        self.actions.append(
            Action(
                at_s=at_s,
                service=service,
                method=request.method,
                path=path,
                headers=headers,
                body=body,
                status=status,
            )
        )

    def recording(self, seed: int, time_scale: float) -> Recording:
        about = About(exact=True, seed=seed, time_scale=time_scale, began_s=self.began_s, length_s=self.now_s())
        events = events_since(self._stack.folder, self.since)
        return Recording(about=about, actions=tuple(self.actions), events=tuple(events))

    def now_s(self) -> float:
        """Emulated seconds since recording began."""
        return self._stack.clock.now() - self.began_s


class _RecordingTransport(httpx.AsyncBaseTransport):
    def __init__(self, recorder: Recorder, service: str, inner: httpx.AsyncBaseTransport) -> None:
        self._recorder, self._service, self._inner = recorder, service, inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        at_s = self._recorder.now_s()
        answer = await self._inner.handle_async_request(request)
        if request.method in MUTATING_METHODS:
            self._recorder.record(self._service, request, at_s, answer.status_code)
        return answer
