"""CloudMatrix: a whole emulated supernode for one test, in the test's process and in virtual time.

    async def test_my_operator_survives_a_lost_node(cloudmatrix):
        await cloudmatrix.apply("examples/deepseek-r1.yaml")
        await cloudmatrix.clock.until(lambda world: world.cmi("deepseek-r1").condition("Ready"), within="20m")
        await cloudmatrix.fault("node-down", cloudmatrix.cmi("deepseek-r1").members()[0])
        await cloudmatrix.clock.advance("20m")
        assert cloudmatrix.cmi("deepseek-r1").condition("Ready")

Changes go through REST and the Kubernetes API, as from any client, and take effect as time passes. Reads are immediate:
`get` and `cmi` return the embedded Kubernetes API's current objects.
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from matrixcommon.api.client import call, resource_path
from matrixcommon.model.errors import Conflict, InvalidField, MatrixError, NotFound
from matrixcommon.model.resource_key import key_of
from matrixcommon.model.yaml_text import InvalidYaml, parse_documents
from matrixcontainer.client.client import Kind, KubeClient
from matrixresource.agent.fault_catalogue import FAULT_KINDS
from matrixresource.machines import DEFAULT_FILE, has_spec
from services.chassis.http import http_client
from services.recordings.recording import Recording, add_to_snapshot
from services.snapshots import archive
from services.snapshots.archive import Manifest
from services.testing import prepared
from services.testing.cluster import ADMIN, Cluster
from services.testing.durations import seconds
from services.testing.operator import Operator
from services.testing.prepared import Prepared
from services.testing.recorder import Recorder
from services.testing.resources import Resource, find_served

TIME_SCALE = 120.0
"""As in `matrixctl up --time-scale`: reports and leases are that much less frequent than on the real machine, so that
an hour of 48 nodes costs about a second. A dead node is detected within ten emulated minutes; with 1, within one."""
WITHIN = "1h"
POLL_S_MIN, POLL_S_MAX = 1.0, 15.0
"""Bounds of the interval between checks of a condition, which grows with the time already waited."""


class VirtualClock:
    """The time of the emulated world, which advances only when a test says so."""

    def __init__(self, world: CloudMatrix) -> None:
        self._world = world

    def now(self) -> float:
        """Emulated seconds since the epoch."""
        return self._world.stack.clock.now()

    async def advance(self, duration: str | float) -> None:
        """Advance time by `duration`; everything that falls due happens, in order. Raises InvalidField."""
        await self._world.recorder.sleep(seconds(duration))

    async def until(
        self, holds: Callable[[CloudMatrix], object], within: str | float = WITHIN, message: str = ""
    ) -> float:
        """Advance time until `holds(world)` is true and return how many seconds that took. Raises AssertionError, with
        the last events, if it does not become true within `within`."""
        began, within_s = self.now(), seconds(within, "within")
        while not holds(self._world):
            passed_s = self.now() - began
            if passed_s >= within_s:
                raise AssertionError(f"not met within {within}: {message or 'the condition'}\n{self._world.report()}")
            await self._world.recorder.sleep(min(max(POLL_S_MIN, passed_s / 20), POLL_S_MAX, within_s - passed_s))
        return self.now() - began


class CloudMatrix:
    """`async with CloudMatrix() as world`, in a loop whose time is virtual (`virtual_time`)."""

    def __init__(
        self, *, seed: int = 1, time_scale: float = TIME_SCALE, snapshot: str | Path | Prepared | None = None
    ) -> None:
        """`snapshot`: the initial state, by default a supernode with enrolled nodes and nothing else."""
        self.seed, self.time_scale = seed, time_scale
        self.clock = VirtualClock(self)
        self._snapshot = snapshot
        self._faults = 0

    async def __aenter__(self) -> CloudMatrix:
        await self._begin(self._snapshot)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._life.aclose()

    async def _begin(self, snapshot: str | Path | Prepared | None) -> None:
        start_from = _state_of(snapshot)
        with _without_collection():
            async with AsyncExitStack() as life:
                if not gc.get_freeze_count():  # otherwise the caller has frozen the collector beyond this world's life
                    life.callback(_unfreeze_heap)
                folder = Path(tempfile.mkdtemp(prefix="cloudmatrix-", dir=_memory_folder()))
                life.callback(shutil.rmtree, folder, ignore_errors=True)
                self.stack = Cluster(
                    folder, self.seed, time_scale=self.time_scale, start_from=start_from, cached=start_from is None
                )
                await life.enter_async_context(self.stack)
                operator = asyncio.create_task(Operator(self.stack).run(), name="operator")
                life.push_async_callback(_cancel, operator)
                self.recorder = Recorder(self.stack)
                self.http = {name: self._client(name) for name in self.stack.services}
                self.kubernetes_http = self._client("kube")
                self.kubernetes = KubeClient(self.kubernetes_http)
                self._life = life.pop_all()

    def _client(self, name: str) -> httpx.AsyncClient:
        """A client for the test, so that its requests can be told from those between services."""
        if name == "kube":
            headers = {"Authorization": f"Bearer {ADMIN}"}
            return httpx.AsyncClient(base_url="http://kube", transport=self.transport_to(name), headers=headers)
        return http_client(f"http://{name}", transport=self.transport_to(name))

    def transport_to(self, name: str) -> httpx.AsyncBaseTransport:
        """Return the transport of a test's requests to a service, or to `kube`."""
        return self.recorder.transport_to(name)

    # -- Kubernetes ----------------------------------------------------------------------------------------------

    async def apply(self, manifest: str | Path | Mapping[str, Any]) -> list[dict[str, Any]]:
        """Server-side apply a manifest file, manifest text, or one manifest as a dict. Return the resulting objects.
        Raises InvalidField, or the API's error."""
        return [
            await self.kubernetes.apply(*self._kind_and_object(document))
            for document in ([dict(manifest)] if isinstance(manifest, Mapping) else _documents(manifest))
        ]

    async def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Request the object's deletion. It disappears once its finalizers are removed, which takes emulated time.
        Raises NotFound."""
        resource = find_served(self.stack.kube_api, kind)
        found = Kind(resource.api_version, resource.kind, resource.plural, resource.namespaced)
        answer = await self.kubernetes_http.delete(found.path(namespace, name))
        if answer.status_code == 404:
            raise NotFound(f"there is no {kind} {name}", field="name")
        answer.raise_for_status()

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """Return the object, or None if it does not exist. `kind` is any name that kubectl accepts: `cmi`, `pods`,
        `Deployment`."""
        return Resource(self.stack.kube_api, find_served(self.stack.kube_api, kind), name, namespace).find()

    def objects(self, kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return all objects of that kind, in that namespace or in all."""
        resource = find_served(self.stack.kube_api, kind)
        records = self.stack.kube_api.store.objects_of(resource.storage)
        return [record.obj for record in records if namespace in (None, record.key[1])]

    def resource(self, kind: str, name: str, namespace: str = "default") -> Resource:
        """Return a handle that reads the object's current state on every access."""
        return Resource(self.stack.kube_api, find_served(self.stack.kube_api, kind), name, namespace)

    def cmi(self, name: str, namespace: str = "default") -> Resource:
        """Return a handle for a CloudMatrixInstance."""
        return self.resource("cloudmatrixinstances", name, namespace)

    def _kind_and_object(self, document: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
        version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
        resource = self.stack.kube_api.core.registry.by_kind(version, kind)
        if resource is None:
            raise InvalidField(f"the API serves no kind {kind!r} in {version!r}", field="kind")
        metadata = dict(document.get("metadata") or {})
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        return Kind(version, kind, resource.plural, resource.namespaced), {**document, "metadata": metadata}

    # -- the emulated hardware -----------------------------------------------------------------------------------

    def nodes(self) -> list[str]:
        """The names of all emulated nodes."""
        assert self.stack.fleet is not None
        return sorted(self.stack.fleet.nodes)

    async def fault(
        self, kind: str, target: str, *, seed: int | None = None, name: str | None = None, **parameters: Any
    ) -> str:
        """Break emulated hardware and return the fault's name. The control plane has to detect the fault by itself.

        `target` is a node, cabinet or switch, or a pattern such as `sn0-c03-*`, from whose nodes `seed` (by default the
        test's) picks one. `matrixctl fault kinds` lists the kinds. Raises InvalidField."""
        if kind not in FAULT_KINDS:
            raise InvalidField(f"unknown fault kind {kind!r}; kinds: {', '.join(sorted(FAULT_KINDS))}", field="kind")
        if any(sign in target for sign in "*?["):
            matching = [node for node in self.nodes() if fnmatchcase(node, target)]
            if not matching:
                raise InvalidField(f"no node matches {target!r}", field="target")
            target = random.Random(self.seed if seed is None else seed).choice(matching)
        self._faults += 1
        chosen = name or f"{kind}-{target}-{self._faults}".lower()
        body = {"kind": kind, "target": target, "parameters": parameters}
        await call(self.http["agents"], "PUT", resource_path("faults", chosen), body=body)
        return chosen

    async def repair(self, name: str) -> None:
        """Remove a fault. Raises NotFound."""
        await call(self.http["agents"], "DELETE", resource_path("faults", name))

    # -- its state -----------------------------------------------------------------------------------------------

    async def snapshot(self, file: str | Path) -> Manifest:
        """Write the stack's current state to a file, which `matrixctl restore` accepts too."""
        return prepared.write(Path(file), self.stack.state(), self.seed)

    async def record(self, file: str | Path) -> Recording:
        """Write all requests to this world since it started, and the resulting events, to a file for `replay` or
        `matrixctl replay`."""
        recording = self.recorder.recording(self.seed, self.time_scale)
        prepared.write(Path(file), self.recorder.initial_state, self.seed)
        add_to_snapshot(Path(file), recording)
        return recording

    async def reset(self, snapshot: str | Path | Prepared | None = None) -> None:
        """Start over, with enrolled nodes and nothing else or from a snapshot. Handles and clients obtained earlier
        belong to the old stack and stop working; `cmi` and `http` refer to the new one."""
        state = _state_of(snapshot)
        await self._life.aclose()
        await self._begin(state)

    def report(self, last: int = 12) -> str:
        """Return the state of each instance and the newest Kubernetes events as text, to be shown with a failure."""
        lines = []
        for body in self.objects("cloudmatrixinstances"):
            metadata, status = body["metadata"], body.get("status") or {}
            true = [each["type"] for each in status.get("conditions", []) if each["status"] == "True"]
            key = key_of(metadata["namespace"], metadata["name"])
            lines.append(f"  cmi {key}: {status.get('state', 'no state yet')}, conditions: {', '.join(true) or 'none'}")
        events = sorted(self.objects("events"), key=lambda event: str(event.get("lastTimestamp") or ""))
        lines += [
            f"  {event.get('reason')} {event['involvedObject'].get('name')}: {event.get('message')}"
            for event in events[-last:]
        ]
        return "\n".join(lines) or "  no instances and no events"


WORLDS_PER_COLLECTION = 8
_thawed = count(1)


def _unfreeze_heap() -> None:
    """Release the frozen objects of a world that has ended. The collector never visits frozen objects, so each world
    would stay in memory (some 20 MB). A full collection takes as long as starting a world, so it runs once in
    several."""
    gc.unfreeze()
    if next(_thawed) % WORLDS_PER_COLLECTION == 0:
        gc.collect()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable the garbage collector and freeze what is created here until the world has ended: visiting these
    long-lived objects repeatedly would take half of the start and a tenth of the time after it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
        if not gc.get_freeze_count():
            gc.freeze()
    finally:
        if collecting:
            gc.enable()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _documents(manifest: str | Path) -> list[dict[str, Any]]:
    """Return the documents of a manifest file, or of text that is not a file name."""
    text = str(manifest)
    if isinstance(manifest, Path) or ("\n" not in text and text.endswith((".yaml", ".yml", ".json"))):
        if not Path(manifest).is_file():
            raise InvalidField(f"there is no file {manifest}", field="manifest")
        text = Path(manifest).read_text()
    try:
        found = [document for document in parse_documents(text) if document]
    except InvalidYaml as wrong:
        raise InvalidField(f"the manifest is not valid YAML: {wrong}", field="manifest") from wrong
    if not found or not all(isinstance(document, dict) for document in found):
        raise InvalidField("the manifest contains no object", field="manifest")
    return found


def _state_of(snapshot: str | Path | Prepared | None) -> Prepared | None:
    """Load a snapshot's state. Raises InvalidField, UnknownSnapshot, or Conflict if it is of another machine."""
    if snapshot is None or isinstance(snapshot, Prepared):
        return snapshot
    manifest = archive.read_manifest(Path(snapshot))
    archive.check_schemas(manifest)
    machine = manifest.topology or DEFAULT_FILE.stem
    if has_spec(machine) and machine != DEFAULT_FILE.stem:
        raise Conflict(
            f"{snapshot} is of another machine ({machine}) than virtual time supports ({DEFAULT_FILE.stem}); start it "
            "on real processes with `matrixctl restore` or `matrixctl replay --state DIR`"
        )
    state = prepared.read(Path(snapshot))
    if state is None:
        raise MatrixError(f"{snapshot} cannot be read: it is damaged")
    return state


def _memory_folder() -> str | None:
    """Return an in-memory folder if the system has one: a test's databases need not survive a reboot."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
