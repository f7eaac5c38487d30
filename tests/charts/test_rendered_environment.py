"""The processes, started with the environment, the tokens and the kubeconfig that the chart gives them, work together.

No machine runs a container here, so each process is one of this machine, informed what its pod would be reported; only where
things are differs: names of services become addresses, and folders are a test's. What `helm test` asks is asked.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from services.catalogue import PROCESSES
from services.matrixctl.supervisor.probe import free_port, probe_readiness
from tests.charts.clusters import ChartCluster, eventually
from tests.charts.rendered import component, template
from tests.matrixcontainer.kubeapi.process import needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl, pytest.mark.usefixtures("helm_here")]

INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: first, namespace: default}
spec: {nodes: 2}
"""


class RenderedStack:
    """Every process of the chart, with the embedded Kubernetes API among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        documents = [each for each in yaml.safe_load_all(template("--set", "kube.enabled=true")) if each]
        self.allocation = {(each["kind"], each["metadata"]["name"]): each for each in documents}
        self.ports = {process.name: free_port("127.0.0.1") for process in PROCESSES}
        self.running: list[subprocess.Popen[bytes]] = []
        for (kind, name), each in self.allocation.items():
            if kind == "Secret":
                (folder / name).mkdir()
                for key, value in each["data"].items():
                    (folder / name / key).write_bytes(base64.b64decode(value))
                for key, value in each.get("stringData", {}).items():
                    (folder / name / key).write_text(self.here(value))

    def here(self, text: str) -> str:
        """What the chart says, with names of services as addresses of this machine."""
        for process in PROCESSES:
            text = text.replace(
                f"cm-cloudmatrix-{process.name}:{process.port}", f"127.0.0.1:{self.ports[process.name]}"
            )
        return text

    def environment(self, container: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for source in container["envFrom"]:
            found |= self.allocation["ConfigMap", source["configMapRef"]["name"]]["data"]
        for entry in container["env"]:
            if "value" in entry:
                found[entry["name"]] = self.here(entry["value"])
            else:
                reference = entry["valueFrom"]["secretKeyRef"]
                found[entry["name"]] = (self.folder / reference["name"] / reference["key"]).read_text()
        return found

    def start(self, workload: dict[str, Any]) -> None:
        name = component(workload)
        pod = workload["spec"]["template"]["spec"]
        container = pod["containers"][0]
        secrets = {v["name"]: self.folder / v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        mounted = {m["mountPath"]: str(secrets[m["name"]]) for m in container["volumeMounts"] if m["name"] in secrets}
        mounted["/state"] = str(self.folder / "state" / name)
        settings = self.environment(container)
        for there, place in mounted.items():
            settings = {key: value.replace(there, place) for key, value in settings.items()}
        settings |= {"CLOUDMATRIX_HOST": "127.0.0.1", "CLOUDMATRIX_PORT": str(self.ports[name])}
        if name == "kube":
            authority = self.folder / "state" / name / "kube"
            authority.mkdir(parents=True)
            for file in ("ca.crt", "ca.key"):
                (authority / file).write_bytes((secrets["kube"] / file).read_bytes())
            settings["CLOUDMATRIX_ADVERTISE"] = "127.0.0.1"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDMATRIX_")}
        log = (self.folder / f"{name}.log").open("ab")
        command = [sys.executable, *container["command"][1:]]
        self.running.append(subprocess.Popen(command, env=kept | settings, stdout=log, stderr=log))

    def token(self, owner: str) -> str:
        return (self.folder / "cm-cloudmatrix-tokens" / f"{owner}-token").read_text()

    def asked_by_helm_test(self) -> list[str]:
        job = self.allocation["Job", "cm-cloudmatrix-test"]
        return [self.here(url) for url in job["spec"]["template"]["spec"]["containers"][0]["args"]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RenderedStack]:
    built = RenderedStack(tmp_path_factory.mktemp("rendered"))
    for (kind, _), each in built.allocation.items():
        if kind in ("StatefulSet", "Deployment"):
            built.start(each)
    yield built
    for process in built.running:
        process.terminate()
    for process in built.running:
        process.wait(timeout=20)


def test_they_find_each_other_and_carry_an_instance(stack: RenderedStack) -> None:
    assert len(stack.asked_by_helm_test()) == len(PROCESSES)
    for url in stack.asked_by_helm_test():
        eventually(lambda url=url: probe_readiness(url, 2.0).ready, f"{url} is ready")
    cluster = ChartCluster(stack.folder / "cm-cloudmatrix-kube" / "kubeconfig", stack.folder)
    eventually(lambda: cluster.get("node", "sn0-c00-n0", ""), "the operator mirrors the nodes that the agents play")
    cluster.kubectl("apply", "-f", "-", stdin=INSTANCE)
    active = {"state": "Active"}.items()
    eventually(
        lambda: active <= (cluster.get("cloudmatrixinstance", "first", "default").get("status") or {}).items(),
        "the instance is Active",
    )
    cluster.kubectl("delete", "cloudmatrixinstance", "first", "-n", "default", "--timeout=60s")


@pytest.mark.parametrize(
    ("owner", "process", "method", "path", "status"),
    [
        ("admin", "compute", "GET", "/v1/instances", 200),
        ("infer", "link", "GET", "/v1/slices", 200),
        ("infer", "link", "DELETE", "/v1/drains/none", 403),
        ("agents", "resource", "DELETE", "/v1/allocations/none", 403),
        ("nobody", "resource", "GET", "/v1/nodes", 401),
    ],
)
def test_a_token_opens_what_its_process_calls_and_no_more(
    stack: RenderedStack, owner: str, process: str, method: str, path: str, status: int
) -> None:
    url = f"http://127.0.0.1:{stack.ports[process]}"
    eventually(lambda: probe_readiness(url, 2.0).ready, f"{process} is ready")
    token = "cm_made-up" if owner == "nobody" else stack.token(owner)
    answer = httpx.request(method, f"{url}{path}", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.status_code == status
