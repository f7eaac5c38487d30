"""One life of the whole stack as its users have it: they ask over REST, hardware fails, services end at any moment.

What was acknowledged is remembered. After every step the accountant looks, and at the end, once faults are cleared and
everything has settled, again: with what must hold then, and once more when all is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_key import key_of
from matrixcommon.persistence.database_session import Database
from tests.accounting import Acknowledged, Lists, audit, fetch, waits
from tests.clocks import virtual_loop
from tests.simulation.exported_life import History
from tests.small_stack import replica_of
from tests.stack import Stack

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Databases lie in memory where that can be had: what a life costs is mostly waiting for a disk otherwise."""
STEP_S = 20.0
SETTLED_WITHIN_S = 3600.0
"""Longer than any hold-down or deadline after which something is tried again."""
SERVICES = ("resource", "link", "compute")
RETURNED_BY = {"Manageable": "recover", "Servicing": "recover", "Quarantined": "recover", "Retired": "enrol"}
"""By the state that a node may be wanted in, the verb that makes it available again."""


@dataclass(frozen=True)
class Answer:
    """What was heard: 0 is nothing, whatever has become of the request."""

    status: int
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def unknown(self) -> bool:
        return self.status in (0, 500, 503)


class Life:
    """A stack in a loop of its own, whose time runs only while a step is taken."""

    new_loop: Callable[[], asyncio.AbstractEventLoop] = staticmethod(virtual_loop)

    def __init__(self, make: Callable[[Path], Stack]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rest-life-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT", MEMORY)))
        self.loop = self.new_loop()
        self.stack = self.run(self._begin(make))
        self.written = Acknowledged()
        self.before: Lists | None = None
        self.lists = Lists()
        self.down: dict[str, int] = {}
        """Services that are not running, and in how many steps they start again."""
        self.armed: dict[str, int] = {}
        """Services that end right after a commit, and how many commits are left to them."""
        self.ending: set[str] = set()
        self._killing: asyncio.Task[None] | None = None
        self.faults: list[str] = []
        self.heard: Counter[str] = Counter()
        self.refused: list[str] = []
        self.history = History()

    def run(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(awaited)

    async def _begin(self, make: Callable[[Path], Stack]) -> Stack:
        stack = make(self.folder)
        await stack.__aenter__()
        return stack

    def close(self) -> None:
        try:
            self.run(self.stack.__aexit__())
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.run(self._ended(left))
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _ended(self, tasks: set[asyncio.Task[Any]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- asking --------------------------------------------------------------------------------------------------

    async def ask(
        self,
        service: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> Answer:
        """One request. A refusal is a problem with a reason; a service fails only while it ends."""
        sent: dict[str, Any] = {"params": {name: value for name, value in params.items() if value is not None}}
        if body is not None:
            sent["json"] = body
        try:
            answer = await self.stack.http[service].request(method, path, headers=headers or {}, **sent)
            document = answer.json() if answer.content else {}
        except (httpx.HTTPError, ValueError):
            assert not self._lives(service), f"{method} {path}: no answer from a service that runs"
            return Answer(0)
        self.heard[f"{method} {path.split('/')[2]} {answer.status_code}"] += 1
        if answer.status_code == 500 and self._may_fail(service):
            return Answer(0)
        if answer.status_code >= 400:
            assert answer.status_code < 500 or answer.status_code == 503, f"{method} {path} {body}: {answer.text}"
            assert {"type", "reason", "requestId"} <= document.keys(), f"{method} {path} {body}: {answer.text}"
            self.refused.append(document["reason"])
        elif "validateOnly" not in sent["params"]:
            self.history.heard(self.loop.time(), service, method, path, body)
        return Answer(answer.status_code, document)

    def slots(self, service: str) -> list[str]:
        """Where its replicas run."""
        return [each for each in (service, replica_of(service)) if each in self.stack.slots]

    def _lives(self, service: str) -> bool:
        """Whether every request to it comes to its end."""
        return not {*self.slots(service)} & {*self.down, *self.ending}

    def _may_fail(self, service: str) -> bool:
        """Whether an answer of 500 may be one of its last words."""
        return not self._lives(service)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def wrote(self, answer: Answer, collection: str, key: str, fields: dict[str, Any] | None) -> None:
        """Remember what was acknowledged; forget what nobody knows."""
        if answer.ok:
            self.written.wrote(collection, key, fields)
        elif answer.unknown:
            self.written.forget(collection, key)

    def forget(self, answer: Answer, collection: str, key: str) -> None:
        """What was asked may end by itself, so nobody counts on it."""
        if answer.ok or answer.unknown:
            self.written.forget(collection, key)

    # -- ends and beginnings of services -------------------------------------------------------------------------

    async def kill(self, service: str, steps: int = 0) -> None:
        """End it now; it starts again so many steps later."""
        self.armed.pop(service, None)
        if self._killing is not None and service in self.ending:
            await self._killing
        elif service not in self.down:
            await self._end(service)
        self.down[service] = steps

    async def _end(self, service: str) -> None:
        self.ending.add(service)
        self.history.killed(self.loop.time(), service)
        await self.stack.kill(service)
        self.down[service] = 1
        self.ending.discard(service)

    async def start(self, service: str) -> None:
        await self.stack.start(service)
        self.down.pop(service, None)

    async def kill_during(self, awaited: Coroutine[Any, Any, Any], service: str, turns: int) -> Any:
        """End a service after so many turns of the loop, while something is asked."""
        task = asyncio.create_task(awaited)
        for _ in range(turns):
            if task.done():
                break
            await asyncio.sleep(0)
        await self.kill(service, 1)
        return await task

    @contextlib.contextmanager
    def commits(self) -> Iterator[None]:
        """While this lasts, services that are armed end at their commits."""
        wake = Database._wake

        def woken(records: Database) -> None:
            wake(records)
            for service in [name for name in self.armed if self._commits(name, records)]:
                self.armed[service] -= 1
                if self.armed[service] <= 0:
                    del self.armed[service]
                    self.ending.add(service)
                    self._killing = self.loop.create_task(self._end(service))
                    raise RuntimeError("the process ends here, after its commit and before it can tell anybody")

        Database._wake = woken  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Database._wake = wake  # type: ignore[method-assign]

    def _commits(self, seat: str, records: Database) -> bool:
        database = self.stack.slots[seat].database
        return database is not None and records._sessions is database.sessions

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self, awaited: Coroutine[Any, Any, Any], wait_s: float = 0.0) -> None:
        """Something is done, some time passes, and nothing is broken."""
        with self.commits():
            self.run(self._step(awaited, wait_s))

    async def _step(self, awaited: Coroutine[Any, Any, Any], wait_s: float) -> None:
        await awaited
        if wait_s:
            await asyncio.sleep(wait_s)
        if self._killing is not None:
            await self._killing
        for service in list(self.down):
            self.down[service] -= 1
            if self.down[service] < 0:
                await self.start(service)
        await self.look()
        self.history.saw(self.lists["instances"])
        broken = audit(self.lists, acknowledged=self.written, before=self.before)
        assert not broken, "\n".join(broken)
        self.before = self.lists if "quotas" in self.lists.of else self.before

    async def look(self) -> None:
        services = [name for name in SERVICES if not {*self.slots(name)} <= {*self.down, *self.ending}]
        try:
            self.lists = await fetch(self.stack.http, services)
        except (MatrixError, ValueError):
            assert not all(map(self._lives, services)), "no answer from a service that runs"
            self.lists = Lists()  # one of them has ended while it was asked

    # -- the end -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Faults are cleared, everybody is there: what was acknowledged is, whole; then all is given back."""
        self.armed.clear()
        self.run(self._settle())

    async def _settle(self) -> None:
        for service in list(self.down):
            await self.start(service)
        await self._clear()
        await self._until(self._unsettled, "settled")
        await self._give_back()
        await self._until(self._left, "given back")

    async def _clear(self) -> None:
        for fault in await self._items("agents", "faults"):
            await self.ask("agents", "DELETE", f"/v1/faults/{fault['name']}")
        for maintenance in await self._items("compute", "maintenances"):
            if maintenance["state"] in ("Scheduled", "Running", "Paused"):
                await self.ask("compute", "POST", f"/v1/maintenances/{maintenance['name']}:abort", {})
        for drain in await self._items("link", "drains"):
            await self.ask("link", "DELETE", f"/v1/drains/{drain['name']}")
        self.written.of.pop("nodes", None)
        self.written.of.pop("quotas", None)
        for node in await self._items("resource", "nodes"):
            for owner in node["cordonedBy"]:
                if owner != "maintenance":
                    await self.ask("resource", "POST", f"/v1/nodes/{node['name']}:uncordon", by=owner)
        for domain in await self._items("resource", "domains"):
            if domain["state"] != "Open":
                await self.ask("resource", "POST", f"/v1/domains/{domain['name']}:open", {})
        for plan in await self._items("resource", "defragmentations"):
            if plan["state"] in ("Approved", "Running", "Proposed"):
                await self.ask("resource", "POST", f"/v1/defragmentations/{plan['name']}:cancel", {})
        for quota in await self._items("resource", "quotas"):
            await self.ask("resource", "DELETE", f"/v1/quotas/{quota['name']}")

    async def _items(self, service: str, collection: str) -> list[dict[str, Any]]:
        answer = await self.ask(service, "GET", f"/v1/{collection}", pageSize=1000)
        assert answer.ok, answer
        return answer.document["items"]

    async def _until(self, wrong: Callable[[], Coroutine[Any, Any, list[str]]], end: str) -> None:
        started = self.loop.time()
        while broken := await wrong():
            waited = self.loop.time() - started
            assert waited < SETTLED_WITHIN_S, f"not {end} after {waited:g} s:\n" + "\n".join(broken)
            await asyncio.sleep(STEP_S if waited < 600 else 10 * STEP_S)

    async def _unsettled(self) -> list[str]:
        await self._release_separated()
        await self._return_nodes()
        await self.look()
        broken = audit(self.lists, settled=True, acknowledged=self.written)
        if not broken:
            broken = [each async for each in self._waiting_for_nothing()]
        return broken

    async def _release_separated(self) -> None:
        """What frequent faults separated stays so until somebody says otherwise."""
        for npu in await self._items("resource", "npus"):
            if any(fault.get("raisedBy") for fault in npu["faults"]):
                await self.ask("resource", "POST", f"/v1/npus/{npu['name']}:release")

    async def _return_nodes(self) -> None:
        """What somebody took out of use stays so until somebody returns it; a task under way is left to its end."""
        for node in await self._items("resource", "nodes"):
            if (verb := RETURNED_BY.get(node["state"])) is not None:
                await self.ask("resource", "POST", f"/v1/nodes/{node['name']}:{verb}", {})

    async def _waiting_for_nothing(self) -> Any:
        """Who waits does so because it does not fit."""
        for instance in self.lists["instances"]:
            if instance["state"] not in ("Pending", "Failed") and not waits(instance):
                continue
            project = instance["project"]
            await self.ask("compute", "POST", f"/v1/instances/{instance['name']}:retry", project=project)
            spec = {
                name: instance[name]
                for name in (
                    "nodes",
                    "spares",
                    "placement",
                    "affinity",
                    "antiAffinity",
                    "priority",
                    "preemption",
                    "leaseS",
                    "network",
                    "labels",
                )
                if name in instance
            }
            body = {**spec, "project": project}
            answer = await self.ask(
                "compute", "PUT", f"/v1/instances/{instance['name']}", body, project=project, validateOnly="true"
            )
            if answer.ok:
                yield f"instance {key_of(project, instance['name'])} is {instance['state']} and would fit"

    async def _give_back(self) -> None:
        self.written = Acknowledged()
        for maintenance in await self._items("compute", "maintenances"):
            await self.ask("compute", "DELETE", f"/v1/maintenances/{maintenance['name']}")
        for service, collection in (
            ("link", "peerings"),
            ("compute", "instances"),
            ("link", "slices"),
            ("resource", "reservations"),
        ):
            for each in await self._items(service, collection):
                await self.ask(service, "DELETE", f"/v1/{collection}/{each['name']}", project=each["project"])
        for each in await self._items("resource", "allocations"):
            if "cloudmatrix.io/instance" not in each["labels"]:
                await self.ask("resource", "DELETE", f"/v1/allocations/{each['name']}", project=each["project"])

    async def _left(self) -> list[str]:
        await self._release_separated()
        await self._return_nodes()
        await self.look()
        left = [
            f"{collection} {each['name']} is left ({each['state']})"
            for collection in ("instances", "slices", "programs", "peerings", "allocations", "maintenances")
            for each in self.lists[collection]
        ]
        left += [
            f"node {node['name']} is {node['state']}, {node.get('unschedulableReason')}"
            for node in self.lists["nodes"]
            if node["state"] != "Available" or not node["schedulable"]
        ]
        left += [
            f"link {link['name']} is {link['state']} with {link['floorsGbps']} promised"
            for link in self.lists["links"]
            if link["floorsGbps"] or link["state"] != "Up"
        ]
        return left + audit(self.lists, settled=True)
