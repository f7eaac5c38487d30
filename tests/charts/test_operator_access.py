"""The operator works with the rights the chart gives it, on an API server that enforces them.

The services run as processes of this machine, the operator as the service account of the release. A life of every kind
of resource is lived once; a right that lacks would show as a 403 in its log, and in something that never comes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from matrixcompute.scenarios.library import library
from tests.charts.clusters import ChartCluster, eventually, real, real_missing
from tests.charts.rendered import NAMESPACE, RELEASE
from tests.e2e.operator.operator_process import OperatorProcess, services_up
from tests.matrixcontainer.kubeapi.process import needs_kubectl

pytestmark = [pytest.mark.e2e, needs_kubectl, pytest.mark.usefixtures("helm_here"), pytest.mark.timeout(400)]

ACCOUNT = f"{RELEASE}-cloudmatrix-operator"
GROUP = "cloudmatrix.io/v1alpha1"
MODEL = "deepseek-r1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChartCluster]:
    if why := real_missing():
        pytest.skip(f"{why}: nobody enforced the operator's rights")
    with real(tmp_path_factory.mktemp("cluster")) as started:
        started.upgrade()
        yield started


@pytest.fixture(scope="module")
def operator(cluster: ChartCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """An operator that may do what the chart allows and no more."""
    folder = tmp_path_factory.mktemp("operator")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE).strip()}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    with (
        services_up(tmp_path_factory.mktemp("services") / "state") as services,
        OperatorProcess(services, folder / "kubeconfig", folder, lease_namespace=NAMESPACE) as running,
    ):
        yield running


CLUSTER_SCOPED = ("MatrixFault", "MatrixFaultScenario", "DisruptionBudget")


def a(kind: str, name: str, spec: dict[str, object]) -> str:
    namespaced = {} if kind in CLUSTER_SCOPED else {"namespace": "default"}
    return json.dumps({"apiVersion": GROUP, "kind": kind, "metadata": {"name": name, **namespaced}, "spec": spec})


def state(cluster: ChartCluster, kind: str, name: str) -> str:
    return str((cluster.get(kind, name, "default").get("status") or {}).get("state", ""))


def pods(cluster: ChartCluster, labels: str) -> list[dict[str, object]]:
    return list(json.loads(cluster.kubectl("get", "pods", "-n", "default", "-l", labels, "-o", "json"))["items"])


def test_every_kind_lives_and_ends_with_the_rights_the_chart_gives(
    cluster: ChartCluster, operator: OperatorProcess
) -> None:
    eventually(lambda: state(cluster, "supernode", "sn0"), f"the supernode is mirrored; {operator.reported()[-2000:]}")
    eventually(lambda: cluster.get("node", "sn0-c00-n0", ""), "nodes are mirrored")
    cluster.kubectl("apply", "-f", "-", stdin=a("CloudMatrixInstance", "first", {"nodes": 18}))
    eventually(lambda: state(cluster, "cloudmatrixinstance", "first") == "Active", "the instance is Active")
    cluster.kubectl("apply", "-f", "-", stdin=a("CloudMatrixInfer", "first", {"instance": "first", "model": MODEL}))
    eventually(lambda: len(pods(cluster, "cloudmatrix.io/deployment=first")) == 18, "the workload has its pods")
    eventually(lambda: state(cluster, "cloudmatrixinfer", "first") == "Serving", "the workload serves")
    cluster.kubectl("apply", "-f", "-", stdin=a("MatrixFault", "cut", {"kind": "node-down", "target": "sn0-c11-n3"}))
    eventually(lambda: state(cluster, "matrixfault", "cut") == "Injected", "the fault is on the hardware")
    scenario = library()["free-node-lacks-an-npu"].wire()
    cluster.kubectl("apply", "-f", "-", stdin=a("MatrixFaultScenario", "later", {**scenario, "suspend": True}))
    eventually(lambda: state(cluster, "matrixfaultscenario", "later") == "Suspended", "the scenario waits")
    cluster.kubectl("apply", "-f", "-", stdin=a("DisruptionBudget", "quiet", {"nodes": "10%"}))
    cluster.kubectl("apply", "-f", "-", stdin=a("RecoveryPolicy", "gentle", {"instance": "first", "drainSeconds": 30}))
    eventually(lambda: state(cluster, "recoverypolicy", "gentle") == "Active", "so is the policy")
    eventually(lambda: state(cluster, "disruptionbudget", "quiet") == "Active", "the budget is MatrixCompute's")
    eventually(lambda: "first" in cluster.kubectl("get", "events", "-n", "default"), "events are reported")
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(A_SCHEDULED_POD))
    eventually(lambda: cluster.get("pod", "asks", "default")["spec"].get("nodeName"), "the pod that asks is bound")
    eventually(lambda: cluster.get("lease", "cloudmatrix-operator"), "there is a leader")
    for kind, name in (
        ("pod", "asks"),
        ("cloudmatrixinfer", "first"),
        ("matrixfault", "cut"),
        ("matrixfaultscenario", "later"),
        ("disruptionbudget", "quiet"),
        ("recoverypolicy", "gentle"),
        ("cloudmatrixinstance", "first"),
    ):
        cluster.kubectl("delete", kind, name, "-n", "default", "--wait=false")
        eventually(lambda k=kind, n=name: not cluster.get(k, n, "default"), f"{kind} {name} ends")
    refused = [line for line in operator.reported().splitlines() if " 403" in line or "orbidden" in line]
    assert not refused, refused[:3]


def test_it_may_do_nothing_else(cluster: ChartCluster) -> None:
    """A few things an operator with a wildcard could do."""
    for verb, what in (
        ("get", "secrets"),
        ("list", "secrets"),
        ("create", "clusterroles"),
        ("delete", "namespaces"),
        ("patch", "deployments"),
        ("delete", "cloudmatrixinstances.cloudmatrix.io"),
        ("delete", "customresourcedefinitions"),
        ("patch", "customresourcedefinitions/widgets.example.test"),
    ):
        account = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        done = subprocess.run(
            ["kubectl", "auth", "can-i", verb, what, "--as", account, "-n", "default"],
            capture_output=True,
            text=True,
            env=cluster.environment,
        )
        assert done.stdout.strip() == "no", f"{verb} {what}"


A_SCHEDULED_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "asks", "namespace": "default"},
    "spec": {
        "schedulerName": "matrix-scheduler",
        "containers": [
            {"name": "work", "image": "work", "resources": {"limits": {"huawei.com/Ascend910": "8"}}},
        ],
    },
}
