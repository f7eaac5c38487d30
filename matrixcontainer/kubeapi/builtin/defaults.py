"""Defaults of built-in structs, as data, or as functions where one field depends on another.

A default applies if the field is absent, or empty where the type cannot tell the difference. Source: the defaulting
functions of the public API packages; the type table adds the defaults marked in their comments.
"""

from collections.abc import Callable
from typing import Any

Obj = dict[str, Any]

FILE_MODE = 420  # 0644
CLIENT_IP_S = 10800

DEFAULTS: dict[str, dict[str, Any]] = {
    "core.v1.PodSpec": {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
    "core.v1.Container": {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "core.v1.Probe": {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.SecretVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.ConfigMapVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.ProjectedVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.PersistentVolumeSpec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeStatus": {"phase": "Pending"},
    "core.v1.PersistentVolumeClaimSpec": {"volumeMode": "Filesystem"},
    "core.v1.PersistentVolumeClaimStatus": {"phase": "Pending"},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.ServiceSpec": {"type": "ClusterIP", "sessionAffinity": "None"},
    "apps.v1.DeploymentSpec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600},
    "apps.v1.DeploymentStrategy": {"type": "RollingUpdate"},
    "apps.v1.RollingUpdateDeployment": {"maxUnavailable": "25%", "maxSurge": "25%"},
    "apps.v1.ReplicaSetSpec": {"replicas": 1},
    "apps.v1.DaemonSetSpec": {"revisionHistoryLimit": 10},
    "apps.v1.DaemonSetUpdateStrategy": {"type": "RollingUpdate"},
    "apps.v1.RollingUpdateDaemonSet": {"maxUnavailable": 1, "maxSurge": 0},
    "apps.v1.StatefulSetSpec": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {},
    },
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    "apps.v1.RollingUpdateStatefulSetStrategy": {"partition": 0},
    "batch.v1.CronJobSpec": {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "networking.v1.NetworkPolicyPort": {"protocol": "TCP"},
    "storage.v1.StorageClass": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "discovery.v1.EndpointPort": {"name": "", "protocol": "TCP"},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "PreemptLowerPriority"},
    "autoscaling.v2.HorizontalPodAutoscalerSpec": {"minReplicas": 1},
    "admissionregistration.v1.Rule": {"scope": "*"},
    "admissionregistration.v1.ServiceReference": {"port": 443},
    "admissionregistration.v1.ValidatingWebhook": {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    },
    "admissionregistration.v1.MutatingWebhook": {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    },
}


# ---- functions


def _default_pull_policy(container: Obj) -> None:
    """imagePullPolicy: Always for the tag `latest` or none, otherwise IfNotPresent."""
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    newest = tag == "latest" or (not tag and "@" not in image)
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = "Always" if newest else "IfNotPresent"


def _default_service_account(spec: Obj) -> None:
    """serviceAccount is a deprecated alias of serviceAccountName: keep both equal."""
    if name := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def _default_volume_source(volume: Obj) -> None:
    if not any(volume[key] is not None for key in volume if key != "name"):
        volume["emptyDir"] = {}


def _default_pod(pod: Obj) -> None:
    spec = pod["spec"]
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            resources = container.get("resources") or {}
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
            for port in (container.get("ports") or []) if spec.get("hostNetwork") else []:
                port["hostPort"] = port.get("hostPort") or port.get("containerPort")
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True


def _default_service(spec: Obj) -> None:
    kind = spec["type"]
    if spec["sessionAffinity"] == "ClientIP":
        current = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_S if current is None else current}}
    else:
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or []:
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    reachable = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if reachable and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _default_allocatable(status: Obj) -> None:
    if status.get("capacity") is not None:
        status.setdefault("allocatable", dict(status["capacity"]))


def _default_selector_and_labels(controller: Obj) -> None:
    """A ReplicationController's labels and selector default to its template's labels."""
    current = ((controller["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if current:
        if not controller["spec"].get("selector"):
            controller["spec"]["selector"] = dict(current)
        if not controller["metadata"].get("labels"):
            controller["metadata"]["labels"] = dict(current)


def _rolling_update_defaulter(kind: str) -> Callable[[Obj], None]:
    def action(strategy: Obj) -> None:
        if strategy.get("type") == kind and strategy.get("rollingUpdate") is None:
            strategy["rollingUpdate"] = {}

    return action


def _default_ordered_update(strategy: Obj) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})


def _default_claim_templates(spec: Obj) -> None:
    for claim in spec.get("volumeClaimTemplates") or []:
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")


def _default_job(job: Obj) -> None:
    spec = job["spec"]
    current = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if current and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(current)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    for key, value in (
        ("parallelism", 1),
        ("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"),
        ("manualSelector", False),
    ):
        if spec.get(key) is None:
            spec[key] = value


def _default_policy_types(spec: Obj) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


DEFAULTERS: dict[str, tuple[Callable[[Obj], None], ...]] = {
    "core.v1.Container": (_default_pull_policy,),
    "core.v1.PodSpec": (_default_service_account,),
    "core.v1.Volume": (_default_volume_source,),
    "core.v1.Pod": (_default_pod,),
    "core.v1.ServiceSpec": (_default_service,),
    "core.v1.NodeStatus": (_default_allocatable,),
    "core.v1.ReplicationController": (_default_selector_and_labels,),
    "apps.v1.DeploymentStrategy": (_rolling_update_defaulter("RollingUpdate"),),
    "apps.v1.DaemonSetUpdateStrategy": (_rolling_update_defaulter("RollingUpdate"),),
    "apps.v1.StatefulSetUpdateStrategy": (_default_ordered_update,),
    "apps.v1.StatefulSetSpec": (_default_claim_templates,),
    "batch.v1.Job": (_default_job,),
    "networking.v1.NetworkPolicySpec": (_default_policy_types,),
}
