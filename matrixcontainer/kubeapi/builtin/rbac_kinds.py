"""Strategy and validation of RBAC roles and bindings."""

from collections.abc import Iterator
from typing import Any

from matrixcontainer.kubeapi.builtin.checks import Obj, enum, required, rules
from matrixcontainer.kubeapi.builtin.strategy import BuiltinStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause
from matrixcontainer.kubeapi.meta.names import path_segment_error

RBAC = "rbac.authorization.k8s.io"
SUBJECT_KINDS = ["ServiceAccount", "User", "Group"]


class RbacStrategy(BuiltinStrategy):
    """Strategy of all four kinds."""

    check_name = staticmethod(path_segment_error)
    has_generation = False
    validates_metadata_twice = True
    create_on_update = True


class BindingStrategy(RbacStrategy):
    def default(self, obj: dict[str, Any]) -> None:
        super().default(obj)
        named = [one for one in obj.get("subjects") or [] if one.get("kind") in ("User", "Group")]
        for one in (*named, obj.get("roleRef")):
            if one is not None and not one.get("apiGroup"):
                one["apiGroup"] = RBAC

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        found = super().validate(obj, old)
        if old is not None and old.get("roleRef") != obj.get("roleRef"):
            found.append(errors.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef"))
        return found


def validate_policy_rule(rule: Obj, path: str) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield errors.required(f"{path}.verbs", "verbs must contain at least one value")
    elif urls := rule.get("nonResourceURLs"):
        if any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield errors.invalid(f"{path}.nonResourceURLs", urls, message)
    else:
        for key, word in (("apiGroups", "api group"), ("resources", "resource")):
            if not rule.get(key):
                yield errors.required(f"{path}.{key}", f"resource rules must supply at least one {word}")


def validate_namespaced_rules(role: Obj, path: str) -> Iterator[Cause]:
    for index, rule in enumerate(role.get("rules") or []):
        if urls := rule.get("nonResourceURLs"):
            message = "namespaced rules cannot apply to non-resource URLs"
            yield errors.invalid(f"rules[{index}].nonResourceURLs", urls, message)


def validate_subject(value: Obj, path: str) -> Iterator[Cause]:
    kind, group = value.get("kind", ""), value.get("apiGroup", "")
    wanted = "" if kind == "ServiceAccount" else RBAC
    if not value.get("name"):
        yield errors.required(f"{path}.name")
    if kind not in SUBJECT_KINDS:
        yield errors.not_supported(f"{path}.kind", kind, SUBJECT_KINDS)
    elif group != wanted:
        yield errors.not_supported(f"{path}.apiGroup", group, [wanted])
    elif kind == "ServiceAccount" and not value.get("namespace"):
        yield errors.required(f"{path}.namespace")


def role_ref_rule(*kinds: str) -> Any:
    def rule(binding: Obj, path: str) -> Iterator[Cause]:
        specified = (binding.get("roleRef") or {}).get("kind", "")
        if specified not in kinds:
            yield errors.not_supported("roleRef.kind", specified, list(kinds))

    return rule


rules("rbac.v1.Role", validate_namespaced_rules)
rules("rbac.v1.PolicyRule", validate_policy_rule)
rules("rbac.v1.RoleBinding", role_ref_rule("Role", "ClusterRole"))
rules("rbac.v1.ClusterRoleBinding", role_ref_rule("ClusterRole"))
rules("rbac.v1.RoleRef", enum("apiGroup", RBAC), required("name"))
rules("rbac.v1.Subject", validate_subject)
