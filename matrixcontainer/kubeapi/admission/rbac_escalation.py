"""Privilege escalation prevention: users cannot grant permissions that they do not have.

Writing a role requires every permission in it, or the verb `escalate` on it; writing a binding requires every
permission of the role that it refers to, or the verb `bind` on that role. The server's own controllers are exempt.
Contract: public documentation "Privilege escalation prevention and bootstrapping".
"""

from typing import Any

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.auth.authorizer import GROUP, MASTERS, Attributes, Authorizer, uncovered_rules
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource


class RbacEscalation:
    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    async def __call__(
        self, resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
    ) -> None:
        if resource.group != GROUP or new is None or options.caller is None or MASTERS in options.caller.groups:
            return
        if resource.plural in ("roles", "clusterroles"):
            if old is None or new.get("rules") != old.get("rules") or "aggregationRule" in new:
                self._check_role(resource, new, options.caller)
        elif old is None or new.get("subjects") != old.get("subjects") or new.get("roleRef") != old.get("roleRef"):
            self._check_binding(resource, new, options.caller)

    def _check_role(self, resource: Resource, role: dict[str, Any], user: User) -> None:
        meta = role["metadata"]
        name, namespace = meta.get("name", ""), meta.get("namespace", "")
        if self.authorizer.allows(user, Attributes("escalate", GROUP, resource.plural, namespace=namespace, name=name)):
            return
        if "aggregationRule" in role and not self.authorizer.allows(user, Attributes("*", "*", "*")):
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise errors.forbidden(resource.plural, GROUP, name, text)
        self._require_covered(resource, name, namespace, role.get("rules") or [], user)

    def _check_binding(self, resource: Resource, binding: dict[str, Any], user: User) -> None:
        meta, ref = binding["metadata"], binding.get("roleRef") or {}
        name, namespace = meta.get("name", ""), meta.get("namespace", "")
        plural = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
        if self.authorizer.allows(
            user, Attributes("bind", GROUP, plural, namespace=namespace, name=ref.get("name", ""))
        ):
            return
        try:
            rules = self.authorizer.resolve_role_ref(ref, namespace)
        except LookupError:
            raise errors.not_found(plural, GROUP, ref.get("name", "")) from None
        self._require_covered(resource, name, namespace, rules, user)

    def _require_covered(
        self, resource: Resource, name: str, namespace: str, rules: list[dict[str, Any]], user: User
    ) -> None:
        missing = uncovered_rules(self.authorizer.bound_rules(user).rules(namespace), rules)
        if missing:
            groups = " ".join(errors.format_value(group) for group in user.groups)
            listed = "\n".join(missing)
            raise errors.forbidden(
                resource.plural,
                GROUP,
                name,
                f"user {errors.format_value(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions "
                f"not currently held:\n{listed}",
            )
