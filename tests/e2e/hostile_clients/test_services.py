"""A hostile client on the port of a REST service harms nobody else, as on that of the embedded Kubernetes API: others are
answered, and the process stays small. All services share one server (`services/chassis/serving.py`); MatrixResource
stands for those with a database, the front end of CloudMatrix-Infer for those that relay bodies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from matrixcommon.api.authorization import EVERY_PROJECT, Principal
from services.chassis.access import add_token
from services.matrixctl.supervisor.probe import free_port
from tests.e2e.load_generators.endpoint import until
from tests.figures import Figures
from tests.matrixcontainer.kubeapi.transport.attacks import ON_ANY_SERVER, Attacker, allow_files
from tests.matrixcontainer.kubeapi.transport.probe_client import ProbeClient
from tests.matrixcontainer.kubeapi.transport.under_attack import under_attack

pytestmark = pytest.mark.e2e

RESIDENT_MB_MAX = 330
"""Some 130 at rest, 13 KiB for each of ten thousand connections, and bodies on their way."""


@dataclass
class Target:
    """A process under attack."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    writes: tuple[str, str]
    asked: str
    """What the neighbour reads."""
    log: Path


@contextmanager
def running(folder: Path, module: str, port: int, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    allow_files(16_640)  # which the process inherits
    log = folder / f"{module}.log"
    command = [sys.executable, "-m", module, "--port", str(port), *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{port}/healthz"
    try:
        until(lambda: httpx.get(url, trust_env=False).is_success, f"{module} answers")
        yield process, log
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder, port = tmp_path_factory.mktemp("resource"), free_port("127.0.0.1")
    tokens, token = folder / "tokens.json", "cm_attacker"
    add_token(tokens, token, Principal("attacker", EVERY_PROJECT, "admin"))
    arguments = ["--state", str(folder), "--tokens", str(tokens)]
    with running(folder, "services.resource", port, *arguments) as (process, log):
        yield Target(process, port, token, ("PUT", "/v1/allocations/a"), "/v1/quotas", log)


@pytest.fixture(scope="module")
def front_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder, port = tmp_path_factory.mktemp("front_end"), free_port("127.0.0.1")
    engine = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    with running(folder, "services.infer.front_end", port, "--engine-url", engine) as (process, log):
        yield Target(process, port, "unknown", ("POST", "/v1/completions"), "/healthz", log)


async def attacked(target: Target, name: str, span_s: float, count: int, figures: Figures) -> None:
    client = ProbeClient(target.port, None, target.token, target.asked)
    attacker = Attacker(
        target.port, None, target.token, span_s, count, target.writes, reads="/healthz", body_bytes=1_000_000
    )
    await under_attack(name, attacker, client, target.process.pid, RESIDENT_MB_MAX, figures)
    errors = [line for line in target.log.read_text().splitlines() if '"level": "ERROR"' in line]
    assert not errors, [json.loads(line)["event"] for line in errors[:3]]


@pytest.mark.parametrize("name", ON_ANY_SERVER)
async def test_a_hostile_client_harms_nobody_else(service: Target, name: str, figures: Figures) -> None:
    await attacked(service, name, span_s=1.5, count=2000, figures=figures)


@pytest.mark.parametrize("name", ["idle", "endless_body", "bodies_of_strangers"])
async def test_a_hostile_client_harms_nobody_else_of_a_front_end(
    front_end: Target, name: str, figures: Figures
) -> None:
    await attacked(front_end, name, span_s=1.5, count=2000, figures=figures)


@pytest.mark.soak
@pytest.mark.parametrize("name", ON_ANY_SERVER)
async def test_a_hostile_client_with_patience_harms_nobody_else(service: Target, name: str, figures: Figures) -> None:
    await attacked(service, name, span_s=30.0, count=10_000, figures=figures)
