"""A hostile client on the server's port harms nobody else: others are answered, and the process stays small."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.figures import Figures
from tests.matrixcontainer.kubeapi.process import KubeProcess
from tests.matrixcontainer.kubeapi.transport.attacks import ATTACKS, MAPS, Attacker, allow_files, token_of
from tests.matrixcontainer.kubeapi.transport.probe_client import ProbeClient
from tests.matrixcontainer.kubeapi.transport.under_attack import under_attack

pytestmark = pytest.mark.e2e

RESIDENT_MB_MAX = 220  # some 50 at rest, and 13 KiB for each connection of ten thousand


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    allow_files(16_640)  # which the server inherits
    process = KubeProcess(tmp_path_factory.mktemp("attacked"), "--workloads", "false").start()
    yield process
    assert process.stop() == 0
    text = process.log.read_text()
    assert '"level": "ERROR"' not in text, text[-2000:]


async def attacked(kube: KubeProcess, name: str, span_s: float, count: int, figures: Figures) -> None:
    assert kube.process is not None
    pid, ca, token = kube.process.pid, kube.state / "kube" / "ca.crt", token_of(kube.kubeconfig)
    client, attacker = ProbeClient(kube.port, ca, token), Attacker(kube.port, ca, token, span_s, count)
    await under_attack(name, attacker, client, pid, RESIDENT_MB_MAX, figures)


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_client_harms_nobody_else(kube: KubeProcess, name: str, figures: Figures) -> None:
    await attacked(kube, name, span_s=1.5, count=2000, figures=figures)


async def test_silent_clients_take_all_files_for_a_moment_only(kube: KubeProcess, figures: Figures) -> None:
    assert kube.process is not None
    before = resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE, (400, before[1]))
    await attacked(kube, "silent_before_tls", span_s=4.0, count=2000, figures=figures)
    raised, _ = resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(kube.process.pid, resource.RLIMIT_NOFILE, before)
    assert raised > 400


@pytest.mark.soak
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_client_with_patience_harms_nobody_else(kube: KubeProcess, name: str, figures: Figures) -> None:
    await attacked(kube, name, span_s=30.0, count=10_000, figures=figures)


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
