"""`kubectl drain` empties a node, and waits where a disruption budget says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.kube.test_kubectl_rollout import add_node
from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl
from tests.matrixcontainer.kubeapi.virtual import a_deployment

pytestmark = [pytest.mark.e2e, needs_kubectl]


@pytest.fixture
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    process = KubeProcess(tmp_path_factory.mktemp("kube")).start()
    add_node(process, "n1")
    yield process
    assert process.stop() == 0


def test_drain(kube: KubeProcess) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment"} | a_deployment()
    kube.kubectl("apply", "-f", "-", stdin=deployment)
    kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    labels = deployment["spec"]["selector"]["matchLabels"]
    spec = {"selector": {"matchLabels": labels}, "maxUnavailable": 0}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": spec}
    kube.kubectl("apply", "-f", "-", stdin=budget)
    kube.kubectl("wait", "pdb/web", "--for=jsonpath={.status.desiredHealthy}=3", "--timeout=10s")
    text = kube.kubectl("drain", "n1", "--timeout=2s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in text
    add_node(kube, "n2")
    kube.kubectl("patch", "pdb", "web", "--type=merge", "-p", '{"spec":{"maxUnavailable":1}}')
    text = kube.kubectl("drain", "n1", "--timeout=40s", "--grace-period=0", "--force")
    assert "node/n1 drained" in text
    assert "SchedulingDisabled" in kube.kubectl("get", "nodes")
    kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    nodes = kube.kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
    assert set(nodes.split()) == {"n2"}
