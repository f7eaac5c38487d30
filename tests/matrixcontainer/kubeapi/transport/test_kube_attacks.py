"""A hostile client on the server's port harms nobody else: others are answered, and the process stays small."""

from __future__ import annotations

import asyncio
import resource
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.realkube.control_plane import resident_mb
from tests.matrixcontainer.kubeapi.process import KubeProcess
from tests.matrixcontainer.kubeapi.talk import Talk
from tests.matrixcontainer.kubeapi.transport.attacks import ATTACKS, MAPS, Attacker, allow_files, token_of
from tests.matrixcontainer.kubeapi.transport.neighbour import Neighbour

RESIDENT_MB_MAX = 220  # some 50 at rest, and 13 KiB for each connection of ten thousand
DELAY_MS_MAX = 10_000  # nobody is shut out; what is usual is printed


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    allow_files(16_640)  # which the server inherits
    process = KubeProcess(tmp_path_factory.mktemp("attacked"), "--workloads", "false").start()
    yield process
    assert process.stop() == 0
    text = process.log.read_text()
    assert '"level": "ERROR"' not in text, text[-2000:]


async def attacked(kube: KubeProcess, name: str, span_s: float, count: int) -> None:
    assert kube.process is not None
    pid, ca, token = kube.process.pid, kube.state / "kube" / "ca.crt", token_of(kube.kubeconfig)
    before = resident_mb(pid)
    neighbour = Neighbour(kube.port, ca, token)
    attacker = Attacker(kube.port, ca, token, span_s, count)
    try:
        came = await ATTACKS[name](attacker)
        after = resident_mb(pid)
    finally:
        attacker.drop()
        fared = neighbour.leave()
    print(
        f"{name}: {came}; resident {before:.0f} to {after:.0f} MB; the neighbour had {fared.answers} answers, the slowest "
        f"after {fared.worst_kept_ms:.0f} ms on its connection, {fared.worst_new_ms:.0f} ms on a new one"
    )
    assert not fared.errors, fared
    assert fared.answers > 10, fared
    assert max(fared.worst_kept_ms, fared.worst_new_ms) < DELAY_MS_MAX, fared
    assert after < RESIDENT_MB_MAX


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_client_harms_nobody_else(kube: KubeProcess, name: str) -> None:
    await attacked(kube, name, span_s=1.5, count=2000)


async def test_silent_clients_take_all_files_for_a_moment_only(kube: KubeProcess) -> None:
    assert kube.process is not None
    before = resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE, (400, before[1]))
    await attacked(kube, "silent_before_tls", span_s=4.0, count=2000)
    raised, _ = resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE, before)
    assert raised > 400


@pytest.mark.soak
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_client_with_patience_harms_nobody_else(kube: KubeProcess, name: str) -> None:
    await attacked(kube, name, span_s=30.0, count=10_000)


async def test_clients_who_linger_do_not_hold_up_the_end(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    attacker = Attacker(kube.port, kube.state / "kube" / "ca.crt", token_of(kube.kubeconfig), 1.0, 100)
    texts = (
        b"",
        b"GET /ver",
        attacker.head("POST", MAPS, "content-length: 9"),
        attacker.head("GET", f"{MAPS}?watch=1"),
    )
    for text in texts:
        for _, writer in await attacker.connected(5):
            writer.write(text)
    await asyncio.sleep(0.5)
    began = time.monotonic()
    assert kube.stop() == 0
    assert time.monotonic() - began < 10
    attacker.drop()


async def test_what_strangers_say_is_not_kept(talk: Talk) -> None:
    """Paths, names of headers, tokens: whatever is looked up by them is bounded, and none of it is large."""
    await talk.post("/api/v1/namespaces", {"metadata": {"name": "warm"}})
    stranger = Talk(talk.api, talk.clock, "")
    for number in range(100):
        await _ask_at_length(stranger, f"w{number:06}")
    tracemalloc.start()
    try:
        for number in range(1000):
            await _ask_at_length(stranger, f"x{number:06}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"kept of 1,000 times 100 kB: {kept / 1024:.0f} KiB")
    assert kept < 2**20


async def _ask_at_length(stranger: Talk, word: str) -> None:
    long = word * 3000
    for path in (f"/{long}", f"/apis/{long}/v1/things/x", f"/api/v1/namespaces/{long}/pods", f"/{word}"):
        assert (await stranger.get(path)).code == 403
    stranger.headers = [(f"x-{long}".encode(), b"x"), (b"authorization", f"Bearer {long}".encode())]
    assert (await stranger.get("/version", **{word: long})).code == 401
    stranger.headers = []
