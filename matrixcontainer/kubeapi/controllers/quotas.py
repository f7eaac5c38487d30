"""Quotas: counted at admission, so that nobody gets past a full one, and counted anew when something is gone.

A create (and an update of what can grow) adds to `status.used` of each quota it concerns before it is let through;
the write of the status is what several at once compete for. What was added for objects that then did not come to be
is put right by counting anew, which happens when a quota or anything it counts changes or goes.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.asked import Options
from matrixcontainer.kubeapi.builtin import quota_usage
from matrixcontainer.kubeapi.builtin.quota_usage import Amounts, Obj
from matrixcontainer.kubeapi.controllers.pod_facts import Name
from matrixcontainer.kubeapi.controllers.turns import Controller
from matrixcontainer.kubeapi.records import Change, Key
from matrixcontainer.kubeapi.resources import Resource

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.controllers.workloads import Workloads
    from matrixcontainer.kubeapi.server import KubeApi

QUOTAS = "resourcequotas"
GROWING = ("services", "persistentvolumeclaims")
ON_THEIR_WAY_S = 10.0
PATIENCE = 20  # naps


class QuotaAdmission:
    """The last to be asked about a write."""

    def __init__(self, api: "KubeApi") -> None:
        self.api = api
        self.coming: dict[Key, tuple[float, Amounts]] = {}  # counted, but not there yet: since when, how much

    async def judge(self, resource: Resource, verb: str, new: Obj | None, old: Obj | None, options: Options) -> None:
        if new is None or not resource.namespaced or options.subresource not in ("", "resize"):
            return
        storage, namespace = resource.storage, new["metadata"].get("namespace", "")
        grows = verb == "CREATE" or (verb == "UPDATE" and (storage in GROWING or options.subresource == "resize"))
        quotas = self.api.store.objects_of(QUOTAS, namespace) if grows else []
        if not quotas:
            return
        now = self.api.now()
        wanted = quota_usage.usage(storage, new, now)
        if old is not None:
            before = quota_usage.usage(storage, old, now)
            wanted = {key: (n - before.get(key, quota_usage.ZERO)[0], form) for key, (n, form) in wanted.items()}
        charged: list[tuple[str, Amounts]] = []
        for record in quotas:
            asked = self._asked(resource, record.obj, new, wanted)
            if asked:
                charged.append((record.key[2], asked))
        key = (storage, namespace, new["metadata"].get("name", ""))
        if charged and not options.dry_run and verb == "CREATE":
            self.coming[key] = (now, wanted)
        try:
            for name, asked in charged:
                await self._charge(resource, namespace, name, new, asked, options)
        except BaseException:
            self.coming.pop(key, None)
            raise
        finally:
            for name, _ in charged:  # what does not come to be after all is given back
                self.api.workloads.quotas.look_after((namespace, name), ON_THEIR_WAY_S)

    def _asked(self, resource: Resource, quota: Obj, obj: Obj, wanted: Amounts) -> Amounts:
        """What of the quota the object takes; raises ApiError 403 when it cannot be said."""
        status, name = quota.get("status") or {}, quota["metadata"]["name"]
        hard = list(status.get("hard") or {})
        concerned = quota_usage.concerned(resource.storage, hard)
        if not concerned or not quota_usage.in_scope(quota, resource.storage, obj):
            return {}
        if resource.storage == "pods" and (why := quota_usage.missing_amounts(concerned, obj["spec"])):
            raise self._refusal(resource, obj, f"failed quota: {name}: {why}")
        if any(key not in (status.get("used") or {}) for key in concerned):
            listed = ",".join(sorted(concerned))
            raise self._refusal(resource, obj, f"status unknown for quota: {name}, resources: {listed}")
        return {key: amount for key, amount in wanted.items() if key in concerned and amount[0] > 0}

    async def _charge(
        self, resource: Resource, namespace: str, name: str, obj: Obj, asked: Amounts, options: Options
    ) -> None:
        def change(quota: Obj) -> Obj:
            status = quota.setdefault("status", {})
            hard = quota_usage.amounts(status.get("hard"))
            used = quota_usage.amounts(status.get("used"))
            if why := quota_usage.exceeded(name, asked, used, hard):
                raise self._refusal(resource, obj, why)
            after = quota_usage.add(used, asked)
            status["used"] = quota_usage.spelled_out({key: after[key] for key in after if key in hard})
            return quota

        found = self.api.registry.by_storage(QUOTAS)
        assert found is not None
        own = Options(field_manager="kube-apiserver", from_controller=True, subresource="status")
        own.dry_run = options.dry_run
        try:
            await self.api.verbs.modify(found, namespace, name, change, own)
        except errors.ApiError as failure:
            if failure.code != 404:  # a quota that went meanwhile bounds nobody
                raise

    def _refusal(self, resource: Resource, obj: Obj, why: str) -> errors.ApiError:
        meta = obj["metadata"]
        return errors.forbidden(resource.plural, resource.group, meta.get("name") or meta.get("generateName", ""), why)


class QuotaCounter(Controller):
    """Keeps `status.hard` as wished and `status.used` as it is."""

    storage = QUOTAS
    account = "resourcequota-controller"
    nap_s = 0.05

    def __init__(self, workloads: "Workloads") -> None:
        super().__init__(workloads)
        self._waited: dict[Name, int] = {}

    def notice(self, change: Change) -> None:
        storage, namespace, name = change.record.key
        if storage == QUOTAS:
            self.look((namespace, name))

    def notice_any(self, change: Change) -> None:
        """Anything of a namespace with quotas: what is gone or has ended is given back."""
        storage, namespace, _ = change.record.key
        self.api.quotas.coming.pop(change.record.key, None)
        if not namespace or (storage == QUOTAS and change.type != "DELETED"):
            return
        freed = change.type == "DELETED" or storage in ("pods", *GROWING)
        for record in self.api.store.objects_of(QUOTAS, namespace) if freed else []:
            self.look_after(record.key[1:], self.nap_s)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            self._waited.pop(key, None)
            return None
        self._waited[key] = self._waited.get(key, 0) + 1
        if self._waited[key] < PATIENCE and self.is_busy(key[0]):
            return self.nap_s
        self._waited.pop(key, None)
        status = self.counted(record.obj)
        held = record.obj.get("status") or {}
        if status["hard"] == (held.get("hard") or {}) and status["used"] == (held.get("used") or {}):
            return None

        def change(obj: dict[str, Any]) -> dict[str, Any]:
            return obj | {"status": (obj.get("status") or {}) | self.counted(obj)}

        resource = self.api.registry.by_storage(QUOTAS)
        assert resource is not None
        await self.api.verbs.modify(resource, *key, change, self.options("status"))
        await asyncio.sleep(0)
        return None

    def is_busy(self, namespace: str) -> bool:
        """Whether something is charged that is not there yet: counting now could count it twice or not at all."""
        self._coming("", namespace, self.api.now())
        return any(key[1] == namespace for key in self.api.quotas.coming)

    def counted(self, quota: Obj) -> dict[str, dict[str, str]]:
        """The status of a quota by what there is, and what is on its way."""
        namespace, now = quota["metadata"]["namespace"], self.api.now()
        hard = (quota.get("spec") or {}).get("hard") or {}
        total: Amounts = dict.fromkeys(hard, quota_usage.ZERO)
        for resource in self.api.registry.preferred():
            if not resource.namespaced or not quota_usage.concerned(resource.storage, list(hard)):
                continue
            records = self.api.store.objects_of(resource.storage, namespace)
            for record in records:
                if quota_usage.in_scope(quota, resource.storage, record.obj):
                    total = quota_usage.add(total, quota_usage.usage(resource.storage, record.obj, now))
            total = quota_usage.add(total, self._coming(resource.storage, namespace, now))
        return {"hard": dict(hard), "used": quota_usage.spelled_out({key: total[key] for key in hard})}

    def _coming(self, storage: str, namespace: str, now: float) -> Amounts:
        total: Amounts = {}
        for key, (since, taken) in list(self.api.quotas.coming.items()):
            if now - since > ON_THEIR_WAY_S or self.api.store.get(key) is not None:
                del self.api.quotas.coming[key]
            elif key[:2] == (storage, namespace):
                total = quota_usage.add(total, taken)
        return total
