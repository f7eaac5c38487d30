"""A hostile client on the port of a REST service harms nobody else, as on that of the embedded Kubernetes API: others are
answered, and the process stays small. All services share one server (`services/chassis/http_server/serving.py`); MatrixResource
stands for those with a database, the front end of CloudMatrix-Infer for those that relay bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from matrixcommon.api.authorization import EVERY_PROJECT, Principal
from services.chassis.access import add_token
from services.matrixctl.supervisor.probe import free_port
from tests.e2e.load_generators.endpoint import until
from tests.e2e.service_process import ServiceProcess
from tests.figures import Figures
from tests.matrixcontainer.kubeapi.transport.attacks import ON_ANY_SERVER, Attacker, allow_files
from tests.matrixcontainer.kubeapi.transport.probe_client import ProbeClient
from tests.matrixcontainer.kubeapi.transport.under_attack import under_attack

pytestmark = pytest.mark.e2e

RESIDENT_MB_MAX = 330
"""Some 130 at rest, 13 KiB for each of ten thousand connections, and bodies on their way."""


ANSWERS_MIN = 3
"""Of the other client within a second and a half, on a machine that runs other tests as well."""


@dataclass
class Target:
    """A process under attack, and what it is asked: `writes` by the attacker, `reads` by the other client."""

    process: ServiceProcess
    token: str
    writes: tuple[str, str]
    reads: str


@contextmanager
def running(folder: Path, service: str, *arguments: str) -> Iterator[ServiceProcess]:
    allow_files(16_640)  # which the process inherits
    process = ServiceProcess(service, folder, [*arguments])
    try:
        until(lambda: process.http.get("/healthz").is_success, f"{service} answers")
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder, token = tmp_path_factory.mktemp("resource"), "cm_attacker"
    add_token(folder / "tokens.json", token, Principal("attacker", EVERY_PROJECT, "admin"))
    with running(folder, "resource", "--tokens", str(folder / "tokens.json")) as process:
        yield Target(process, token, ("PUT", "/v1/allocations/a"), "/v1/quotas")


@pytest.fixture(scope="module")
def front_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    engine = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    with running(tmp_path_factory.mktemp("front_end"), "infer.front_end", "--engine-url", engine) as process:
        yield Target(process, "unknown", ("POST", "/v1/completions"), "/healthz")


async def attacked(target: Target, name: str, span_s: float, count: int, figures: Figures) -> None:
    port, pid = target.process.port, target.process.process.pid
    client = ProbeClient(port, None, target.token, target.reads)
    attacker = Attacker(port, None, target.token, span_s, count, target.writes, reads="/healthz", body_bytes=1_000_000)
    await under_attack(name, attacker, client, pid, RESIDENT_MB_MAX, figures, ANSWERS_MIN)
    errors = [line for line in target.process.log.read_text().splitlines() if '"level": "ERROR"' in line]
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
