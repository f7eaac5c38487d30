"""Roles and bindings as objects: names of their own sort, groups filled in, rules and subjects that say enough."""

from typing import Any

from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import is_path_segment

RBAC = "rbac.authorization.k8s.io"
SUBJECT_KINDS = ["ServiceAccount", "User", "Group"]


class RbacStrategy(BuiltinStrategy):
    check_name = staticmethod(is_path_segment)
    has_generation = False
    rechecks_metadata = True
    create_on_update = True


class RoleStrategy(RbacStrategy):
    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found: list[Cause] = []
        for index, rule in enumerate(obj.get("rules") or []):
            found += _check_rule(rule, f"rules[{index}]", "namespace" in obj["metadata"])
        return found


def _check_rule(rule: dict[str, Any], path: str, namespaced: bool) -> list[Cause]:
    if not rule.get("verbs"):
        return [errors.required(f"{path}.verbs", "verbs must contain at least one value")]
    if urls := rule.get("nonResourceURLs"):
        found = []
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            found.append(errors.invalid(f"{path}.nonResourceURLs", urls, text))
        if any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            found.append(errors.invalid(f"{path}.nonResourceURLs", urls, text))
        return found
    words = (("apiGroups", "api group"), ("resources", "resource"))
    return [
        errors.required(f"{path}.{key}", f"resource rules must supply at least one {word}")
        for key, word in words
        if not rule.get(key)
    ]


class BindingStrategy(RbacStrategy):
    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        ref = obj.get("roleRef")
        if ref is not None and not ref.get("apiGroup"):
            ref["apiGroup"] = RBAC
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = RBAC

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        ref = obj.get("roleRef") or {}
        found: list[Cause] = []
        kinds = ["Role", "ClusterRole"] if "namespace" in obj["metadata"] else ["ClusterRole"]
        if ref.get("apiGroup", RBAC) != RBAC:
            found.append(errors.not_supported("roleRef.apiGroup", ref["apiGroup"], [RBAC]))
        if ref.get("kind") not in kinds:
            found.append(errors.not_supported("roleRef.kind", ref.get("kind", ""), kinds))
        if not ref.get("name"):
            found.append(errors.required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or []):
            found += _check_subject(subject, f"subjects[{index}]")
        if old is not None and old.get("roleRef") != ref:
            found.append(errors.invalid("roleRef", ref, "cannot change roleRef"))
        return found


def _check_subject(subject: dict[str, Any], path: str) -> list[Cause]:
    found = [] if subject.get("name") else [errors.required(f"{path}.name")]
    kind = subject.get("kind", "")
    if kind not in SUBJECT_KINDS:
        return [*found, errors.not_supported(f"{path}.kind", kind, SUBJECT_KINDS)]
    group = subject.get("apiGroup", "")
    wanted = "" if kind == "ServiceAccount" else RBAC
    if group != wanted:
        found.append(errors.not_supported(f"{path}.apiGroup", group, [wanted]))
    if kind == "ServiceAccount" and not subject.get("namespace"):
        found.append(errors.required(f"{path}.namespace"))
    return found
