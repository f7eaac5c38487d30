"""kube-controller-manager and kube-scheduler of a real Kubernetes, unmodified, at work on the embedded API.

They make a Deployment's pods and bind them to a node, and complain of nothing they do not also complain of on the real
API, kinds aside that are not served here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.api_session import ApiSession, Server
from tests.conformance.runner import REAL, Bench, server_of
from tests.conformance.things import deployment
from tests.e2e.kube.test_kube_durability import client_of
from tests.e2e.realkube.build import missing_parts
from tests.e2e.realkube.certificates import write_all
from tests.e2e.realkube.control_plane import RealKube, free_ports
from tests.matrixcontainer.kubeapi.process import KubeProcess

NOT_SERVED = (
    "ValidatingAdmissionPolicy", "ServiceCIDR", "CertificateSigningRequest", "IPAddress", "ResourceQuota", "Endpoints",
    "IngressClass", "RuntimeClass", "PodTemplate", "ControllerRevision",
)  # fmt: skip
PROGRAMS = ("kube-controller-manager", "kube-scheduler")
NODE = {"metadata": {"name": "programs"}}
ROOM = {"cpu": "8", "memory": "8Gi", "pods": "20"}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "ready",
    "lastHeartbeatTime": "2030-01-01T00:00:00Z",
}


@pytest.fixture
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[KubeProcess, RealKube]]:
    """The embedded API, and the programs pointed at it."""
    if request.config.getoption("--servers", default="embedded") != "both":
        pytest.skip("Go programs; run by `make conformance`")
    if missing := missing_parts():
        pytest.fail(missing)
    kube = KubeProcess(tmp_path / "ours").start()
    beside = RealKube(tmp_path / "beside")
    beside.folder.mkdir()
    write_all(beside.folder)
    shutil.copy(kube.state / "kube" / "ca.crt", beside.ca)
    try:
        for name, port in zip(PROGRAMS, free_ports(len(PROGRAMS)), strict=True):
            beside.start_beside(name, port, kube.kubeconfig)
        yield kube, beside
    finally:
        beside.stop()
        kube.stop()


def complaints(log: str) -> set[str]:
    """Lines of trouble, without moments, numbers and addresses."""
    found = set()
    for line in log.splitlines():
        if re.match(r"[EF]\d{4} ", line):
            text = re.sub(r"^\S+ \S+ +\d+ ", "", line)
            found.add(re.sub(r"[0-9a-f-]{36}|https://[\d.:]+|\d+", "N", text))
    return found


def put_to_work(server: Server, session: ApiSession) -> None:
    """A node with room and a Deployment: the pods come, and are bound to it."""
    session.quietly("POST", "/api/v1/nodes", NODE)
    status = {"status": {"capacity": ROOM, "allocatable": ROOM, "conditions": [READY]}}
    session.patch("/api/v1/nodes/programs/status", status, note=False)
    body = deployment(replicas=2)
    body["spec"]["template"]["spec"] |= {
        "schedulerName": "default-scheduler",
        "tolerations": [{"operator": "Exists"}],
        "nodeName": None,
    }
    session.post("~apps/v1/deployments", body, note=False)
    session.until(
        "~pods",
        lambda reported: [pod["spec"].get("nodeName") for pod in reported["items"]] == ["programs"] * 2,
        patience_s=60,
    )
    session.patch("~apps/v1/deployments/one", {"spec": {"replicas": 1}}, note=False)
    session.until(
        "~pods",
        lambda reported: sum("deletionTimestamp" not in p["metadata"] for p in reported["items"]) == 1,
        patience_s=60,
    )


@pytest.mark.timeout(300)
def test_controllers_and_scheduler_work_on_the_embedded_api(
    programs: tuple[KubeProcess, RealKube], bench: Bench
) -> None:
    kube, beside = programs
    with client_of(kube) as client:
        server = server_of("embedded", kube.kubeconfig)
        put_to_work(server, ApiSession(server, client, "programs"))
    real, real_client = bench.server(REAL)
    put_to_work(real, ApiSession(real, real_client, "programs"))
    assert bench.real
    for name in PROGRAMS:
        extra = complaints(beside.log(name)) - complaints(bench.real.log(name))
        assert not [line for line in extra if not any(f'.{kind}"' in line for kind in NOT_SERVED)]
        assert beside.programs[name].poll() is None
