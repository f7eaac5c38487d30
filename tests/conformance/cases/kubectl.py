"""kubectl, unmodified, against both servers: what it prints and how it exits."""

from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import CRDS, GROUP, config_map, deployment, pod, widget

DEPLOYMENT = deployment("web", paused=True)


def say(session: ApiSession, *commands: Any) -> None:
    """Commands in order: a text, or (text, input), or (text, input, "fails")."""
    for command in commands:
        text, stdin, fails = (*command, None, None)[:3] if isinstance(command, tuple) else (command, None, None)
        session.kubectl(*text.split("~") if "~" in text else text.split(), stdin=stdin, fails=bool(fails))


A = widget("one", spec={"size": 3, "tags": ["a"], "ports": [{"name": "a", "port": 1}]})
B = widget("one", spec={"size": 5, "ports": [{"name": "a", "port": 2}, {"name": "b", "port": 3}]})
MADE = ("create -f -", A)
ROWS: list[tuple[Any, ...]] = [
    ("apply client side", ("apply -f -", A), ("apply -f -", A), ("apply -f -", B), "get widget one -o yaml", ("apply -f -", widget("one", spec={"size": 1000}), "fails")),
    ("apply server side", ("apply --server-side -f -", A), ("apply --server-side -f -", B), "get widget one -o yaml --show-managed-fields", ("apply --server-side --field-manager other -f -", widget("one", spec={"size": 7}), "fails"), ("apply --server-side --field-manager other --force-conflicts -f -", widget("one", spec={"size": 7}))),
    ("apply migrates to server side", ("apply -f -", A), ("apply --server-side -f -", B), "get widget one -o yaml --show-managed-fields"),
    ("apply a config map", ("apply -f -", config_map("one")), ("apply -f -", config_map("one", {"a": "b"})), "get cm one -o yaml"),
    ("apply a deployment", ("apply -f -", DEPLOYMENT), ("apply -f -", deployment("web", paused=True, minReadySeconds=3)), "get deploy web -o jsonpath={.spec.minReadySeconds}/{.spec.template.spec.containers[*].image}"),
    ("apply and prune nothing unknown", ("apply -f -", widget("one", spec={"odd": 1}), "fails"), ("apply --validate=false -f -", widget("one", spec={"odd": 1}))),
    ("get in every form", MADE, "get widget", "get widget one -o wide", "get widget one -o name", "get wd -o json", "get widgets.conformance.test one -o yaml", "get widget -o custom-columns=N:.metadata.name,S:.spec.size", "get widget --no-headers", "get widget --show-labels", "get widget one -o jsonpath={.spec.tags[0]}"),
    ("get nothing", "get widget", ("get widget none", None, "fails"), ("get nothing", None, "fails"), "get widget none --ignore-not-found", "get widget -l a=b", ("get widget -l a=b=c", None, "fails"), ("get widget --field-selector spec.note=x", None, "fails")),
    ("get sorted and selected", MADE, ("create -f -", widget("two", spec={"size": 1, "color": "blue"})), "get widget --sort-by=.spec.size", "get widget --field-selector spec.color=blue", "get widget --chunk-size=1"),
    ("describe a custom resource", MADE, "describe widget one"),
    ("describe built ins", ("create -f -", config_map("one")), "describe cm one", "create secret generic s --from-literal=a=b", "describe secret s", ("describe cm none", None, "fails")),
    ("explain a custom resource", "explain widget", "explain widget.spec", "explain widget.spec.ports.name", "explain widget --recursive", ("explain widget.spec.none", None, "fails")),
    ("diff", MADE, ("diff -f -", B, "fails"), ("diff -f -", A)),
    ("label and annotate", MADE, "label widget one a=b", "label widget one a=b", ("label widget one a=c", None, "fails"), "label widget one a=c --overwrite", "label widget one a-", "annotate widget one x=y", "get widget one -o jsonpath={.metadata.annotations}", ("label widget one a=b%c", None, "fails")),
    ("scale", MADE, "scale widget one --replicas=7", "get widget one -o jsonpath={.spec.size}", ("scale widget one --replicas=7 --current-replicas=3", None, "fails"), ("scale widget none --replicas=1", None, "fails"), ("scale widget one --replicas=1000", None, "fails")),
    ("patch", MADE, 'patch~widget~one~--type=merge~-p~{"spec":{"size":4}}', 'patch~widget~one~--type=json~-p~[{"op":"replace","path":"/spec/size","value":6}]', ('patch~widget~one~-p~{"spec":{"size":4}}', None, "fails"), 'patch~widget~one~--type=merge~--subresource=status~-p~{"status":{"phase":"Good"}}', "get widget one -o jsonpath={.spec.size}/{.status.phase}", ('patch~widget~one~--type=json~-p~[{"op":"test","path":"/spec/size","value":0}]', None, "fails"), ('patch~widget~one~--type=merge~-p~{"spec":{"size":"x"}}', None, "fails")),
    ("replace", MADE, ("replace -f -", B), "get widget one -o jsonpath={.spec.size}", ("replace -f -", widget("none"), "fails")),
    ("wait", MADE, 'patch~widget~one~--type=merge~--subresource=status~-p~{"status":{"conditions":[{"type":"Ready","status":"True"}]}}', "wait --for=condition=Ready widget/one --timeout=5s", "wait --for=jsonpath={.spec.size}=3 widget/one --timeout=5s", ("wait --for=condition=Gone widget/one --timeout=1s", None, "fails"), "wait --for=condition=Established crd/widgets.conformance.test --timeout=5s"),
    ("delete", MADE, "delete widget one", ("delete widget one", None, "fails"), "delete widget one --ignore-not-found", ("create -f -", widget("two")), ("create -f -", widget("three")), "delete widget --all", ("create -f -", config_map("one")), "delete cm one --cascade=orphan", ("create -f -", config_map("one")), "delete cm one --wait=false"),
    ("create a config map", "create configmap c --from-literal=a=b", "get cm c -o yaml", ("create configmap c", None, "fails")),
    ("create a secret", "create secret generic s --from-literal=a=b", "get secret s -o yaml", "get secret s"),
    ("create a deployment", "create deployment d --image=example.test/x --replicas=0", "get deploy d -o jsonpath={.spec.template.spec.containers[0].image}", "set image deploy/d x=example.test/y", "scale deploy d --replicas=0"),
    ("create a job", "create job j --image=example.test/x -- run me", "get job j -o jsonpath={.spec.template.spec.containers[0].command}"),
    ("create a cron job", "create~cronjob~c~--image=example.test/x~--schedule=0 0 1 1 *", "get cronjob c"),
    ("create a service", "create service clusterip s --tcp=80:8080 --clusterip=None", "get service s -o jsonpath={.spec.ports}"),
    ("create roles", "create role r --verb=get --resource=pods", "create rolebinding b --role=r --user=u", "get role r -o yaml", "get rolebinding b -o wide", "describe role r"),
    ("create service account and token", "create serviceaccount a", "get sa a -o yaml"),
    ("create the rest", "create pdb p --selector=a=b --min-available=1", "create~ingress~i~--rule=a.test/x=s:80", "get ingress i", "create priorityclass conformance-kubectl --value=5"),
    ("create a namespace", "create namespace conformance-kubectl", "get ns conformance-kubectl", "delete ns conformance-kubectl --wait=false", ("create namespace Bad_", None, "fails")),
    ("create dry runs", "create configmap c --from-literal=a=b --dry-run=server", ("create --dry-run=server -f -", A), "get cm c --ignore-not-found"),
    ("auth", "auth can-i create pods", "auth can-i delete widgets.conformance.test", ("auth can-i get pods --as=nobody", None, "fails")),
    ("edit nothing by set", ("create -f -", DEPLOYMENT), "set env deploy/web A=B", "set resources deploy/web --limits=cpu=1", "get deploy web -o jsonpath={.spec.template.spec.containers[0].env}"),
    ("expose", ("create -f -", DEPLOYMENT), "expose deploy web --port=80 --cluster-ip=None"),
    ("taint and cordon", ("create -f -", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conformance-kubectl"}}), "taint node conformance-kubectl a=b:NoSchedule", "cordon conformance-kubectl", "uncordon conformance-kubectl", "get node conformance-kubectl", "delete node conformance-kubectl"),
    ("rollout of a paused deployment", ("create -f -", DEPLOYMENT), "rollout resume deploy/web", "rollout pause deploy/web", ("rollout pause deploy/web", None, "fails"), ("rollout resume deploy/none", None, "fails")),
    ("events", "get events", "events"),
    ("subresources", MADE, "get widget one --subresource=status -o name", "get widget one --subresource=scale"),
    ("raw", f"get --raw /apis/{GROUP}", ("get --raw /nothing", None, "fails")),
    ("crd", f"get crd widgets.{GROUP} -o jsonpath={{.spec.names}}", "get crd looses.conformance.test -o name"),
    ("api resources", f"api-resources --api-group={GROUP}", "api-resources --api-group=autoscaling", "api-resources --api-group=batch", "api-resources --api-group=rbac.authorization.k8s.io -o wide"),
    ("delete in the foreground", ("create -f -", config_map("one")), "delete cm one --cascade=foreground"),
]  # fmt: skip
rows("P1", "kubectl", "kubectl", ROWS, say)


@case("P1", "Kubectl api-versions should check if v1 is in available api versions")
def kubectl_versions(session: ApiSession) -> None:
    found = session.kubectl("api-versions", note=False).split()
    for wanted in ("v1", "apps/v1", "batch/v1", f"{GROUP}/v1", "apiextensions.k8s.io/v1"):
        assert wanted in found
    assert "Server Version: v1.33" in session.kubectl("version", note=False)
    assert "is running at" in session.kubectl("cluster-info", note=False)


@case("P1")
def kubectl_pods(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    say(session, ("create -f -", pod("one")), "get pod one", "get pod one -o wide", "describe pod one", "label pod one a=b",
        "logs one", ("exec one -- true", None, "fails"), "delete pod one --now")  # fmt: skip


@case("P1")
def kubectl_replaces_a_definition(session: ApiSession) -> None:
    from tests.conformance.things import crd, version

    body = crd("kubectls", [version()], group="kubectl.test")
    say(session, ("apply -f -", body), "wait --for=condition=Established crd/kubectls.kubectl.test --timeout=10s")
    session.until("/apis/kubectl.test/v1/kubectls", lambda reported: reported.code == 200, note=False)
    say(session, ("apply -f -", body), "get kubectls", "delete crd kubectls.kubectl.test")
    session.until_gone(f"{CRDS}/kubectls.kubectl.test")
