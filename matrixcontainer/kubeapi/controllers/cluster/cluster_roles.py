"""Restores the default roles and bindings, and those added by the embedding server, and fills aggregated roles.

Aggregated roles have an `aggregationRule` and get the rules of all roles that it selects.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from matrixcontainer.kubeapi.auth.authorizer import CLUSTER_ROLES
from matrixcontainer.kubeapi.auth.bootstrap_policy import RBAC, bootstrap_bindings, bootstrap_roles
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta.errors import ignoring
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.storage.objects import Change

ALL: Name = ("", "")

AGGREGATION_DEPTH_MAX = 8
"""Maximum depth of roles that aggregate aggregated roles."""


def controller_options() -> Options:
    return Options(user="system:apiserver", field_manager="clusterrole-aggregation-controller", from_controller=True)


class ClusterRoleController(Controller):
    """All roles share one key, as aggregated roles depend on one another."""

    storage = CLUSTER_ROLES

    def __init__(self, core: Core, extra: list[dict[str, Any]]) -> None:
        super().__init__(core)
        self._extra_objects = extra  # further roles and bindings to restore

    def load(self) -> None:
        """Do nothing: `ensure_bootstrap` handles all roles."""

    def on_change(self, change: Change) -> None:
        if change.record.key[0] == CLUSTER_ROLES:
            self.enqueue(ALL)

    async def reconcile(self, key: Name) -> float | None:
        await self.aggregate()
        return None

    async def ensure_bootstrap(self) -> None:
        defaults = {role["metadata"]["name"]: role for role in bootstrap_roles()}
        for name, rules in aggregate_rules([defaults[name] for name in sorted(defaults)]).items():
            defaults[name]["rules"] = rules
        roles = [self._ensure("clusterroles", body) for body in defaults.values()]
        bindings = [self._ensure("clusterrolebindings", body) for body in bootstrap_bindings()]
        extra = [self._ensure(f"{body['kind'].lower()}s", body) for body in self._extra_objects]
        await asyncio.gather(*roles, *bindings, *extra)
        await self.aggregate()

    async def _ensure(self, plural: str, body: dict[str, Any]) -> None:
        """Create a missing role or binding; restore removed parts of an existing one unless autoupdate is off."""
        resource = self.core.builtin(RBAC, plural)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        record = self.core.store.latest((resource.storage, namespace, name))
        if record is None:
            await self.core.verbs.create(resource, namespace, copy_json(body), controller_options())
            return
        current = record.obj
        autoupdate = (current["metadata"].get("annotations") or {}).get(f"{RBAC}/autoupdate", "true")
        parts = (
            ("subjects", "rules") if "aggregationRule" not in body else ()
        )  # `aggregate` sets the rules of aggregated ones
        missing = {
            part: [item for item in body.get(part) or [] if item not in (current.get(part) or [])] for part in parts
        }
        if autoupdate == "true" and any(missing.values()):

            def change(obj: dict[str, Any]) -> dict[str, Any]:
                for part, items in missing.items():
                    if items:
                        obj[part] = [*(obj.get(part) or []), *items]
                return obj

            await self.core.verbs.modify(resource, namespace, name, change, controller_options())

    async def aggregate(self) -> None:
        """Write the rules of every aggregated role."""
        roles = {record.obj["metadata"]["name"]: record.obj for record in self.core.store.objects_of(CLUSTER_ROLES)}
        for name, rules in aggregate_rules([*roles.values()]).items():
            if rules != (roles[name].get("rules") or []):
                await self._write_rules(self.resource, name, rules)

    async def _write_rules(self, resource: Resource, name: str, rules: list[dict[str, Any]]) -> None:
        def change(obj: dict[str, Any]) -> dict[str, Any]:
            obj["rules"] = rules
            return obj

        with ignoring(404, 409):
            await self.core.verbs.modify(resource, "", name, change, controller_options())


def aggregate_rules(roles: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rules of each aggregated role, by name, iterated until nothing changes, as they may aggregate one another."""
    rules = {role["metadata"]["name"]: role.get("rules") or [] for role in roles}
    sources_by_role = {
        role["metadata"]["name"]: _source_names(role, roles) for role in roles if "aggregationRule" in role
    }
    for _ in range(AGGREGATION_DEPTH_MAX):
        previous = dict(rules)
        for name, sources in sources_by_role.items():  # sequentially, so that roles that aggregate each other converge
            rules[name] = _merge_rules(rules[source] for source in sources)
        if rules == previous:
            break
    return {name: rules[name] for name in sources_by_role}


def _source_names(role: dict[str, Any], roles: list[dict[str, Any]]) -> list[str]:
    return [
        other["metadata"]["name"]
        for selector in (role["aggregationRule"] or {}).get("clusterRoleSelectors") or []
        for other in roles
        if other is not role and matches_label_selector(selector, other["metadata"].get("labels") or {})
    ]


def _merge_rules(lists: Iterable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Concatenate the rules without duplicates."""
    merged: list[dict[str, Any]] = []
    for rules in lists:
        merged += [rule for rule in rules if rule not in merged]
    return merged
