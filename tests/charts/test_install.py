"""Installed, upgraded and removed: on the embedded API, and on a real control plane where there is one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from services.chassis.access import digest
from tests.charts.clusters import CLUSTERS, ChartCluster, acted_on, eventually, real_missing
from tests.charts.rendered import CHART, NAMESPACE, RELEASE, objects, pods
from tests.matrixcontainer.kubeapi.process import needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl, pytest.mark.usefixtures("helm_here")]

FULLNAME = f"{RELEASE}-cloudmatrix"


@pytest.fixture(scope="module", params=list(CLUSTERS))
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartCluster]:
    if request.param == "real" and (why := real_missing()):
        pytest.skip(f"{why}: the chart was not installed on a real control plane")
    with CLUSTERS[request.param](tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def installed(cluster: ChartCluster) -> Iterator[ChartCluster]:
    """The chart with its default values, and nothing of it afterwards."""
    cluster.upgrade()
    yield cluster
    cluster.helm("uninstall", RELEASE, "-n", NAMESPACE)
    cluster.kubectl("delete", "configmap,secret", "--all", "-n", NAMESPACE)


def secret(cluster: ChartCluster, name: str) -> dict[str, str]:
    data = cluster.get("secret", name)["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def test_everything_rendered_is_there_and_the_server_took_every_field(installed: ChartCluster) -> None:
    for wanted in objects("default"):
        if wanted["kind"] == "Job":
            continue  # made by `helm test`
        kind, metadata = wanted["kind"].lower(), wanted["metadata"]
        current = installed.get(kind, metadata["name"], metadata.get("namespace", ""))
        assert current, f"{kind} {metadata['name']}"
        assert not lost(wanted.get("spec", {}), current.get("spec", {}), f"{kind}.spec"), metadata["name"]
    for crd in yaml.safe_load_all(installed.helm("show", "crds", str(CHART))):
        if crd:
            installed.kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}", "--timeout=30s")


def lost(wanted: object, current: object, path: str) -> list[str]:
    """Paths of what was asked for and is not kept: fields a schema does not know."""
    if isinstance(wanted, dict):
        if not isinstance(current, dict):
            return [path]
        return [each for key in wanted for each in lost(wanted[key], current.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(current, list) or len(current) != len(wanted):
            return [path]
        return [each for at, item in enumerate(wanted) for each in lost(item, current[at], f"{path}[{at}]")]
    return [] if current == wanted or wanted in ("", None, False, {}) else [f"{path}: {wanted!r} became {current!r}"]


def test_tokens_and_time_outlive_an_upgrade(installed: ChartCluster) -> None:
    tokens, time = secret(installed, f"{FULLNAME}-tokens"), installed.get("configmap", f"{FULLNAME}-time")["data"]
    workload = installed.get("statefulset", f"{FULLNAME}-compute")["spec"]["template"]
    installed.upgrade("--set", "logLevel=DEBUG")
    assert secret(installed, f"{FULLNAME}-tokens") == tokens
    assert installed.get("configmap", f"{FULLNAME}-time")["data"] == time
    after = installed.get("statefulset", f"{FULLNAME}-compute")["spec"]["template"]
    assert after["metadata"]["annotations"] == workload["metadata"]["annotations"]
    known = json.loads(tokens["tokens.json"])
    assert known[digest(tokens["admin-token"])] == {"name": "admin", "project": "default", "role": "admin"}
    assert known[digest(tokens["agents-token"])] == {"name": "agents", "project": "*", "nodes": "*", "role": "agent"}


def test_emulated_time_continues_from_where_it_is_when_its_scale_changes(installed: ChartCluster) -> None:
    before = {key: float(value) for key, value in installed.get("configmap", f"{FULLNAME}-time")["data"].items()}
    installed.upgrade("--set", "time.scale=2")
    after = {key: float(value) for key, value in installed.get("configmap", f"{FULLNAME}-time")["data"].items()}
    wall, emulated, scale = (f"CLOUDMATRIX_TIME_{word}" for word in ("ANCHOR_WALL", "ANCHOR_EMULATED", "SCALE"))
    assert after[scale] == 2
    reached = before[emulated] + (after[wall] - before[wall]) * before[scale]
    assert after[emulated] == pytest.approx(reached, abs=1)


def test_a_bundled_postgres_keeps_its_password_with_its_volume(cluster: ChartCluster) -> None:
    cluster.upgrade("--set", "database.mode=bundled")
    database = secret(cluster, f"{FULLNAME}-database")
    assert database["compute"] == f"postgresql://cloudmatrix:{database['password']}@{FULLNAME}-postgres:5432/compute"
    cluster.helm("uninstall", RELEASE, "-n", NAMESPACE)
    assert not cluster.get("statefulset", f"{FULLNAME}-postgres")
    cluster.upgrade("--set", "database.mode=bundled")
    assert secret(cluster, f"{FULLNAME}-database") == database
    cluster.helm("uninstall", RELEASE, "-n", NAMESPACE)
    cluster.kubectl("delete", "configmap,secret", "--all", "-n", NAMESPACE)


def test_the_embedded_api_gets_its_authority_once(cluster: ChartCluster) -> None:
    arguments = ("--set", "kube.enabled=true")
    cluster.upgrade(*arguments)
    current = secret(cluster, f"{FULLNAME}-kube")
    cluster.upgrade(*arguments)
    assert secret(cluster, f"{FULLNAME}-kube") == current
    config = yaml.safe_load(current["kubeconfig"])
    assert config["users"][0]["user"]["token"] == current["admin-token"]
    assert (
        base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode() == current["ca.crt"]
    )
    cluster.helm("uninstall", RELEASE, "-n", NAMESPACE)
    cluster.kubectl("delete", "configmap,secret", "--all", "-n", NAMESPACE)


@pytest.mark.parametrize(
    ("storage", "kept"),
    [("deployments.apps", "persistence.enabled=false"), ("statefulsets.apps", "persistence.enabled=true")],
)
def test_helm_waits_until_every_pod_is_ready(
    cluster: ChartCluster, request: pytest.FixtureRequest, storage: str, kept: str
) -> None:
    if "real" in request.node.name:
        pytest.skip("no machines: nothing runs a pod on this control plane")
    if not acted_on(storage):
        pytest.skip(
            f"the embedded API has no controller for {storage}: `helm install --wait --set {kept}` was not tried"
        )
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(A_NODE))
    cluster.kubectl("patch", "node", "machine", "--subresource=status", "--type=merge", "-p", json.dumps(A_MACHINE))
    cluster.upgrade("--wait", "--timeout", "60s", "--set", kept)
    workloads = json.loads(cluster.kubectl("get", storage, "-n", NAMESPACE, "-o", "json"))["items"]
    assert {each["metadata"]["name"]: each["status"].get("readyReplicas") for each in workloads} == {
        f"{FULLNAME}-{name}": 1
        for name in ("resource", "link", "compute", "infer", "agents", "operator", "console")
        if (name in ("operator", "console")) <= (storage == "deployments.apps")
    }
    cluster.helm("uninstall", RELEASE, "-n", NAMESPACE)
    cluster.kubectl("delete", "configmap,secret", "--all", "-n", NAMESPACE)


A_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "machine", "labels": {"kubernetes.io/hostname": "machine", "kubernetes.io/os": "linux"}},
}
A_MACHINE = {
    "status": {
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ],
    }
}


@pytest.mark.parametrize("values", ["default", "everything"])
def test_its_pods_pass_the_restricted_standard(
    cluster: ChartCluster, request: pytest.FixtureRequest, values: str
) -> None:
    if "real" not in request.node.name:
        pytest.skip("the embedded API does not check the Pod Security Standards")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    strict = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(strict))
    eventually(lambda: cluster.get("serviceaccount", "default", "strict"), "the namespace has its account")
    for workload, pod in pods(values):
        claims = workload["spec"].get("volumeClaimTemplates", [])
        volumes = [*pod["volumes"], *({"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims)]
        spec = pod | {"serviceAccountName": "default", "volumes": volumes}
        spec.pop("priorityClassName", None)
        tried = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": workload["metadata"]["name"]}, "spec": spec}
        cluster.kubectl("create", "--dry-run=server", "-n", "strict", "-f", "-", stdin=json.dumps(tried))
