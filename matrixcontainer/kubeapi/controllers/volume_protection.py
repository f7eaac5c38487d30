"""Claims that pods use and volumes that are bound outlive their deletion until nobody needs them any more."""

from typing import Any

from matrixcontainer.kubeapi.builtin.core import CLAIM_PROTECTION, VOLUME_PROTECTION
from matrixcontainer.kubeapi.controllers.workqueue import Controller
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodFacts

Obj = dict[str, Any]


def claims_of(pod: Obj) -> set[str]:
    """The names of the claims a pod uses."""
    volumes = (pod.get("spec") or {}).get("volumes") or []
    named = {
        volume["persistentVolumeClaim"].get("claimName", "") for volume in volumes if "persistentVolumeClaim" in volume
    }
    return named | {f"{pod['metadata']['name']}-{volume['name']}" for volume in volumes if "ephemeral" in volume}


class Protection(Controller):
    """Takes the finalizer off what is being deleted and no longer in use."""

    finalizer = ""

    def in_use(self, obj: Obj) -> bool:
        raise NotImplementedError

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None or "deletionTimestamp" not in record.obj["metadata"] or self.in_use(record.obj):
            return None
        if self.finalizer not in (record.obj["metadata"].get("finalizers") or []):
            return None

        def change(obj: Obj) -> Obj:
            obj["metadata"]["finalizers"] = [f for f in obj["metadata"].get("finalizers") or [] if f != self.finalizer]
            if not obj["metadata"]["finalizers"]:
                del obj["metadata"]["finalizers"]
            return obj

        resource = self.api.registry.by_storage(self.storage)
        assert resource is not None
        await self.api.verbs.modify(resource, *key, change, self.options())
        return None


class ClaimProtection(Protection):
    storage = "persistentvolumeclaims"
    account = "pvc-protection-controller"
    finalizer = CLAIM_PROTECTION

    def in_use(self, obj: Obj) -> bool:
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        for record in self.api.store.objects_of("pods", namespace):
            done = (record.obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if not done and record.obj["spec"].get("nodeName") and name in claims_of(record.obj):
                return True
        return False

    def notice_pod(self, before: PodFacts | None, pod: PodFacts | None) -> None:
        gone = pod or before
        if gone is None or (pod is not None and pod.active):
            return
        for record in self.api.store.objects_of(self.storage, gone.key[0]):
            if b'"deletionTimestamp"' in record.body:
                self.look(record.key[1:])


class VolumeProtection(Protection):
    storage = "persistentvolumes"
    account = "pv-protection-controller"
    finalizer = VOLUME_PROTECTION

    def in_use(self, obj: Obj) -> bool:
        return (obj.get("status") or {}).get("phase") == "Bound"
