"""Network: every request, answer and event of a watch between processes is a message of its own, with a fate drawn for it.

A request arrives late, twice or not at all; so does its answer. What overtakes what is a matter of their delays. An
open watch is one connection: its events stay in order, and it breaks with a process or after a minute of silence. Who
waits gives up by its own deadline, and what it sent may arrive after that. A process is known by `loop.PROCESS`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from services.testing.asgi import scope_of
from tests.simulation.whole_stack.loop import PROCESS

QUICK_S = 0.001
"""Of a calm network."""
ORDER_S = 1e-6
"""Between two pieces of one stream, so that they arrive as they were sent."""
LATE_S_MAX = 40.0
"""Messages are never later than that."""
DOUBLED = ("PUT", "DELETE")
"""Methods that a client or a proxy between them may send again by itself."""
REPORTS = ("/v1/node-reports", "/v1/link-reports")


@dataclass(frozen=True)
class Weather:
    """What befalls messages: shares of them, and how late the late ones are (s)."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    late_s: float = 5.0
    jitter_s: float = 0.02


CALM = Weather(jitter_s=0.0)


@dataclass
class Process:
    """Where requests to one replica arrive."""

    name: str
    app: Any = None
    up: bool = False
    life: int = 0
    tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    """In the order in which they began."""

    def cut(self) -> None:
        self.life += 1
        for task in list(self.tasks):
            task.cancel()


class Network:
    """`happened` is called with each delivery, as an event of the simulation."""

    def __init__(self, random: Random, weather: Weather, happened: Callable[[str, str], None]) -> None:
        self._random = random
        self.weather = weather
        self._happened = happened
        self.processes: dict[str, list[Process]] = {}
        """Replicas by service."""
        self._turn: dict[str, int] = {}
        self._cut: set[frozenset[str]] = set()
        self.stray: Callable[[httpx.Request], None] = lambda request: None
        """Called when a request of a user's arrives of which its user may not have the answer."""
        self.taken_up: Callable[[httpx.Request], Callable[[], None]] = lambda request: lambda: None
        """Called when a process takes up a request of a user's; what it returns is called once the process is done
        with it, which can be long after the user gave up: a process that stands still answers when it goes on."""

    def transport_to(self, service: str) -> httpx.AsyncBaseTransport:
        return _Way(self, service)

    # -- partitions ----------------------------------------------------------------------------------------------

    def part(self, one: str, other: str) -> None:
        """No message passes between these two services."""
        self._cut.add(frozenset((one, other)))

    def join(self) -> None:
        self._cut.clear()

    @property
    def parted(self) -> bool:
        return bool(self._cut)

    def _reaches(self, sender: str, service: str) -> bool:
        return frozenset((_service_of(sender), service)) not in self._cut

    # -- messages ------------------------------------------------------------------------------------------------

    async def carry(self, service: str, request: httpx.Request) -> httpx.Response:
        """The answer to a request, if there is one in time."""
        loop, sender = asyncio.get_running_loop(), PROCESS.get()
        await request.aread()
        timeout = request.extensions.get("timeout", {})
        answer: asyncio.Future[httpx.Response] = loop.create_future()
        delays = self._copies(request)
        exchange = _Exchange(self, sender, service, request, answer)
        for delay_s in delays:
            loop.call_later(delay_s, exchange.arrives, context=Context())
        late = loop.call_later(
            timeout.get("read") or 60.0, exchange.given_up, httpx.ReadTimeout("no answer in time", request=request),
            context=Context(),
        )  # fmt: skip
        try:
            return await answer
        finally:
            late.cancel()

    def _copies(self, request: httpx.Request) -> list[float]:
        weather, random = self.weather, self._random
        if weather is CALM:
            return [QUICK_S]
        if random.random() < weather.lost:
            return []
        twice = request.method in DOUBLED or request.url.path in REPORTS
        copies = 2 if twice and random.random() < weather.doubled else 1
        return [self.delay_s() for _ in range(copies)]

    def delay_s(self) -> float:
        weather, random = self.weather, self._random
        if weather is CALM:
            return QUICK_S
        if random.random() < weather.late:
            return random.uniform(0.1, weather.late_s)
        return QUICK_S + random.random() * weather.jitter_s

    def loses(self) -> bool:
        return self.weather is not CALM and self._random.random() < self.weather.lost

    def choose(self, service: str) -> Process | None:
        """The next replica that is up, as a load balancer has it."""
        up = [process for process in self.processes.get(service, ()) if process.up]
        if not up:
            return None
        self._turn[service] = turn = self._turn.get(service, 0) + 1
        return up[turn % len(up)]

    def happens(self, kind: str, event: str) -> None:
        self._happened(kind, event)


class _Way(httpx.AsyncBaseTransport):
    def __init__(self, network: Network, service: str) -> None:
        self._network, self._service = network, service

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._network.carry(self._service, request)


class _Exchange:
    """One request, however many copies of it arrive, and its answer."""

    def __init__(
        self,
        network: Network,
        sender: str,
        service: str,
        request: httpx.Request,
        answer: asyncio.Future[httpx.Response],
    ) -> None:
        self._network = network
        self._sender = sender
        self._service = service
        self._request = request
        self._answer = answer
        self._arrived = 0

    @property
    def _request_line(self) -> str:
        query = self._request.url.query.decode()
        return f"{self._request.method} {self._request.url.path}{query and '?'}{query}"

    def given_up(self, why: httpx.HTTPError) -> None:
        if not self._answer.done():
            self._answer.set_exception(why)

    def arrives(self) -> None:
        """The request is there."""
        network = self._network
        if not network._reaches(self._sender, self._service):
            return
        process = network.choose(self._service)
        self._arrived += 1
        if self._sender == "user" and (self._arrived > 1 or self._answer.done()):
            network.stray(self._request)
        body = zlib.crc32(self._request.content)
        to = process.name if process is not None else f"{self._service}, which is down"
        network.happens("request", f"{self._sender} asks {to}: {self._request_line} {body:08x}")
        if process is None:
            loop = asyncio.get_running_loop()
            refused = httpx.ConnectError("refused", request=self._request)
            loop.call_later(network.delay_s(), self.given_up, refused, context=Context())
            return
        context = Context()
        context.run(PROCESS.set, process.name)
        server = _Server(network, process, self)
        task = asyncio.get_running_loop().create_task(server.run(), context=context)
        process.tasks[task] = None
        task.add_done_callback(process.tasks.pop, context=Context())
        task.add_done_callback(server.ended, context=Context())
        if self._sender == "user":
            done = network.taken_up(self._request)
            task.add_done_callback(lambda _: done(), context=Context())

    def request_scope(self) -> tuple[dict[str, Any], bytes]:
        return scope_of(self._request), self._request.content

    def later(self, action: Callable[..., None], *args: Any, after: float = 0.0) -> float:
        """Have a part of the answer travel; when it arrives (never before `after`, s of the loop)."""
        loop = asyncio.get_running_loop()
        at = max(after, loop.time() + self._network.delay_s())
        loop.call_at(at, action, *args, context=Context())
        return at

    def answered(self, process: str, status: int, headers: Any, body: bytes) -> None:
        """The whole answer has arrived."""
        if not self._network._reaches(self._sender, self._service):
            return
        self._network.happens(
            "answer", f"{process} answers {self._sender}: {self._request_line} {status} {zlib.crc32(body):08x}"
        )
        if not self._answer.done():
            self._answer.set_result(httpx.Response(status, headers=headers, content=body, request=self._request))

    def opened(self, process: str, status: int, headers: Any, stream: _Stream) -> None:
        """A watch has begun."""
        if not self._network._reaches(self._sender, self._service):
            stream.closed.set()
            return
        self._network.happens("watch", f"{process} opens {self._request_line} {status} to {self._sender}")
        if self._answer.done():
            stream.closed.set()
        else:
            self._answer.set_result(httpx.Response(status, headers=headers, stream=stream, request=self._request))

    def streamed(self, process: str, stream: _Stream, chunk: bytes | None) -> None:
        """Some of a watch has arrived; where the two are parted, it is sent again until they are not."""
        if not self._network._reaches(self._sender, self._service) and chunk is not None:
            stream.last_at = self.later(self.streamed, process, stream, chunk, after=stream.last_at + 1.0)
            return
        if chunk is not None:
            self._network.happens(
                "news", f"{process} sends {self._sender}: {zlib.crc32(chunk):08x} of {self._request_line}"
            )
        stream.outbox.put_nowait(chunk)


class _Server:
    """A request under way in a process."""

    def __init__(self, network: Network, process: Process, exchange: _Exchange) -> None:
        self._network = network
        self._process = process
        self._exchange = exchange
        self._life = process.life
        self._status, self._headers = 0, []
        self._body = b""
        self._stream: _Stream | None = None
        self._whole = False

    async def run(self) -> None:
        scope, body = self._exchange.request_scope()
        self._stream = stream = _Stream()
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await stream.closed.wait()
            return {"type": "http.disconnect"}

        await self._process.app(scope, receive, self._send)

    async def _send(self, message: dict[str, Any]) -> None:
        if self._process.life != self._life:
            return  # its process has ended
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message.get("headers", [])
        elif message["type"] == "http.response.body":
            self._more(message.get("body", b""), bool(message.get("more_body", False)))

    def _more(self, chunk: bytes, more: bool) -> None:
        exchange, process, stream = self._exchange, self._process.name, self._stream
        assert stream is not None
        if not stream.open and more and dict(self._headers).get(b"content-type", b"").startswith(b"text/event-stream"):
            stream.open = True
            stream.last_at = exchange.later(exchange.opened, process, self._status, self._headers, stream)
        if stream.open:
            stream.silence_ends(exchange.later, exchange.streamed, process, chunk if more else None)
            return
        self._body += chunk
        if not more:
            self._whole = True
            if not self._network.loses():
                exchange.later(exchange.answered, process, self._status, self._headers, self._body)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Who is answered in part, or not at all, hears that the connection broke."""
        failed = not task.cancelled() and task.exception() is not None
        if self._stream is not None and self._stream.open:
            self._stream.silence_ends(self._exchange.later, self._exchange.streamed, self._process.name, None)
        elif not self._whole or failed:
            broken = httpx.ReadError("cut off", request=self._exchange._request)
            self._exchange.later(self._exchange.given_up, broken)


class _Stream(httpx.AsyncByteStream):
    """What arrives of a watch."""

    def __init__(self) -> None:
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.open = False
        self.last_at = 0.0

    def silence_ends(self, later: Callable[..., float], action: Callable[..., None], *args: Any) -> None:
        """Send some, after all that was sent before."""
        process, chunk = args
        if chunk is None or chunk:
            self.last_at = later(action, process, self, chunk, after=self.last_at + ORDER_S)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self.outbox.get()) is not None:
            yield chunk

    async def aclose(self) -> None:
        self.closed.set()


def _service_of(process: str) -> str:
    return process.removesuffix("-replica")
