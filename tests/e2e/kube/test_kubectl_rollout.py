"""What people type to run workloads, with the unmodified kubectl, against the embedded API as a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.process import KubeProcess, needs_kubectl
from tests.matrixcontainer.kubeapi.virtual import a_deployment

pytestmark = [pytest.mark.e2e, needs_kubectl]


def add_node(kube: KubeProcess, name: str) -> None:
    capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    kube.kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    ready = {"type": "Ready", "status": "True", "reason": "Tests", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"conditions": [ready], "capacity": capacity, "allocatable": capacity}}
    kube.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    process = KubeProcess(tmp_path_factory.mktemp("kube")).start()
    for name in ("n1", "n2"):
        add_node(process, name)
    yield process
    assert process.stop() == 0


def test_rollout_status_history_and_undo(kube: KubeProcess) -> None:
    kube.kubectl("apply", "-f", "-", stdin={"apiVersion": "apps/v1", "kind": "Deployment"} | a_deployment())
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kube.kubectl("wait", "--for=condition=available", "deployment/web", "--timeout=30s")
    kube.kubectl("set", "image", "deployment/web", "c=web:2")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    history = kube.kubectl("rollout", "history", "deployment/web")
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["1", "2"]
    assert "web:1" in kube.kubectl("rollout", "history", "deployment/web", "--revision=1")
    kube.kubectl("rollout", "undo", "deployment/web")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kube.kubectl("get", "deployment", "web", "-o", image) == "web:1"
    kube.kubectl("rollout", "restart", "deployment/web")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kube.kubectl("scale", "deployment/web", "--replicas=5")
    kube.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=5", "deployment/web", "--timeout=30s")
    assert "5/5" in kube.kubectl("get", "deployment", "web")
    kube.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=30s")
    assert "No resources found" in kube.kubectl("get", "pods,replicasets")


def test_a_failing_rollout_is_reported(kube: KubeProcess) -> None:
    notes = {"kubelet.cloudmatrix.io/image-pull": "fail"}
    body = {"apiVersion": "apps/v1", "kind": "Deployment"} | a_deployment("bad", progressDeadlineSeconds=2, notes=notes)
    kube.kubectl("apply", "-f", "-", stdin=body)
    text = kube.kubectl("rollout", "status", "deployment/bad", "--timeout=30s", fails=True)
    assert "exceeded its progress deadline" in text
    assert "ImagePullBackOff" in kube.kubectl("get", "pods", "-l", "app=bad")
    assert "BackOff" in kube.kubectl("describe", "pods", "-l", "app=bad")
    kube.kubectl("delete", "deployment", "bad")


def test_create_a_job_wait_and_read_its_log(kube: KubeProcess) -> None:
    kube.kubectl("create", "job", "hello", "--image=busybox", "--", "echo", "hello there")
    kube.kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=30s")
    assert kube.kubectl("logs", "job/hello").strip() == "hello there"
    assert "Complete" in kube.kubectl("get", "jobs", "hello")
    assert "Completed" in kube.kubectl("get", "pods", "-l", "job-name=hello")
    kube.kubectl("create", "job", "broken", "--image=busybox", "--", "false")
    kube.kubectl("patch", "job", "broken", "-p", '{"spec": {"backoffLimit": 0}}')
    kube.kubectl("wait", "--for=condition=failed", "job/broken", "--timeout=30s")
    kube.kubectl("delete", "job", "hello", "broken")
    assert "No resources found" in kube.kubectl("get", "pods")


def test_run_follow_top_and_delete(kube: KubeProcess) -> None:
    kube.kubectl("run", "box", "--image=busybox", "--restart=Never", "--", "sleep", "3")
    kube.kubectl("wait", "--for=condition=Ready", "pod/box", "--timeout=30s")
    assert "box" in kube.kubectl("top", "pods")
    assert "n1" in kube.kubectl("top", "nodes")
    assert "ended with exit code 0" in kube.kubectl("logs", "--follow", "box")
    kube.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/box", "--timeout=30s")
    kube.kubectl("delete", "pod", "box", "--timeout=30s")


def test_autoscale(kube: KubeProcess) -> None:
    asks = {"resources": {"requests": {"cpu": "100m"}}}
    body = {"apiVersion": "apps/v1", "kind": "Deployment"} | a_deployment("busy", 1, container=asks)
    kube.kubectl("apply", "-f", "-", stdin=body)
    kube.kubectl("rollout", "status", "deployment/busy", "--timeout=30s")
    kube.kubectl("annotate", "deployment/busy", "metrics.cloudmatrix.io/total-cpu=200m")
    kube.kubectl("autoscale", "deployment/busy", "--min=2", "--max=6", "--cpu-percent=50")
    kube.kubectl("wait", "--for=condition=ScalingActive", "hpa/busy", "--timeout=40s")
    kube.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=4", "deployment/busy", "--timeout=50s")
    shown = kube.kubectl("get", "hpa", "busy")
    assert "Deployment/busy" in shown
    assert "cpu: " in shown
    assert "SuccessfulRescale" in kube.kubectl("describe", "hpa", "busy")
    kube.kubectl("delete", "hpa,deployment", "busy")


def test_daemon_set_rolls_out_and_survives_a_drain(kube: KubeProcess) -> None:
    body: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "DaemonSet"} | a_deployment("agent")
    del body["spec"]["replicas"]
    assert "nothing here acts on" not in kube.kubectl("apply", "-f", "-", stdin=body)
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "ds/agent", "--timeout=30s")
    assert kube.kubectl("get", "ds", "agent").splitlines()[1].split()[1:6] == ["2"] * 5
    kube.kubectl("set", "image", "ds/agent", "c=web:2")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "ds/agent", "--timeout=60s")
    image = "jsonpath={.items[*].spec.containers[0].image}"
    assert kube.kubectl("get", "pods", "-l", "app=agent", "-o", image) == "web:2 web:2"
    kube.kubectl("rollout", "restart", "ds/agent")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "ds/agent", "--timeout=60s")
    assert "cannot delete DaemonSet-managed Pods" in kube.kubectl("drain", "n1", fails=True)
    assert "drained" in kube.kubectl("drain", "n1", "--ignore-daemonsets", "--timeout=30s")
    assert "successfully rolled out" in kube.kubectl("rollout", "status", "ds/agent", "--timeout=30s")
    kube.kubectl("uncordon", "n1")
    kube.kubectl("delete", "ds", "agent", "--cascade=foreground", "--timeout=30s")
    assert "No resources found" in kube.kubectl("get", "pods", "-l", "app=agent")
