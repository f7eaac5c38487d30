"""The embedded Kubernetes API compared with a real etcd and kube-apiserver, in one run on this machine, as ratios.

Each figure is ours divided by theirs (for rates, theirs by ours), so that less is better and 1 is par; the underlying
figures follow it. The servers run one after the other, each alone, over TLS and HTTP/1.1, with their stores on the same
disk. Both acknowledge a write when it is on disk (ours with `--synchronous FULL`, etcd as it always does). Ours
contains its controllers, so the real API server runs with its kube-controller-manager, as `make realkube` starts it,
and without a scheduler: start-up, memory and rates are those of all these processes. A server is ready when its API
reports so and a controller has created the service account of namespace `default`. Modules are compiled to bytecode
beforehand, as after an installation. The load comes from a small Go program (`tests/e2e/realkube/load`), so that the
client costs both servers the same. Objects are custom resources of about 600 bytes. Needs what `make conformance`
needs; without it nothing is measured.

Two more figures help to judge rates on a machine that is busy or has few cores, shared by client and server: the CPU
time of a request on each side, and `transport alone`, the rate of the same load against the same server with an
application that does nothing (`kubernetes/transport.py`), which is the most that any application behind it can reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks import Figure
from benchmarks.kubernetes.transport import run_empty_server
from tests.conformance.api_session import ApiSession, Server
from tests.conformance.runner import server_of
from tests.conformance.things import CRDS, GROUP, WIDGETS, widget
from tests.e2e.kube.test_kube_durability import client_of
from tests.e2e.realkube.build import ensure_program, missing_parts
from tests.e2e.realkube.control_plane import RealKube, resident_mb
from tests.matrixcontainer.kubeapi.process import KubeProcess

LOADED = (
    "services.kube.api_process",
    "services.kube.bootstrap",
    "cryptography.x509",
    "cryptography.hazmat.primitives.asymmetric.ec",
)
OBJECTS = 10_000
FEW_WATCHERS = 200
WATCHERS = 100
HEARTBEATS = 100
GETS, PATCHES = 30_000, 3000
SETTLE_WALL_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Load:
    """Runs the load program against one server and measures the CPU time of the server's processes."""

    def __init__(self, url: str, token: str, ca: Path, pids: Sequence[int]) -> None:
        self._flags = {"url": url, "token": token, "ca": ca}
        self._pids = pids

    def __call__(self, work: str, path: str, each: int = 1, **more: Any) -> dict[str, Any]:
        """Return the program's report on `count` requests, with `cpu_us`, the server's CPU time per request (per line,
        if a request is sent on to `each` watchers), and `client_us`, the program's."""
        words = [f"-{name.replace('_', '-')}={value}" for name, value in (self._flags | more).items()]
        before, client_before = self._cpu_s(), _children_s()
        command = [str(ensure_program("load")), f"-work={work}", f"-path={path}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{work} on {self._flags['url']}: {done.stderr[-500:]}")
        times = more["count"] * each
        spent = {"cpu_us": self._cpu_s() - before, "client_us": _children_s() - client_before}
        return dict(json.loads(done.stdout)) | {name: 1e6 * seconds / times for name, seconds in spent.items()}

    def _cpu_s(self) -> float:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS_PER_S


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


@dataclass
class TransportCosts:
    """Results of the transport without an application behind it."""

    get: dict[str, Any] = field(default_factory=dict)
    create: dict[str, Any] = field(default_factory=dict)
    watch: dict[str, Any] = field(default_factory=dict)


@dataclass
class Measured:
    """Results of one server. Seconds, MB, requests per second, milliseconds."""

    start_s: float
    rest_mb: float
    full_mb: float
    create: dict[str, Any]
    get: dict[str, Any]
    patch: dict[str, Any]
    few: dict[str, Any]
    all: dict[str, Any]
    watch: dict[str, Any]


def measure() -> Iterator[Figure]:
    if missing := missing_parts():
        print(f"  NOT MEASURED: {missing}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="kube-bench-") as path:
        ours, theirs = measure_embedded(Path(path) / "ours"), measure_kube_apiserver(Path(path) / "theirs")
        alone = transport(Path(path) / "alone")
    yield compare_less("start to ready", ours.start_s, theirs.start_s, "s", 0.2)
    yield compare_less("memory at rest", ours.rest_mb, theirs.rest_mb, "MB", 1 / 3)
    yield compare_less(f"memory with {OBJECTS:,} objects", ours.full_mb, theirs.full_mb, "MB", 1 / 3)
    yield compare_faster("get one, 16 at a time", ours.get, theirs.get, 1 / 6)
    yield compare_faster("create, 16 at a time", ours.create, theirs.create, 1 / 3)
    yield compare_faster(f"merge patch, 16 at a time over {FEW_WATCHERS} objects", ours.patch, theirs.patch, 1 / 3)
    yield compare_faster(f"list of {FEW_WATCHERS}, 4 at a time", ours.few, theirs.few, 1 / 20)
    yield compare_faster(f"list of {OBJECTS:,}", ours.all, theirs.all, 1 / 20)
    yield compare_less(
        f"watch, {WATCHERS} watchers, write to line, P50", ours.watch["p50"], theirs.watch["p50"], "ms", None
    )
    yield compare_less(
        f"watch, {WATCHERS} watchers, write to line, P99", ours.watch["p99"], theirs.watch["p99"], "ms", 0.5
    )
    yield Figure(
        "watch, events lost", ours.watch["lost"], "", f"of {WATCHERS * HEARTBEATS}; real: {theirs.watch['lost']}", 0
    )
    yield compare_costs("get", ours.get, theirs.get, alone.get)
    yield compare_costs("create", ours.create, theirs.create, alone.create)
    yield compare_costs("merge patch", ours.patch, theirs.patch)
    yield compare_costs("line of a watch", ours.watch, theirs.watch, alone.watch)
    yield compare_faster("transport alone, get", alone.get, theirs.get, None, "transport alone")
    yield compare_faster("transport alone, create", alone.create, theirs.create, None, "transport alone")
    for part in ("p50", "p99"):
        name = f"transport alone, write to line, {part.upper()}: it / real"
        yield compare_less(name, alone.watch[part], theirs.watch[part], "ms", None, "transport alone")


def compare_less(name: str, ours: float, theirs: float, unit: str, goal: float | None, who: str = "ours") -> Figure:
    """Return a figure for which less is better."""
    text = f"{who} {ours:.1f} {unit}, real {theirs:.1f} {unit}"
    return Figure(name if ":" in name else f"{name}: ours / real", ours / theirs, "x", text, goal)


def compare_faster(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], goal: float | None, who: str = "ours"
) -> Figure:
    """Return a figure of rates, for which more is better."""
    text = "; ".join(
        f"{which} {one['rate']:,.1f}/s, P50 {one['p50']:.1f} ms, P99 {one['p99']:.1f} ms"
        for which, one in ((who, ours), ("real", theirs))
    )
    return Figure(f"{name}: real / {'ours' if who == 'ours' else 'it'}", theirs["rate"] / ours["rate"], "x", text, goal)


def compare_costs(
    name: str, ours: dict[str, Any], theirs: dict[str, Any], alone: dict[str, Any] | None = None
) -> Figure:
    """Return a figure of the CPU time of all of a server's processes per request."""
    text = f"ours {ours['cpu_us']:.0f} us, real {theirs['cpu_us']:.0f} us"
    text += f", transport alone {alone['cpu_us']:.0f} us" if alone is not None else ""
    text += f"; the client {ours['client_us']:.0f} and {theirs['client_us']:.0f} us"
    return Figure(f"CPU for a {name}: ours / real", ours["cpu_us"] / theirs["cpu_us"], "x", text)


def measure_embedded(folder: Path) -> Measured:
    kube = KubeProcess(folder, "--synchronous", "FULL")
    with bytecode_cache(folder.with_name("bytecode")):
        began = time.monotonic()
        kube.start()
    try:
        with client_of(kube) as client:
            _until_ready(client)
            start_s = time.monotonic() - began
            assert kube.process
            pids = [kube.process.pid]
            ca = folder / "kube" / "ca.crt"
            return _measure_loaded(server_of("embedded", kube.kubeconfig), client, ca, pids, start_s)
    finally:
        kube.stop()


@contextlib.contextmanager
def bytecode_cache(folder: Path) -> Iterator[None]:
    """Let processes started inside the block find all modules as bytecode, even if the environment disables writing
    it."""
    before = dict(os.environ)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        subprocess.run([sys.executable, "-c", f"import {', '.join(LOADED)}"], check=True)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def measure_kube_apiserver(folder: Path) -> Measured:
    began = time.monotonic()
    with RealKube(folder, scheduler=False) as kube, kube.client() as client:
        _until_ready(client)
        start_s = time.monotonic() - began
        server = Server("real", kube.url, kube.ca.read_text(), kube.token, str(kube.kubeconfig))
        return _measure_loaded(server, client, kube.ca, [one.pid for one in kube.programs.values()], start_s)


def _until_ready(client: httpx.Client) -> None:
    for path in ("/readyz", "/api/v1/namespaces/default/serviceaccounts/default"):
        while client.get(path).status_code != 200:
            time.sleep(0.01)


def _measure_loaded(server: Server, client: httpx.Client, ca: Path, pids: list[int], start_s: float) -> Measured:
    """Run all loads in order, and measure memory before and after the objects exist."""
    time.sleep(SETTLE_WALL_S)
    rest_mb = sum(map(resident_mb, pids))
    session = ApiSession(server, client, "bench")
    session.post(CRDS, WIDGETS)
    session.until(f"/apis/{GROUP}/v1/widgets", lambda reported: reported.code == 200)
    session.quietly("POST", "/api/v1/namespaces", {"metadata": {"name": "bench-few"}})
    many, few = session.path(f"~{GROUP}/v1/widgets"), f"/apis/{GROUP}/v1/namespaces/bench-few/widgets"
    body = new_object()
    load = Load(server.url, server.token, ca, pids)
    load("create", few, count=FEW_WATCHERS, body=body)
    create = load("create", many, count=OBJECTS, body=body)
    time.sleep(SETTLE_WALL_S)
    full_mb = sum(map(resident_mb, pids))
    get = load("get", many, count=GETS, names=OBJECTS)
    patch = load("patch", few, count=PATCHES, names=FEW_WATCHERS)
    listed = load("list", few, count=200, at_once=4)
    listed_all = load("list", many, count=8, at_once=1)
    since = session.get(few, limit=1, note=False).rv
    watch = load("watch", few, WATCHERS, count=HEARTBEATS, at_once=WATCHERS, names=FEW_WATCHERS, body=since)
    return Measured(start_s, rest_mb, full_mb, create, get, patch, listed, listed_all, watch)


def new_object() -> str:
    return json.dumps(widget("NAME", spec={"tags": ["a", "b"], "note": "a note", "free": {"text": "x" * 200}}))


def transport(folder: Path) -> TransportCosts:
    with run_empty_server(folder) as (url, pid, ca):
        load = Load(url, "", ca, [pid])
        load("get", "/o", count=GETS // 10)
        return TransportCosts(
            get=load("get", "/o", count=GETS),
            create=load("create", "/o", count=OBJECTS, body=new_object()),
            watch=load("watch", "/o", WATCHERS, count=HEARTBEATS, at_once=WATCHERS, names=FEW_WATCHERS, body="0"),
        )
