"""RBAC rules of the operator, the least privileges that it needs on a Kubernetes API, and of its users.

Each rule covers what matrixcontainer does with that kind; a test derives the required permissions from the code and
checks these rules and the chart's against them. The embedded API creates the roles itself (`roles_for`); in a cluster
the chart does.
"""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]
GROUP = "cloudmatrix.io"
RBAC = "rbac.authorization.k8s.io"
ROLE = "cloudmatrix-operator"


def rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs} | ({"resourceNames": names} if names else {})


SPEC_KINDS = [
    "cloudmatrixinstances",
    "cloudmatrixinfers",
    "scalingpolicies",
    "recoverypolicies",
    "disruptionbudgets",
    "matrixfaults",
    "matrixfaultscenarios",
]
MIRRORS = ["supernodes", "networkslices"]

CLUSTER_RULES = [
    rule("apiextensions.k8s.io", ["customresourcedefinitions"], ["list", "watch"]),
    rule(
        "apiextensions.k8s.io",
        ["customresourcedefinitions"],
        ["get", "create", "patch"],
        [f"{plural}.{GROUP}" for plural in (*SPEC_KINDS, *MIRRORS)],
    ),
    rule(GROUP, SPEC_KINDS, ["get", "list", "watch", "patch"]),
    rule(GROUP, [f"{each}/status" for each in (*SPEC_KINDS, *MIRRORS)], ["patch"]),
    rule(GROUP, ["cloudmatrixinfers/finalizers"], ["update"]),
    rule(GROUP, MIRRORS, ["get", "list", "watch", "create", "patch", "delete"]),
    rule("", ["nodes"], ["get", "list", "watch", "create", "patch", "delete"]),
    rule("", ["nodes/status", "pods/status"], ["patch"]),
    rule("", ["pods"], ["list", "watch", "create", "delete"]),
    rule("", ["pods/binding", "events"], ["create"]),
    rule("autoscaling", ["horizontalpodautoscalers"], ["list"]),
    *(rule(group, ["podgroups"], ["list"]) for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")),
]
LEADER_RULES = [
    rule("coordination.k8s.io", ["leases"], ["create"]),
    rule("coordination.k8s.io", ["leases"], ["get", "patch"], ["cloudmatrix-operator"]),
]
NODE_LEASE_RULES = [rule("coordination.k8s.io", ["leases"], ["create", "patch"])]

USER_KINDS = ["cloudmatrixinstances", "cloudmatrixinfers", "scalingpolicies", "recoverypolicies"]
SCALE = "cloudmatrixinstances/scale"
READ, WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]
USER_RULES = {
    "view": [
        rule(GROUP, [*USER_KINDS, *(f"{each}/status" for each in USER_KINDS), SCALE], READ),
        rule(GROUP, ["supernodes", "supernodes/status"], READ),
    ],
    "edit": [rule(GROUP, [*USER_KINDS, SCALE], WRITE)],
}
"""What the cluster's roles of these names, and those above them, give users: the kinds of their namespaces, and reading
supernodes if they are bound in the whole cluster. Faults and budgets are for administrators."""
AGGREGATE_TO = {"view": ("view", "edit", "admin"), "edit": ("edit", "admin")}


def user_roles() -> list[dict[str, Any]]:
    """The roles that the cluster's `view`, `edit` and `admin` aggregate, as objects to create."""
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": f"cloudmatrix-{name}",
                "labels": {f"{RBAC}/aggregate-to-{above}": "true" for above in AGGREGATE_TO[name]},
            },
            "rules": rules,
        }
        for name, rules in USER_RULES.items()
    ]


def roles_for(user: str, lease_namespace: str = "kube-system") -> list[dict[str, Any]]:
    """The roles and bindings that `user` needs to run the operator, as objects to create."""
    subject = {"apiGroup": RBAC, "kind": "User", "name": user}
    found = []
    for namespace, rules in (
        ("", CLUSTER_RULES),
        (lease_namespace, LEADER_RULES),
        ("kube-node-lease", NODE_LEASE_RULES),
    ):
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": ROLE} | ({"namespace": namespace} if namespace else {})
        head: dict[str, Any] = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
        reference = {"apiGroup": RBAC, "kind": kind, "name": ROLE}
        found.append(head | {"kind": kind, "rules": rules})
        found.append(head | {"kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]})
    return found
