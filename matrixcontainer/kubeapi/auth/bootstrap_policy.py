"""The cluster roles and bindings every cluster starts with, as data: who may discover, administer, edit and view.

`admin`, `edit` and `view` hold no rules of their own: they gather those of all roles that carry their label, so that
whoever installs a CRD can add to them. Names and reach follow the public documentation ("Default roles and role
bindings"); kinds this server does not serve are left out.
"""

import json
from pathlib import Path
from typing import Any

RBAC = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
AUTOUPDATE = {"annotations": {f"{RBAC}/autoupdate": "true"}, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}


def rule(verbs: tuple[str, ...], group: str, resources: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


def paths(verbs: tuple[str, ...], urls: str) -> dict[str, Any]:
    return {"nonResourceURLs": urls.split(), "verbs": list(verbs)}


SCALED = "deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"
EDITED = (
    ("", "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
         "serviceaccounts services services/proxy pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("apps", f"{SCALED} daemonsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs jobs"),
    ("coordination.k8s.io", "leases"),
    ("networking.k8s.io", "ingresses networkpolicies"),
    ("policy", "poddisruptionbudgets"),
)  # fmt: skip
VIEWED = (
    ("", "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
         "replicationcontrollers/scale serviceaccounts services services/status bindings events limitranges "
         "namespaces namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas "
         "resourcequotas/status"),
    ("apps", f"{SCALED} daemonsets daemonsets/status deployments/status replicasets/status statefulsets/status "
             "controllerrevisions"),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    ("batch", "cronjobs cronjobs/status jobs jobs/status"),
    ("discovery.k8s.io", "endpointslices"),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status"),
)  # fmt: skip

DISCOVERY = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
PUBLIC = "/healthz /livez /readyz /version /version/"

RULES: dict[str, list[dict[str, Any]]] = {
    "cluster-admin": [rule(("*",), "*", "*"), paths(("*",), "*")],
    "system:discovery": [paths(("get",), DISCOVERY)],
    "system:public-info-viewer": [paths(("get",), PUBLIC)],
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
        *(rule(READ + WRITE, group, resources) for group, resources in EDITED),
        rule(("impersonate",), "", "serviceaccounts"),
        rule(("create",), "", "pods/eviction serviceaccounts/token"),
    ],
    "system:aggregate-to-view": [rule(READ, group, resources) for group, resources in VIEWED],
    "system:aggregated-metrics-reader": [rule(READ, "metrics.k8s.io", "pods nodes")],
}  # fmt: skip

FEEDS = {
    "system:aggregate-to-admin": "admin",
    "system:aggregate-to-edit": "edit",
    "system:aggregate-to-view": "view",
    "edit": "admin",
    "view": "edit",
    "system:aggregated-metrics-reader": "view",
}

BOUND = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
}


def _meta(name: str) -> dict[str, Any]:
    labels = dict(AUTOUPDATE["labels"])
    if name in FEEDS:
        labels[f"{RBAC}/aggregate-to-{FEEDS[name]}"] = "true"
    return {"name": name, "annotations": dict(AUTOUPDATE["annotations"]), "labels": labels}


def programs() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(roles, bindings) of a control plane's own programs: controller manager, its controllers, scheduler, nodes."""
    reported = json.loads((Path(__file__).with_name("cluster_roles.json")).read_bytes())
    roles = [{"metadata": _meta(name), "rules": rules} for name, rules in reported["roles"].items()]
    bindings = [
        {
            "metadata": _meta(name),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
        for name, (role, subjects) in reported["bindings"].items()
    ]
    return roles, bindings


def bootstrap_roles() -> list[dict[str, Any]]:
    """Every default ClusterRole; the gathering ones without rules yet."""
    found: list[dict[str, Any]] = [{"metadata": _meta(name), "rules": rules} for name, rules in RULES.items()]
    for name in ("admin", "edit", "view"):
        label = {f"{RBAC}/aggregate-to-{name}": "true"}
        gathers = {"clusterRoleSelectors": [{"matchLabels": label}]}
        found.append({"metadata": _meta(name), "aggregationRule": gathers, "rules": []})
    return found


def bootstrap_bindings() -> list[dict[str, Any]]:
    return [
        {
            "metadata": _meta(name),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
        }
        for name, groups in BOUND.items()
    ]
