"""SimulatedLife: one life of the whole stack, of which every event is counted, noted and judged.

Users, mishaps and messages happen at the same time: a request is asked while others are under way. So what a user was
told counts only where nothing else touched the same resource meanwhile, and nothing of his is left in the network.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any
from unittest.mock import patch

import httpx

from matrixcommon.api.client import call
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_key import key_of
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.transaction import GroupTransaction
from matrixcontainer.client.client import INSTANCE, SCALING_POLICY, Kind
from matrixlink.client import LinkClient
from services.chassis.http import http_client
from services.testing.asgi import StreamingASGITransport
from tests.accounting import audit
from tests.rest_lists import LISTS, fetch
from tests.simulation.rest_life import Answer, Life
from tests.simulation.whole_stack.journals import Journals
from tests.simulation.whole_stack.kubernetes import NAMES, kube_client, unsettled
from tests.simulation.whole_stack.loop import PROCESS, VirtualLoop
from tests.simulation.whole_stack.network import CALM, LATE_S_MAX, Network
from tests.simulation.whole_stack.stack import SimulatedStack, service_of
from tests.stack import Stack

Key = tuple[str, str]
"""A collection and a key in it."""


class SimulatedLife(Life):
    """`Life` in a VirtualLoop, whose events end once there were `events_max`."""

    new_loop = VirtualLoop
    loop: VirtualLoop
    stack: SimulatedStack

    def __init__(self, seed: int, events_max: int, replicated: tuple[str, ...], scaled: bool = False) -> None:
        self.seed = seed
        self.events: list[str] = []
        self.events_max = events_max
        self._begun = self.is_calm = False
        self.kinds: Counter[str] = Counter()
        self.scaled: set[str] = set()
        """Instances whose size a policy may have changed."""
        self.over = asyncio.Event()
        self.failures: list[BaseException] = []
        self.journals: Journals | None = None
        self.killed_before: dict[str, int] = {}
        """Processes that end right before a commit, and how many commits are left to them."""
        self._asked: dict[Key, int] = {}
        """How many requests were sent to change each."""
        self._open: Counter[Key] = Counter()
        self._under_way: Counter[Key] = Counter()
        """Requests that processes work on, whether their users still wait or not."""
        self._sure: set[Key] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hash = hashlib.sha256()
        network = Network(Random(f"{seed}:network"), CALM, self.happened)
        network.stray, network.taken_up = self._stray, self._taken_up
        self._kube = kube_client(network.transport_to("kube"))
        super().__init__(
            lambda folder: SimulatedStack(folder, 1, network=network, replicated=replicated, scaled=scaled)
        )

    async def _begin(self, make: Any) -> Stack:
        stack: SimulatedStack = make(self.folder)
        stack.on_copied = lambda: setattr(self, "journals", Journals(self.folder))
        stack.served.fabric = self._fabric_of
        self.stack = stack
        await stack.__aenter__()
        assert self.journals is not None
        self.journals.planes = (await call(self.direct()["link"], "GET", "/v1/planes"))["items"]
        return stack

    def direct(self) -> dict[str, httpx.AsyncClient]:
        """Clients of processes that are up, past the network: for the accountant, who changes nothing."""
        found = {}
        for service, processes in self.stack.network.processes.items():
            up = next((each for each in processes if each.up), None)
            if up is not None:
                found[service] = http_client(f"http://{service}", transport=StreamingASGITransport(up.app))
        return found

    async def _fabric_of(self, key: str) -> tuple[list[str], int] | None:
        """The members of an instance that its fabric reaches, past the network: a message each would leave no room for
        anything else."""
        link = self.direct().get("link")
        if link is None:
            return None
        try:
            view = await LinkClient(link).fabric_view(key)
        except MatrixError:
            return None
        if view is None:
            return [], 0
        return sorted({node for plane in view.planes.values() for node in plane.nodes}), view.generation

    def close(self) -> None:
        if self.journals is not None:
            self.journals.close()
        super().close()

    # -- events --------------------------------------------------------------------------------------------------

    def happened(self, kind: str, event: str) -> None:
        """One more event; what the one before it left behind is judged first."""
        if self.over.is_set() or not self._begun:
            return
        self.judge()
        if self.over.is_set():
            return
        line = f"{len(self.events) + 1} {self.loop.time():.6f} {event}"
        self._hash.update(line.encode())
        self.events.append(line)
        self.kinds[kind] += 1
        if len(self.events) >= self.events_max:
            self.over.set()

    def begin(self) -> None:
        """What happens from now on are its events."""
        self._begun = True

    def judge(self) -> None:
        assert self.journals is not None
        broken = self.journals.broken(self.written)
        if broken:
            self.failed(AssertionError("\n".join(broken)))

    def failed(self, why: BaseException) -> None:
        self.failures.append(why)
        self.over.set()

    def hash(self) -> str:
        """Of every event and every change of every resource."""
        assert self.journals is not None
        return hashlib.sha256(f"{self._hash.hexdigest()} {self.journals.hash.hexdigest()}".encode()).hexdigest()

    def spawn(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Have it happen beside the rest; what it raises fails the life."""
        task = self.loop.create_task(awaited)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (wrong := task.exception()) is not None:
            self.failed(wrong)

    # -- what users know -----------------------------------------------------------------------------------------

    async def ask(self, service: str, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        touched = self._touched_by(method, path, body, more) if more.get("validateOnly") is None else ()
        mine = {}
        for key in touched:
            self.written.forget(*key)
            self._sure.discard(key)
            self._asked[key] = mine[key] = self._asked.get(key, 0) + 1
            self._open[key] += 1
        alone = [key for key in touched if self._open[key] == 1 and not self._under_way[key]]
        answer = Answer(0)
        try:
            answer = await super().ask(service, method, path, body, **more)
        finally:
            for key in touched:
                self._open[key] -= 1
                if answer.ok and key in alone and self._asked[key] == mine[key]:
                    self._sure.add(key)
        return answer

    def _touched_by(self, method: str, path: str, body: Any, more: dict[str, Any]) -> list[Key]:
        if method == "GET" or not path.startswith("/v1/"):
            return []
        collection, _, rest = path.removeprefix("/v1/").partition("/")
        name = rest.partition("/")[0].partition(":")[0]
        project = more.get("project") or (body.get("project") if isinstance(body, dict) else None) or "default"
        if collection == "operations":
            mine = [each for each in self.known["operations"] if each["name"] == name]
            return [("instances", key_of(each["project"], each["target"])) for each in mine]
        if collection == "quotas":
            project = name
        return [(collection, key_of(project, name))]

    def _touched_by_sent(self, request: httpx.Request) -> list[Key]:
        body = httpx.Response(200, content=request.content).json() if request.content else None
        params = {"project": request.url.params.get("project")}
        return self._touched_by(request.method, request.url.path, body, params)

    def _taken_up(self, request: httpx.Request) -> Callable[[], None]:
        """Until it is done with, nobody knows what it will have changed after whatever else is answered meanwhile."""
        touched = [] if "validateOnly" in request.url.params else self._touched_by_sent(request)
        self._under_way.update(touched)
        return lambda: self._under_way.subtract(touched)

    def _stray(self, request: httpx.Request) -> None:
        """A copy of a request has arrived of which nobody hears: what it touches is as nobody knows."""
        for key in self._touched_by_sent(request):
            self._asked[key] = self._asked.get(key, 0) + 1
            self._sure.discard(key)
            self.written.forget(*key)

    def wrote(self, answer: Answer, collection: str, key: str, fields: dict[str, Any] | None) -> None:
        if collection in ("instances", "scaling-policies") and key in NAMES:
            return  # it becomes what its resource in Kubernetes says
        if collection == "instances" and key in self.scaled and fields is not None:
            fields = {name: value for name, value in fields.items() if name != "nodes"}
        if not self._stormy or (collection, key) in self._sure:
            super().wrote(answer, collection, key, fields)

    def scales(self, key: str) -> None:
        """From now on a policy may say how many nodes that instance has."""
        self.scaled.add(key)
        if (written := self.written.of.get("instances", {}).get(key)) is not None:
            written.pop("nodes", None)

    @property
    def known(self) -> Any:
        """What there is, as it was at the last commit."""
        assert self.journals is not None
        return self.journals.lists

    @property
    def _stormy(self) -> bool:
        return self._begun and not self.is_calm

    def _lives(self, service: str) -> bool:
        return not self._stormy and super()._lives(service)

    def _may_fail(self, service: str) -> bool:
        return False  # of who is ended nobody hears

    # -- ends of processes ---------------------------------------------------------------------------------------

    async def end(self, process: str, after_s: float) -> None:
        """SIGKILL, and another life so much later."""
        if process in self.down or process in self.ending:
            return
        await self._end(process)
        await asyncio.sleep(after_s)
        if process in self.down:
            await self.start(process)

    @contextmanager
    def commits(self) -> Iterator[None]:
        """While this lasts, every commit is followed, and processes that are armed end before or after theirs."""
        commit, wake = Database._commit, Database._wake
        random = Random(f"{self.seed}:secrets")

        def ends(armed: dict[str, int]) -> None:
            process = PROCESS.get()
            if process not in armed or process in self.down:
                return
            armed[process] -= 1
            if armed[process] <= 0:
                del armed[process]
                self.stack.stop_writing(process)
                self.happened("kill at commit", f"kill {process} at its commit")
                self.loop.call_soon(
                    lambda: self.spawn(self.end(process, random_s(self.seed, len(self.events)))), context=None
                )
                raise RuntimeError("the process ends here")

        def committing(records: Database, group: GroupTransaction) -> None:
            ends(self.killed_before)
            commit(records, group)

        def woken(records: Database) -> None:
            process = PROCESS.get()
            if self.journals is not None and service_of(process) in LISTS:
                self.journals.follow(service_of(process))
            wake(records)
            ends(self.armed)

        tokens = patch.object(secrets, "token_hex", lambda size=16: f"{random.getrandbits(size * 8):0{size * 2}x}")
        with (
            tokens,
            patch.object(Database, "_commit", committing),
            patch.object(Database, "_wake", woken),
            self._nothing_fails(),
        ):
            yield

    @contextmanager
    def _nothing_fails(self) -> Iterator[None]:
        """What a process that lives logs as an exception fails the life."""
        handler = _Failures(self)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    # -- the accountant ------------------------------------------------------------------------------------------

    async def account(self) -> None:
        """Read REST, and judge what it shows."""
        clients = self.direct()
        lists = await fetch(clients, [name for name in LISTS if name in clients])
        broken = audit(lists, acknowledged=self.written)
        if broken:
            self.failed(AssertionError("REST shows: " + "\n".join(broken)))

    async def calm(self) -> None:
        """The network delivers, everybody is there and hears; who asked has his answer."""
        self.armed.clear()
        self.killed_before.clear()
        network = self.stack.network
        network.weather = CALM
        network.join()
        for process in self.loop.frozen:
            self.loop.resume(process)
        while self._tasks:
            await asyncio.sleep(1.0)
        await asyncio.sleep(LATE_S_MAX)  # what was sent and given up may still arrive
        for process in list(self.down):
            await self.start(process)
        self.is_calm = True

    async def _unsettled(self) -> list[str]:
        """REST is read once the journals show nothing that is unsettled."""
        assert self.journals is not None
        broken = self.journals.unsettled(self.written)
        broken = broken or unsettled(await self._resources(), self.known.keyed("instances"))
        return broken or await super()._unsettled()

    async def _left(self) -> list[str]:
        assert self.journals is not None
        resources = [f"CloudMatrixInstance {each['metadata']['name']} is left" for each in await self._resources()]
        return self.journals.left() or self.stack.served.left() or resources or await super()._left()

    # -- Kubernetes ----------------------------------------------------------------------------------------------

    async def _resources(self, kind: Kind = INSTANCE) -> list[dict[str, Any]]:
        return (await self._kube.list(kind))[0]

    async def apply(self, name: str, spec: dict[str, Any], kind: Kind = INSTANCE) -> None:
        """As `kubectl apply` does; whether it was heard, the operator will show."""
        with suppress(MatrixError):
            await self._kube.apply(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def delete(self, name: str, kind: Kind = INSTANCE) -> None:
        with suppress(MatrixError):
            await self._kube.delete(kind, name, "default")

    async def _give_back(self) -> None:
        for kind in (SCALING_POLICY, INSTANCE):
            for body in await self._resources(kind):
                await self.delete(body["metadata"]["name"], kind)
        self.written.of.pop("scaling-policies", None)
        for each in self.known["scaling-policies"]:
            await self.ask("compute", "DELETE", f"/v1/scaling-policies/{each['name']}", project=each["project"])
        await super()._give_back()


def random_s(seed: int, at: int) -> float:
    """How long a process that ends at its commit stays away."""
    return Random(f"{seed}:{at}:away").choice([0.3, 2.0, 15.0])


class _Failures(logging.Handler):
    def __init__(self, life: SimulatedLife) -> None:
        super().__init__(logging.ERROR)
        self._life = life

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        lives = any(
            each.name == process and each.up for some in self._life.stack.network.processes.values() for each in some
        )
        if lives and record.exc_info is not None and record.exc_info[1] is not None:
            wrong = record.exc_info[1]
            self._life.failed(
                AssertionError(f"{process}: {record.getMessage()}: {wrong!r}").with_traceback(wrong.__traceback__)
            )
