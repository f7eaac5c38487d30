"""Built-in kinds beyond the everyday ones: what is refused, what is filled in, what may change, what tables show."""

from copy import deepcopy
from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.cases.objects import SOUND as EVERYDAY
from tests.conformance.cases.objects import refused_create, sound
from tests.conformance.cases.tables import built_in
from tests.conformance.catalogue import case, rows
from tests.conformance.things import deployment, pod

NET = "~networking.k8s.io/v1"
META = {"metadata": {"name": "one"}}
BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}


def main(**parts: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "i"} | parts]


def ingress(*paths: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rules = [{"host": "a.test", "http": {"paths": list(paths)}}]
    return META | {"spec": ({"rules": rules} if paths else {}) | spec}


def service(**spec: Any) -> dict[str, Any]:
    return META | {"spec": spec}


def policy(**spec: Any) -> dict[str, Any]:
    return META | {"spec": {"podSelector": {}} | spec}


REFUSED: list[tuple[Any, ...]] = [
    ("pod port names alike", "~pods", pod(containers=main(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]))),
    ("pod port name", "~pods", pod(containers=main(ports=[{"containerPort": 1, "name": "Very_Long_Port_Name"}]))),
    ("pod port protocol", "~pods", pod(containers=main(ports=[{"containerPort": 1, "protocol": "ICMP"}]))),
    ("pod variable without a source", "~pods", pod(containers=main(env=[{"name": "A", "valueFrom": {}}]))),
    ("pod variable with two sources", "~pods", pod(containers=main(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]))),
    ("pod variable with an equals sign", "~pods", pod(containers=main(env=[{"name": "A=B"}]))),
    ("pod secret key without a name", "~pods", pod(containers=main(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]))),
    ("pod mounts at one place", "~pods", pod(containers=main(volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]), volumes=[{"name": "v", "emptyDir": {}}])),
    ("pod volumes alike", "~pods", pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])),
    ("pod volume name", "~pods", pod(volumes=[{"name": "V_", "emptyDir": {}}])),
    ("pod probe without a handler", "~pods", pod(containers=main(livenessProbe={}))),
    ("pod probe with two handlers", "~pods", pod(containers=main(livenessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}))),
    ("pod probe port", "~pods", pod(containers=main(readinessProbe={"httpGet": {"port": 0}}))),
    ("pod probe scheme", "~pods", pod(containers=main(readinessProbe={"httpGet": {"port": 1, "scheme": "FTP"}}))),
    ("pod probe period", "~pods", pod(containers=main(readinessProbe={"tcpSocket": {"port": 1}, "periodSeconds": -1}))),
    ("pod unknown resource", "~pods", pod(containers=main(resources={"limits": {"wishes": "1"}}))),
    ("pod negative request", "~pods", pod(containers=main(resources={"requests": {"cpu": "-1"}}))),
    ("pod device without a limit", "~pods", pod(containers=main(resources={"requests": {"huawei.com/Ascend910": "8"}}))),
    ("pod device below its limit", "~pods", pod(containers=main(resources={"requests": {"huawei.com/Ascend910": "4"}, "limits": {"huawei.com/Ascend910": "8"}}))),
    ("pod half a device", "~pods", pod(containers=main(resources={"limits": {"huawei.com/Ascend910": "500m"}}))),
    ("pod dns policy", "~pods", pod(dnsPolicy="Guess")),
    ("pod deadline", "~pods", pod(activeDeadlineSeconds=0)),
    ("pod node name", "~pods", pod(nodeName="Node_1")),
    ("pod node selector", "~pods", pod(nodeSelector={"a b": "c d"})),
    ("pod toleration operator", "~pods", pod(tolerations=[{"key": "a", "operator": "Likes"}])),
    ("pod toleration value", "~pods", pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}])),
    ("pod toleration seconds", "~pods", pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}])),
    ("pod toleration effect", "~pods", pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoFun"}])),
    ("deployment strategy", "~apps/v1/deployments", deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
    ("deployment no surge and none missing", "~apps/v1/deployments", deployment(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})),
    ("deployment share", "~apps/v1/deployments", deployment(strategy={"rollingUpdate": {"maxSurge": "ten", "maxUnavailable": "150%"}})),
    ("deployment deadline", "~apps/v1/deployments", deployment(progressDeadlineSeconds=5, minReadySeconds=5)),
    ("deployment empty selector", "~apps/v1/deployments", deployment(selector={})),
    ("deployment selector operator", "~apps/v1/deployments", deployment(selector={"matchExpressions": [{"key": "app", "operator": "Is", "values": ["a"]}]})),
    ("job negative", "~batch/v1/jobs", META | {"spec": JOB | {"parallelism": -1, "completions": -2}}),
    ("job mode", "~batch/v1/jobs", META | {"spec": JOB | {"completionMode": "Odd"}}),
    ("job indexed without completions", "~batch/v1/jobs", META | {"spec": JOB | {"completionMode": "Indexed", "parallelism": 2}}),
    ("cron job policy", "~batch/v1/cronjobs", META | {"spec": {"schedule": "* * * * *", "concurrencyPolicy": "Maybe", "jobTemplate": {"spec": JOB}}}),
    ("cron job without a schedule", "~batch/v1/cronjobs", META | {"spec": {"jobTemplate": {"spec": JOB}}}),
    ("service ports without names", "~services", service(ports=[{"port": 80}, {"port": 81}])),
    ("service port names alike", "~services", service(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "a"}])),
    ("service target port", "~services", service(ports=[{"port": 80, "targetPort": "NO"}])),
    ("service protocol", "~services", service(ports=[{"port": 80, "protocol": "ICMP"}])),
    ("service without its external name", "~services", service(type="ExternalName")),
    ("service affinity", "~services", service(ports=[{"port": 80}], sessionAffinity="Some")),
    ("service balancer without an address", "~services", service(ports=[{"port": 80}], type="LoadBalancer", clusterIP="None")),
    ("service traffic policy", "~services", service(ports=[{"port": 80}], internalTrafficPolicy="Far")),
    ("budget share", "~policy/v1/poddisruptionbudgets", META | {"spec": {"minAvailable": "150%", "selector": {}}}),
    ("budget percent", "~policy/v1/poddisruptionbudgets", META | {"spec": {"maxUnavailable": "some", "unhealthyPodEvictionPolicy": "Odd"}}),
    ("node taint", "/api/v1/nodes", META | {"spec": {"taints": [{"key": "a b", "effect": "NoFun"}]}}),
    ("event as an owner", "~configmaps", {"metadata": {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}}),
    ("both deletion finalizers", "~configmaps", {"metadata": {"name": "x", "finalizers": ["orphan", "foregroundDeletion"]}}),
]  # fmt: skip
rows("P1", "kinds", "refused", [(*row, 422) for row in REFUSED], refused_create)


SOUND: list[tuple[Any, ...]] = [
    ("daemon set", "~apps/v1/daemonsets", META | {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": main(), "nodeSelector": {"no": "where"}}}}}),
    ("replication controller", "~replicationcontrollers", META | {"spec": {"replicas": 0, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": main()}}}}),
    ("stateful set with claims", "~apps/v1/statefulsets", deployment(serviceName="s", replicas=0, volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": CLAIM}]) | {"kind": "StatefulSet"}),
    ("balancer", "~services", service(type="LoadBalancer", clusterIP="None") | {"spec": {"type": "ExternalName", "externalName": "a.test"}}),
    ("free headless service", "~services", service(clusterIP="None")),
    ("sticky service", "~services", service(ports=[{"port": 80}], sessionAffinity="ClientIP", externalIPs=["192.0.2.1"])),
    ("volume", "/api/v1/persistentvolumes", {"metadata": {"name": "conformance-sound"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1024Mi"}, "hostPath": {"path": "/x"}}}),
    ("pod with everything", "~pods", pod(
        hostNetwork=True,
        serviceAccountName="default",
        containers=main(ports=[{"containerPort": 80}], startupProbe={"grpc": {"port": 5}}, resources={"limits": {"cpu": "2000m", "memory": "1024Mi"}, "requests": {"cpu": "0.1"}}),
        initContainers=[{"name": "first", "image": "example.test:5000/a@sha256:" + "0" * 64, "restartPolicy": "Always"}],
        volumes=[{"name": "a", "configMap": {"name": "m"}}, {"name": "b", "hostPath": {"path": "/"}}, {"name": "c"}, {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, {"name": "e", "emptyDir": {"sizeLimit": "1024Mi"}}])),
    ("empties", "~pods", pod(containers=main(args=[], env=[], tty=False, workingDir=""), nodeSelector={}, hostNetwork=False, volumes=[])),
    ("role without rules", "~rbac.authorization.k8s.io/v1/roles", META),
    ("cluster role binding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"metadata": {"name": "conformance-sound"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "Group", "name": "nobody"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
    ("mutating configuration", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"metadata": {"name": "conformance-sound"}, "webhooks": [{"name": "a.b.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{"apiGroups": ["none.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}]}),
]  # fmt: skip
rows("P1", "kinds", "filled in", SOUND, sound)


rows(
    "P1",
    "kinds",
    "table of",
    [
        ("daemon sets", *SOUND[0][1:2], [SOUND[0][2]]),
        ("replication controllers", *SOUND[1][1:2], [SOUND[1][2]]),
        ("webhook configurations", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", [{"metadata": {"name": "conformance-table"}}]),
        ("many hosts", f"{NET}/ingresses", [META | {"spec": {"ingressClassName": "c", "tls": [{}], "rules": [{"host": f"{x}.test"} for x in "abcde"]}}]),
        ("many addresses", "~discovery.k8s.io/v1/endpointslices", [META | {"addressType": "IPv4", "endpoints": [{"addresses": [f"10.1.2.{i}"]} for i in range(1, 6)], "ports": [{"name": "a"}, {"port": 80}]}]),
        ("outside services", "~services", [META | {"spec": {"type": "ExternalName", "externalName": "a.test"}}]),
        ("selectors", f"{NET}/networkpolicies", [META | {"spec": {"podSelector": {"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "z", "operator": "DoesNotExist"}]}}}]),
        ("budgets of misses", "~policy/v1/poddisruptionbudgets", [META | {"spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"no": "ne"}}}}]),
        ("autoscalers", "~autoscaling/v2/horizontalpodautoscalers", [META | {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "metrics": [{"type": "Resource", "resource": {"name": n, "target": {"type": "Utilization", "averageUtilization": 50}}} for n in ("cpu", "memory", "ephemeral-storage")]}}]),
    ],
    built_in,
)  # fmt: skip


@case("P2")
def quotas_of_namespaces(session: ApiSession) -> None:
    """Not served here, and nothing that stores one without enforcing it."""
    for plural in ("resourcequotas", "limitranges"):
        session.get(f"~{plural}", want=None)


@case("P2")
def kinds_without_a_user(session: ApiSession) -> None:
    for path in (
        "~endpoints",
        "~podtemplates",
        "~apps/v1/controllerrevisions",
        "/apis/networking.k8s.io/v1/ingressclasses",
        "/apis/node.k8s.io/v1/runtimeclasses",
    ):
        session.get(path, want=None)


@case("P2")
def storage_that_cannot_be(session: ApiSession) -> None:
    """Nobody binds claims here, so nobody looks at more than their types."""
    session.post("~persistentvolumeclaims", META | {"spec": CLAIM | {"resources": {}}}, want=None)
    body = {"metadata": {"name": "conformance-odd"}, "provisioner": "a.test/b", "reclaimPolicy": "Lose"}
    session.post("/apis/storage.k8s.io/v1/storageclasses", body, want=None)


@case("P1")
def pods_that_ended_mark_their_row(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    session.post("~pods", pod(), note=False)
    waiting = {
        "name": "main",
        "ready": False,
        "restartCount": 2,
        "image": "i",
        "imageID": "",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    for status in (
        {"phase": "Running", "containerStatuses": [waiting]},
        {"phase": "Failed", "reason": "Evicted", "containerStatuses": []},
        {"phase": "Succeeded", "reason": "", "containerStatuses": [waiting | {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]},
    ):  # fmt: skip
        session.patch("~pods/one/status", {"status": status}, note=False)
        reported = session.get("~pods/one", accept=table, includeObject="None", note=False)
        session.note("row", {"kind": "Table", "row": reported["rows"][0]})


def fixed(session: ApiSession, path: str, body: dict[str, Any], change: dict[str, Any], code: int) -> None:
    name = session.post(path, body, note=False)["metadata"]["name"]
    session.patch(f"{path}/{name}", change, want=code)


rows(
    "P1",
    "kinds",
    "change",
    [
        ("priority class", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "conformance-fixed"}, "value": 5}, {"value": 6, "preemptionPolicy": "Never"}, 422),
        ("service to an outside one", "~services", META | {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, {"spec": {"type": "ExternalName", "externalName": "a.test", "clusterIP": None}}, 200),
        ("labels badly", "~configmaps", META, {"metadata": {"labels": {"a": "b c"}}}, 422),
        ("a service's ports", "~services", META | {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, {"spec": {"ports": [{"port": 81, "name": "x"}]}}, 200),
        ("a policy's generation", f"{NET}/networkpolicies", policy(), {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, 200),
    ],
    fixed,
)  # fmt: skip


def own(reported: Any) -> dict[str, Any]:
    """An object without what controllers write, who are quick."""
    kept = {key: value for key, value in reported.body.items() if key != "status"}
    if kept["kind"] == "Node":
        kept["spec"] = {key: value for key, value in kept["spec"].items() if key != "taints"}
    if "metadata" not in kept:
        return kept
    meta = dict(kept["metadata"])
    mine = [deepcopy(one) for one in meta.get("managedFields") or [] if one["manager"] in ("conformance", "one")]
    for one in mine if kept["kind"] == "Node" else ():
        one["fieldsV1"].get("f:spec", {}).pop("f:taints", None)
    meta.pop("annotations", None)
    return kept | {"metadata": meta | {"managedFields": mine, "generation": 0 if meta.get("generation") else None}}


WATCHED = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "Job", "ReplicationController", "Node")


def life(session: ApiSession, path: str, body: dict[str, Any]) -> None:
    """Patched three ways, replaced, read in part, deleted."""
    if "pods" in path:
        session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    name = f"{body['metadata']['name']}-life" if "drivers" not in path else "life.test"
    body = body | {"metadata": body["metadata"] | {"name": name}}
    at = f"{path}/{name}"
    session.post(path, body, note=False)

    def did(what: str, reported: Any) -> None:
        session.note(what, [reported.code, own(reported)])

    did("merge", session.patch(at, {"metadata": {"labels": {"a": "b"}}}, want=None, note=False))
    strategic = {"metadata": {"labels": {"a": None, "e": "f"}}}
    did("strategic", session.patch(at, strategic, kind="application/strategic-merge-patch+json", want=None, note=False))
    operations = [{"op": "add", "path": "/metadata/labels/g", "value": "h"}]
    did("json", session.patch(at, operations, kind="application/json-patch+json", want=None, note=False))
    kept = {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}
    shown = session.get(at, note=False)
    version, kind = shown["apiVersion"], shown["kind"]
    did("apply", session.apply(at, kept | {"apiVersion": version, "kind": kind}, want=None, note=False, force=True))
    fresh = session.get(at, note=False).body
    fresh["metadata"].pop("labels", None)
    if kind in WATCHED:  # controllers write too
        del fresh["metadata"]["resourceVersion"]
    did("put", session.put(at, fresh, want=None, note=False))
    without = {"metadata": {"name": name}} | {key: value for key, value in body.items() if key != "metadata"}
    reported = session.put(at, without, want=None, note=False)
    session.note(
        "put without a version", [reported.code, sorted([one["reason"], one["field"]] for one in reported.causes)]
    )
    partial = session.get(at, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", note=False)
    session.note("partial", sorted(partial.body))
    reported = session.delete(at, {"propagationPolicy": "Background"}, note=False)
    session.note("delete", [reported.code, reported["kind"]])


UNCHANGING = ("empties", "free headless service")
LIVES = [row for row in (*EVERYDAY, *SOUND) if row[0] not in UNCHANGING]
rows("P1", "kinds", "life of a", LIVES, life)
