"""Charges quotas before a write: a create adds to `status.used` of each quota it concerns, or is refused.

The write of the status is what several at once compete for. What was charged for objects that then did not come to be
is given back by the controller, which counts anew.
"""

from collections.abc import Callable

from matrixcontainer.kubeapi.admission import quota_evaluator
from matrixcontainer.kubeapi.admission.quota_evaluator import Amounts, Obj
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Key

QUOTAS = "resourcequotas"
GROWING = ("services", "persistentvolumeclaims")
PENDING_S = 10.0


class QuotaAdmission:
    """The last admission plugin of a write."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.pending: dict[Key, tuple[float, Amounts]] = {}  # charged, but not stored yet: since when, how much
        self.on_charged: Callable[[tuple[str, str], float], None] = lambda quota, seconds: None  # count it again then

    async def validate(self, resource: Resource, verb: str, new: Obj | None, old: Obj | None, options: Options) -> None:
        if new is None or not resource.namespaced or options.subresource:
            return
        storage, namespace = resource.storage, new["metadata"].get("namespace", "")
        grows = verb == "CREATE" or (verb == "UPDATE" and storage in GROWING)
        quotas = self.core.store.objects_of(QUOTAS, namespace) if grows else []
        if not quotas:
            return
        now = self.core.now()
        wanted = quota_evaluator.usage(storage, new, now)
        if old is not None:
            before = quota_evaluator.usage(storage, old, now)
            wanted = {key: (n - before.get(key, quota_evaluator.ZERO)[0], form) for key, (n, form) in wanted.items()}
        charged: list[tuple[str, Amounts]] = []
        for record in quotas:
            requested = self._requested(resource, record.obj, new, wanted)
            if requested:
                charged.append((record.key[2], requested))
        key = (storage, namespace, new["metadata"].get("name", ""))
        if charged and not options.dry_run and verb == "CREATE":
            self.pending[key] = (now, wanted)
        try:
            for name, requested in charged:
                await self._charge(resource, namespace, name, new, requested, options)
        except BaseException:
            self.pending.pop(key, None)
            raise
        finally:
            for name, _ in charged:  # what does not come to be after all is given back
                self.on_charged((namespace, name), PENDING_S)

    def _requested(self, resource: Resource, quota: Obj, obj: Obj, wanted: Amounts) -> Amounts:
        """What of the quota the object takes; raises ApiError 403 when it cannot be determined."""
        status, name = quota.get("status") or {}, quota["metadata"]["name"]
        hard = list(status.get("hard") or {})
        concerned = quota_evaluator.concerned(resource.storage, hard)
        if not concerned or not quota_evaluator.in_scope(quota, resource.storage, obj):
            return {}
        if resource.storage == "pods" and (why := quota_evaluator.missing_amounts(concerned, obj["spec"])):
            raise self._refusal(resource, obj, f"failed quota: {name}: {why}")
        if any(key not in (status.get("used") or {}) for key in concerned):
            listed = ",".join(sorted(concerned))
            raise self._refusal(resource, obj, f"status unknown for quota: {name}, resources: {listed}")
        return {key: amount for key, amount in wanted.items() if key in concerned and amount[0] > 0}

    async def _charge(
        self, resource: Resource, namespace: str, name: str, obj: Obj, requested: Amounts, options: Options
    ) -> None:
        def change(quota: Obj) -> Obj:
            status = quota.setdefault("status", {})
            hard = quota_evaluator.amounts(status.get("hard"))
            used = quota_evaluator.amounts(status.get("used"))
            if why := quota_evaluator.exceeded(name, requested, used, hard):
                raise self._refusal(resource, obj, why)
            after = quota_evaluator.add(used, requested)
            status["used"] = quota_evaluator.spelled_out({key: after[key] for key in after if key in hard})
            return quota

        found = self.core.registry.by_storage(QUOTAS)
        assert found is not None
        own = Options(field_manager="kube-apiserver", from_controller=True, subresource="status")
        own.dry_run = options.dry_run
        try:
            await self.core.verbs.modify(found, namespace, name, change, own)
        except errors.ApiError as failure:
            if failure.code != 404:  # a quota that went meanwhile bounds nobody
                raise

    def _refusal(self, resource: Resource, obj: Obj, why: str) -> errors.ApiError:
        meta = obj["metadata"]
        return errors.forbidden(resource.plural, resource.group, meta.get("name") or meta.get("generateName", ""), why)
