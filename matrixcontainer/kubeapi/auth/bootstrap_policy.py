"""The default ClusterRoles and ClusterRoleBindings, as data.

`admin`, `edit` and `view` have no rules of their own: they aggregate those of all roles with their label, so that
whoever installs a CRD can extend them. Names and permissions follow the public documentation ("Default roles and role
bindings"); kinds that this server does not serve are left out.
"""

from typing import Any

RBAC = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
AUTOUPDATE = {"annotations": {f"{RBAC}/autoupdate": "true"}, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}


def rule(verbs: tuple[str, ...], group: str, resources: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


def paths(verbs: tuple[str, ...], urls: str) -> dict[str, Any]:
    return {"nonResourceURLs": urls.split(), "verbs": list(verbs)}


SCALABLE = "deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"
EDITABLE = (
    ("", "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
         "serviceaccounts services services/proxy pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("apps", f"{SCALABLE} daemonsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs jobs"),
    ("coordination.k8s.io", "leases"),
    ("networking.k8s.io", "ingresses networkpolicies"),
    ("policy", "poddisruptionbudgets"),
)  # fmt: skip
VIEWABLE = (
    ("", "configmaps persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
         "replicationcontrollers/scale serviceaccounts services services/status bindings events namespaces "
         "namespaces/status pods/log pods/status replicationcontrollers/status"),
    ("apps", f"{SCALABLE} daemonsets daemonsets/status deployments/status replicasets/status statefulsets/status"),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    ("batch", "cronjobs cronjobs/status jobs jobs/status"),
    ("discovery.k8s.io", "endpointslices"),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status"),
)  # fmt: skip

DISCOVERY_PATHS = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
PUBLIC_PATHS = "/healthz /livez /readyz /version /version/"

ROLE_RULES: dict[str, list[dict[str, Any]]] = {
    "cluster-admin": [rule(("*",), "*", "*"), paths(("*",), "*")],
    "system:discovery": [paths(("get",), DISCOVERY_PATHS)],
    "system:public-info-viewer": [paths(("get",), PUBLIC_PATHS)],
    "system:monitoring": [paths(("get",), "/healthz /healthz/* /livez /livez/* /metrics /readyz /readyz/*")],
    "system:basic-user": [
        rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
    ],
    "system:auth-delegator": [
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
    "system:aggregate-to-admin": [
        rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews"),
        rule(READ + WRITE, RBAC, "rolebindings roles"),
    ],
    "system:aggregate-to-edit": [
        *(rule(READ + WRITE, group, resources) for group, resources in EDITABLE),
        rule(("impersonate",), "", "serviceaccounts"),
        rule(("create",), "", "pods/eviction serviceaccounts/token"),
    ],
    "system:aggregate-to-view": [rule(READ, group, resources) for group, resources in VIEWABLE],
    "system:aggregated-metrics-reader": [rule(READ, "metrics.k8s.io", "pods nodes")],
    "system:kube-controller-manager": [rule(("*",), "*", "*"), paths(("get",), DISCOVERY_PATHS)],
    "system:kube-scheduler": [
        rule(READ, "", "namespaces nodes persistentvolumeclaims persistentvolumes pods"),
        rule(READ, "", "replicationcontrollers services"),
        rule(("delete",), "", "pods"),
        rule(("create",), "", "bindings pods/binding"),
        rule(("patch", "update"), "", "persistentvolumeclaims persistentvolumes pods/status"),
        rule(("create", "patch", "update"), "", "events"),
        rule(("create", "patch", "update"), "events.k8s.io", "events"),
        rule(READ, "apps", "replicasets statefulsets"),
        rule(READ, "policy", "poddisruptionbudgets"),
        rule(READ, "storage.k8s.io", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments"),
        rule((*READ, "create", "update"), "coordination.k8s.io", "leases"),
        rule(("create",), "authentication.k8s.io", "tokenreviews"),
        rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    ],
}  # fmt: skip

AGGREGATES_TO = {
    "system:aggregate-to-admin": "admin",
    "system:aggregate-to-edit": "edit",
    "system:aggregate-to-view": "view",
    "edit": "admin",
    "view": "edit",
    "system:aggregated-metrics-reader": "view",
}

DEFAULT_BINDINGS = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}

# Users of a real kube-controller-manager and kube-scheduler, in case they run against this API, and the service
# accounts of kube-controller-manager's controllers, which together need access to everything.
COMPONENT_USERS = {name: (name,) for name in ("system:kube-controller-manager", "system:kube-scheduler")}
CONTROLLER_ACCOUNTS = """
attachdetach-controller certificate-controller clusterrole-aggregation-controller cronjob-controller
daemon-set-controller deployment-controller disruption-controller endpoint-controller endpointslice-controller
endpointslicemirroring-controller ephemeral-volume-controller expand-controller generic-garbage-collector
horizontal-pod-autoscaler job-controller legacy-service-account-token-cleaner namespace-controller node-controller
persistent-volume-binder pod-garbage-collector pv-protection-controller pvc-protection-controller
replicaset-controller replication-controller resourcequota-controller root-ca-cert-publisher route-controller
selinux-warning-controller service-account-controller service-cidrs-controller service-controller
statefulset-controller ttl-after-finished-controller ttl-controller validatingadmissionpolicy-status-controller
"""


def _meta(name: str) -> dict[str, Any]:
    labels = dict(AUTOUPDATE["labels"])
    if name in AGGREGATES_TO:
        labels[f"{RBAC}/aggregate-to-{AGGREGATES_TO[name]}"] = "true"
    return {"name": name, "annotations": dict(AUTOUPDATE["annotations"]), "labels": labels}


def bootstrap_roles() -> list[dict[str, Any]]:
    """All default ClusterRoles; aggregated ones have no rules yet."""
    found: list[dict[str, Any]] = [{"metadata": _meta(name), "rules": rules} for name, rules in ROLE_RULES.items()]
    for name in ("admin", "edit", "view"):
        label = {f"{RBAC}/aggregate-to-{name}": "true"}
        gathers = {"clusterRoleSelectors": [{"matchLabels": label}]}
        found.append({"metadata": _meta(name), "aggregationRule": gathers, "rules": []})
    return found


def bootstrap_bindings() -> list[dict[str, Any]]:
    found = [
        _binding(name, [_subject("Group", group) for group in groups]) for name, groups in DEFAULT_BINDINGS.items()
    ]
    found += [_binding(name, [_subject("User", user) for user in users]) for name, users in COMPONENT_USERS.items()]
    found[-2]["subjects"] += [
        {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"} for name in CONTROLLER_ACCOUNTS.split()
    ]
    return found


def _binding(name: str, subjects: list[dict[str, Any]]) -> dict[str, Any]:
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    return {"metadata": _meta(name), "roleRef": ref, "subjects": subjects}


def _subject(kind: str, name: str) -> dict[str, Any]:
    return {"apiGroup": RBAC, "kind": kind, "name": name}
