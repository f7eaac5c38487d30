"""The unmodified kubectl against the embedded Kubernetes API as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrixcontainer.kubeapi.api_session import a_crd, a_widget
from tests.matrixcontainer.kubeapi.process import KUBECTL, KubeProcess, needs_kubectl

CRDS = Path(__file__).resolve().parents[3] / "charts" / "cloudmatrix" / "crds"

pytestmark = [pytest.mark.e2e, needs_kubectl]


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeProcess]:
    process = KubeProcess(tmp_path_factory.mktemp("kube")).start()
    process.kubectl("apply", "-f", "-", stdin=a_crd())
    process.kubectl("wait", "--for=condition=Established", "crd/widgets.example.test", "--timeout=10s")
    yield process
    assert process.stop() == 0


@pytest.fixture
def widget(kube: KubeProcess) -> Iterator[str]:
    """A widget made by client-side apply, gone after the test."""
    kube.kubectl("apply", "-f", "-", stdin=a_widget())
    yield "one"
    kube.kubectl("delete", "widget", "one", "--ignore-not-found")


def test_version_and_discovery(kube: KubeProcess) -> None:
    assert "Server Version: v1.33" in kube.kubectl("version")
    listed = kube.kubectl("api-resources")
    for words in (
        "widgets  wd  example.test/v1  true  Widget",
        "pods  po  v1  true  Pod",
        "deployments  deploy  apps/v1  true",
    ):
        assert "  ".join(words.split()) in "\n".join("  ".join(row.split()) for row in listed.splitlines())
    assert "example.test/v1" in kube.kubectl("api-versions")
    assert "doesn't have a resource type" in kube.kubectl("get", "nothing", fails=True)


def test_get_in_every_form(kube: KubeProcess, widget: str) -> None:
    rows = kube.kubectl("get", "wd").splitlines()
    assert rows[0].split() == ["NAME", "SIZE", "AGE"]
    assert rows[1].split()[:2] == ["one", "3"]
    assert "color: red" in kube.kubectl("get", "wd", "one", "-o", "yaml")
    assert kube.kubectl("get", "wd", "one", "-o", "jsonpath={.spec.size}") == "3"
    assert kube.kubectl("get", "wd", "-o", "name").strip() == "widget.example.test/one"
    assert "one" in kube.kubectl("get", "wd", "-o", "wide", "-A", "--sort-by=.spec.size")
    assert "one" in kube.kubectl("get", "wd", "--field-selector", "spec.color=red")
    assert "No resources found" in kube.kubectl("get", "wd", "-l", "a=b")


def test_watch_prints_changes(kube: KubeProcess, widget: str) -> None:
    with subprocess.Popen(
        [str(KUBECTL), "get", "wd", "-w", "--output-watch-events"],
        stdout=subprocess.PIPE,
        text=True,
        env=kube.environment(),
    ) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline(), watching.stdout.readline()]
        kube.kubectl("scale", "wd", "one", "--replicas=7")
        lines.append(watching.stdout.readline())
        watching.terminate()
    assert [line.split()[:3] for line in lines] == [
        ["EVENT", "NAME", "SIZE"],
        ["ADDED", "one", "3"],
        ["MODIFIED", "one", "7"],
    ]


def test_client_and_server_side_apply(kube: KubeProcess) -> None:
    first = a_widget("both", spec={"size": 3, "note": "n", "ports": [{"name": "a", "port": 1}]})
    assert "created" in kube.kubectl("apply", "-f", "-", stdin=first)
    assert "unchanged" in kube.kubectl("apply", "-f", "-", stdin=first)
    assert "configured" in kube.kubectl("apply", "-f", "-", stdin=a_widget("both", spec={"size": 4, "note": "n"}))
    assert kube.kubectl("get", "wd", "both", "-o", "jsonpath={.spec.ports}") == ""
    moved = kube.kubectl("apply", "--server-side", "-f", "-", stdin=a_widget("both", spec={"size": 4, "note": "n"}))
    assert "serverside-applied" in moved
    kube.kubectl("apply", "--server-side", "-f", "-", stdin=a_widget("both", spec={"size": 4}))
    assert kube.kubectl("get", "wd", "both", "-o", "jsonpath={.spec.note}") == ""
    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    refused = kube.kubectl(*other, stdin=a_widget("both", spec={"size": 9}), fails=True)
    assert 'conflict with "kubectl": .spec.size' in refused
    kube.kubectl(*other, "--force-conflicts", stdin=a_widget("both", spec={"size": 9}))
    assert "-  size: 9" in kube.kubectl("diff", "-f", "-", stdin=a_widget("both", spec={"size": 5}), fails=True)
    kube.kubectl("delete", "wd", "both")


def test_mistakes_name_their_fields(kube: KubeProcess) -> None:
    unknown = kube.kubectl("apply", "-f", "-", stdin=a_widget("bad", spec={"size": 1, "sise": 1}), fails=True)
    assert 'unknown field "spec.sise"' in unknown
    wrong = kube.kubectl("apply", "-f", "-", stdin=a_widget("bad", spec={"size": 0, "color": "pink"}), fails=True)
    assert 'The Widget "bad" is invalid' in wrong
    assert "spec.size: Invalid value: 0" in wrong
    assert 'spec.color: Unsupported value: "pink"' in wrong
    nowhere = {"apiVersion": "none.test/v1", "kind": "Nothing", "metadata": {"name": "x"}}
    assert 'no matches for kind "Nothing" in version "none.test/v1"' in kube.kubectl(
        "apply", "-f", "-", stdin=nowhere, fails=True
    )
    assert 'widgets.example.test "bad" not found' in kube.kubectl("get", "wd", "bad", fails=True)


def test_describe_and_explain(kube: KubeProcess, widget: str) -> None:
    about = kube.kubectl("describe", "wd", "one")
    assert "API Version:  example.test/v1" in about
    assert "Events:" in about
    explained = kube.kubectl("explain", "widgets.spec")
    assert "size\t<integer> -required-" in explained
    assert "enum: red, green, blue" in explained
    assert "<[]Container> -required-" in kube.kubectl("explain", "pods.spec")


def test_change_and_wait(kube: KubeProcess, widget: str) -> None:
    kube.kubectl("scale", "wd", "one", "--replicas=5")
    kube.kubectl("patch", "wd", "one", "--type=merge", "-p", '{"spec":{"color":"blue"}}')
    kube.kubectl("patch", "wd", "one", "--type=json", "-p", '[{"op":"add","path":"/spec/note","value":"x"}]')
    assert "strategic-merge-patch+json is not supported" in kube.kubectl("patch", "wd", "one", "-p", "{}", fails=True)
    kube.kubectl("label", "wd", "one", "k=v")
    kube.kubectl("annotate", "wd", "one", "n=o")
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kube.kubectl("patch", "wd", "one", "--subresource=status", "--type=merge", "-p", status)
    assert "condition met" in kube.kubectl("wait", "wd/one", "--for=condition=Ready", "--timeout=10s")
    assert "condition met" in kube.kubectl("wait", "wd/one", "--for=jsonpath={.spec.size}=5", "--timeout=10s")
    kube.kubectl("edit", "wd", "one", EDITOR="sed -i s/size:.5/size:\\ 6/")
    assert kube.kubectl("get", "wd", "one", "-o", "jsonpath={.spec.size}{.metadata.labels.k}") == "6v"
    kube.kubectl("replace", "-f", "-", stdin=kube.kubectl("get", "wd", "one", "-o", "json"))
    assert "timed out" in kube.kubectl("wait", "wd/one", "--for=delete", "--timeout=1s", fails=True)


def test_create_sends_protobuf(kube: KubeProcess) -> None:
    kube.kubectl("create", "namespace", "team")
    for words in (
        "configmap c --from-literal=a=b",
        "secret generic s --from-literal=p=q",
        "sa robot",
        "role r --verb=get --resource=pods",
        "rolebinding rb --role=r --serviceaccount=team:robot",
        "deployment web --image=nginx --replicas=2",
        "job j --image=busybox -- echo hi",
        "cronjob cj --image=busybox --schedule=0/5_*_*_*_* -- echo",
        "service clusterip svc --tcp=80:80",
        "ingress ing --rule=a.b/c=svc:80",
        "pdb p --selector=app=x --min-available=1",
    ):
        kube.kubectl("create", *(word.replace("_", " ") for word in words.split()), "-n", "team")
    kube.kubectl("run", "box", "--image=busybox", "-n", "team")
    assert kube.kubectl("get", "secret", "s", "-n", "team", "-o", "jsonpath={.data.p}") == "cQ=="
    assert kube.kubectl("get", "deploy", "web", "-n", "team", "-o", "jsonpath={.spec.replicas}") == "2"
    assert kube.kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "admin" in kube.kubectl("auth", "whoami")
    token = kube.kubectl("create", "token", "robot", "-n", "team").strip()
    who = kube.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", f"--token={token}")
    assert "system:serviceaccount:team:robot" in who or who.strip() == "admin"
    assert "pod/box" in kube.kubectl("get", "all", "-n", "team")
    kube.kubectl("delete", "namespace", "team", "--timeout=30s")
    assert "not found" in kube.kubectl("get", "namespace", "team", fails=True)


def test_nodes_and_events(kube: KubeProcess, widget: str) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"huawei.com/Ascend910": "8"}},
    }
    kube.kubectl("create", "-f", "-", stdin=node)
    assert "Ready" in kube.kubectl("get", "nodes")
    kube.kubectl("cordon", "n1")
    kube.kubectl("taint", "node", "n1", "a=b:NoSchedule")
    assert "huawei.com/Ascend910" in kube.kubectl("describe", "node", "n1")
    kube.kubectl("drain", "n1")
    uid = kube.kubectl("get", "wd", "one", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "e-", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "example.test/v1",
            "kind": "Widget",
            "name": "one",
            "namespace": "default",
            "uid": uid,
        },
        "reason": "Made",
        "message": "it was made",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kube.kubectl("create", "-f", "-", stdin=event)
    assert "it was made" in kube.kubectl("get", "events")
    assert "it was made" in kube.kubectl("describe", "wd", "one")
    assert "Made" in kube.kubectl("events", "--for", "widget/one")
    assert "it was made" in kube.kubectl("get", "events.events.k8s.io", "-o", "yaml")
    kube.kubectl("delete", "node", "n1")


def test_what_nobody_serves_is_refused_plainly(kube: KubeProcess) -> None:
    kube.kubectl("run", "box", "--image=busybox")
    assert "does not have a host assigned" in kube.kubectl("exec", "box", "--", "ls", fails=True)
    assert kube.kubectl("logs", "box") == ""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}
    kube.kubectl("create", "-f", "-", stdin=node)
    there = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "there"}}
    kube.kubectl(
        "create", "-f", "-", stdin=there | {"spec": {"nodeName": "n2", "containers": [{"name": "c", "image": "i"}]}}
    )
    assert "is not supported" in kube.kubectl("exec", "there", "--", "ls", fails=True)
    kube.kubectl("delete", "pod", "there", "--grace-period=0", "--force")
    kube.kubectl("delete", "node", "n2")
    assert "metrics not available yet" in kube.kubectl("top", "nodes", fails=True)
    kube.kubectl("delete", "pod", "box")


def test_foreground_and_orphan(kube: KubeProcess) -> None:
    for cascade, left in (("foreground", "not found"), ("orphan", "dependent")):
        kube.kubectl("apply", "-f", "-", stdin=a_widget("owner"))
        uid = kube.kubectl("get", "wd", "owner", "-o", "jsonpath={.metadata.uid}")
        reference = {"apiVersion": "example.test/v1", "kind": "Widget", "name": "owner", "uid": uid}
        meta = {"ownerReferences": [reference | {"blockOwnerDeletion": True}]}
        kube.kubectl("apply", "-f", "-", stdin=a_widget("dependent", metadata=meta))
        kube.kubectl("delete", "wd", "owner", f"--cascade={cascade}", "--timeout=20s")
        assert left in kube.kubectl("get", "wd", "dependent", fails=cascade == "foreground")
    kube.kubectl("delete", "wd", "dependent")


def test_two_processes_cannot_share_a_folder(kube: KubeProcess) -> None:
    assert kube.process is not None
    command = [sys.executable, "-m", "services.kube", "--state", str(kube.state), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert f"is in use by process {kube.process.pid}" in second.stderr


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    try:
        kube.kubectl("apply", "-f", "-", stdin=a_crd())
        kube.kubectl("wait", "--for=condition=Established", "crd/widgets.example.test", "--timeout=10s")
        made = []
        for index in range(3):
            kube.kubectl("apply", "-f", "-", stdin=a_widget(f"w{index}"))
            made.append(f"w{index}")
            kube.kill()
            kube.start()
            listed = kube.kubectl("get", "wd", "-o", "jsonpath={.items[*].metadata.name}").split()
            assert listed == made
        assert kube.stop() == 0
    finally:
        if kube.process is not None and kube.process.poll() is None:
            kube.process.kill()


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        ("view", "list cloudmatrixinstances.cloudmatrix.io", "create cloudmatrixinstances.cloudmatrix.io"),
        ("edit", "patch cloudmatrixinstances.cloudmatrix.io/scale", "create matrixfaults.cloudmatrix.io"),
        ("admin", "delete scalingpolicies.cloudmatrix.io", "create disruptionbudgets.cloudmatrix.io"),
    ],
)
def test_default_roles_include_the_kinds_of_the_product(
    kube: KubeProcess, role: str, allowed: str, refused: str
) -> None:
    kube.kubectl("apply", "--server-side", "-f", str(CRDS))
    kube.kubectl("create", "rolebinding", f"one-{role}", f"--clusterrole={role}", f"--user=one-{role}")
    can_i = ("auth", "can-i", f"--as=one-{role}")
    assert kube.kubectl(*can_i, *_asked(allowed)).splitlines()[-1] == "yes"
    assert "no" in kube.kubectl(*can_i, *_asked(refused), fails=True).splitlines()


def _asked(text: str) -> tuple[str, ...]:
    verb, resource = text.split()
    resource, _, subresource = resource.partition("/")
    return (verb, resource, *([f"--subresource={subresource}"] if subresource else []))
