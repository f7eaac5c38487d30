"""Quotas: counted at admission, so that nobody gets past a full one, and counted anew when something is gone.

A create (and an update of what can grow) adds to `status.used` of each quota it concerns before it is let through;
the write of the status is what several at once compete for. What was added for objects that then did not come to be
is put right by counting anew, which happens when a quota or anything it counts changes or goes.
"""

import asyncio

from matrixcontainer.kubeapi.admission import quota_evaluator
from matrixcontainer.kubeapi.admission.quota_evaluator import Amounts, Obj
from matrixcontainer.kubeapi.admission.resource_quota import GROWING, PENDING_S, QUOTAS, QuotaAdmission
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change

DEFERRALS_MAX = 20


class ResourceQuotas(Controller):
    """Keeps `status.hard` as the spec has it and `status.used` as it is."""

    storage = QUOTAS
    account = "resourcequota-controller"
    delay_s = 0.05

    def __init__(self, core: Core, admission: QuotaAdmission) -> None:
        super().__init__(core)
        self._admission = admission
        self._waited: dict[Name, int] = {}

    def on_any_change(self, change: Change) -> None:
        """Anything of a namespace with quotas: what is gone or has ended is given back."""
        storage, namespace, _ = change.record.key
        self._admission.pending.pop(change.record.key, None)
        if not namespace or (storage == QUOTAS and change.type != "DELETED"):
            return
        freed = change.type == "DELETED" or storage in ("pods", *GROWING)
        for record in self.core.store.objects_of(QUOTAS, namespace) if freed else []:
            self.enqueue_after(record.key[1:], self.delay_s)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            self._waited.pop(key, None)
            return None
        self._waited[key] = self._waited.get(key, 0) + 1
        if self._waited[key] < DEFERRALS_MAX and self.is_busy(key[0]):
            return self.delay_s
        self._waited.pop(key, None)
        status = self.counted(record.obj)
        current = record.obj.get("status") or {}
        if status["hard"] == (current.get("hard") or {}) and status["used"] == (current.get("used") or {}):
            return None

        def change(obj: Obj) -> Obj:
            return obj | {"status": (obj.get("status") or {}) | self.counted(obj)}

        await self.modify(key, change, "status")
        await asyncio.sleep(0)
        return None

    def is_busy(self, namespace: str) -> bool:
        """Whether something is charged that is not there yet: counting now could count it twice or not at all."""
        self._pending("", namespace, self.core.now())
        return any(key[1] == namespace for key in self._admission.pending)

    def counted(self, quota: Obj) -> dict[str, dict[str, str]]:
        """The status of a quota by what there is, and what is on its way."""
        namespace, now = quota["metadata"]["namespace"], self.core.now()
        hard = (quota.get("spec") or {}).get("hard") or {}
        total: Amounts = dict.fromkeys(hard, quota_evaluator.ZERO)
        for resource in self.core.registry.preferred():
            if not resource.namespaced or not quota_evaluator.concerned(resource.storage, list(hard)):
                continue
            records = self.core.store.objects_of(resource.storage, namespace)
            for record in records:
                if quota_evaluator.in_scope(quota, resource.storage, record.obj):
                    total = quota_evaluator.add(total, quota_evaluator.usage(resource.storage, record.obj, now))
            total = quota_evaluator.add(total, self._pending(resource.storage, namespace, now))
        return {"hard": dict(hard), "used": quota_evaluator.spelled_out({key: total[key] for key in hard})}

    def _pending(self, storage: str, namespace: str, now: float) -> Amounts:
        total: Amounts = {}
        for key, (since, taken) in list(self._admission.pending.items()):
            if now - since > PENDING_S or self.core.store.get(key) is not None:
                del self._admission.pending[key]
            elif key[:2] == (storage, namespace):
                total = quota_evaluator.add(total, taken)
        return total
