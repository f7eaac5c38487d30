"""Keeps the default roles present, those of whoever serves this API too, and fills the gathering ones.

Those have an `aggregationRule`, and hold the rules of the roles it selects.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.auth.authorizer import CLUSTER_ROLES
from matrixcontainer.kubeapi.auth.bootstrap_policy import RBAC, bootstrap_bindings, bootstrap_roles, programs
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.schema.structural import copy_json
from matrixcontainer.kubeapi.storage.objects import Change

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.server import KubeApi


def options() -> Options:
    return Options(user="system:apiserver", field_manager="clusterrole-aggregation-controller", from_controller=True)


class ClusterRoles:
    def __init__(self, api: "KubeApi") -> None:
        self.api = api
        self._wake = asyncio.Event()

    def notice(self, change: Change) -> None:
        if change.record.key[0] == CLUSTER_ROLES:
            self._wake.set()

    async def run(self) -> None:
        await self._ensure_programs()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.gather()

    async def ensure_bootstrap(self) -> None:
        roles = [self._ensure("clusterroles", body) for body in bootstrap_roles()]
        bindings = [self._ensure("clusterrolebindings", body) for body in bootstrap_bindings()]
        also = [self._ensure(f"{body['kind'].lower()}s", body) for body in self.api.extra_bindings]
        await asyncio.gather(*roles, *bindings, *also)
        await self.gather()

    async def _ensure_programs(self) -> None:
        """What a control plane's own programs may do; nobody waits for it at the start."""
        roles, bindings = programs()
        for plural, bodies in (("clusterroles", roles), ("clusterrolebindings", bindings)):
            await asyncio.gather(*(self._ensure(plural, body) for body in bodies))

    def _resource(self, plural: str) -> Resource:
        found = self.api.registry.find(RBAC, "v1", plural)
        assert found is not None
        return found

    async def _ensure(self, plural: str, body: dict[str, Any]) -> None:
        """Create what is missing; put back what a default lost, unless its owner has turned that off."""
        resource = self._resource(plural)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        record = self.api.store.latest((resource.storage, namespace, name))
        if record is None:
            await self.api.verbs.create(resource, namespace, copy_json(body), options())
            return
        found = record.obj
        updates = (found["metadata"].get("annotations") or {}).get(f"{RBAC}/autoupdate", "true")
        parts = ("subjects", "rules")
        lost = {part: [item for item in body.get(part) or [] if item not in (found.get(part) or [])] for part in parts}
        if updates == "true" and any(lost.values()):

            def change(obj: dict[str, Any]) -> dict[str, Any]:
                for part, items in lost.items():
                    if items:
                        obj[part] = [*(obj.get(part) or []), *items]
                return obj

            await self.api.verbs.modify(resource, namespace, name, change, options())

    async def gather(self) -> None:
        """Fill every gathering role; again until nothing moves, because they gather from one another."""
        resource = self._resource("clusterroles")
        for _ in range(8):
            roles = [record.obj for record in self.api.store.objects_of(CLUSTER_ROLES)]
            moved = False
            for role in roles:
                if "aggregationRule" not in role:
                    continue
                rules = _gathered(role, roles)
                if rules != (role.get("rules") or []):
                    moved = True
                    await self._fill(resource, role["metadata"]["name"], rules)
            if not moved:
                return

    async def _fill(self, resource: Resource, name: str, rules: list[dict[str, Any]]) -> None:
        def change(obj: dict[str, Any]) -> dict[str, Any]:
            obj["rules"] = rules
            return obj

        try:
            await self.api.verbs.modify(resource, "", name, change, options())
        except ApiError as failure:
            if failure.code not in (404, 409):
                raise


def _gathered(role: dict[str, Any], roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for selector in (role["aggregationRule"] or {}).get("clusterRoleSelectors") or []:
        for other in roles:
            if other is role or not matches_label_selector(selector, other["metadata"].get("labels") or {}):
                continue
            found += [rule for rule in other.get("rules") or [] if rule not in found]
    return found
