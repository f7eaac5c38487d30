"""Quotas: counted at admission, so that nobody gets past a full one, and counted anew when something is gone.

A create (and an update of what can grow) adds to `status.used` of each quota it concerns before it is let through;
the write of the status is what several at once compete for. What was added for objects that then did not come to be
is put right by counting anew, which happens when a quota or anything it counts changes or goes.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.admission import quota_evaluator
from matrixcontainer.kubeapi.admission.quota_evaluator import Amounts, Obj
from matrixcontainer.kubeapi.admission.resource_quota import GROWING, ON_THEIR_WAY_S, QUOTAS
from matrixcontainer.kubeapi.controllers.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.storage.objects import Change

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.controllers.manager import Workloads

PATIENCE = 20  # naps


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
            self.enqueue_after(record.key[1:], self.nap_s)

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
        current = record.obj.get("status") or {}
        if status["hard"] == (current.get("hard") or {}) and status["used"] == (current.get("used") or {}):
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
        total: Amounts = dict.fromkeys(hard, quota_evaluator.ZERO)
        for resource in self.api.registry.preferred():
            if not resource.namespaced or not quota_evaluator.concerned(resource.storage, list(hard)):
                continue
            records = self.api.store.objects_of(resource.storage, namespace)
            for record in records:
                if quota_evaluator.in_scope(quota, resource.storage, record.obj):
                    total = quota_evaluator.add(total, quota_evaluator.usage(resource.storage, record.obj, now))
            total = quota_evaluator.add(total, self._coming(resource.storage, namespace, now))
        return {"hard": dict(hard), "used": quota_evaluator.spelled_out({key: total[key] for key in hard})}

    def _coming(self, storage: str, namespace: str, now: float) -> Amounts:
        total: Amounts = {}
        for key, (since, taken) in list(self.api.quotas.coming.items()):
            if now - since > ON_THEIR_WAY_S or self.api.store.get(key) is not None:
                del self.api.quotas.coming[key]
            elif key[:2] == (storage, namespace):
                total = quota_evaluator.add(total, taken)
        return total
