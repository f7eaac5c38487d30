"""Creation and deletion of pods for their owner, with events; shared by ReplicaSets and Jobs."""

import asyncio
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.controllers.workloads import controller_ref
from matrixcontainer.kubeapi.kubelet.pod_info import PodInfo
from matrixcontainer.kubeapi.registry.options import Deletion
from matrixcontainer.kubeapi.schema.structural import copy_json

BURST_REPLICAS = 500  # maximum pods created or deleted in one reconcile

Obj = dict[str, Any]


def pod_from_template(template: Obj, owner: Obj, prefix: str) -> Obj:
    """A new pod from the template; its name is generated from the prefix."""
    template = copy_json(template)
    meta = {k: v for k, v in (template.get("metadata") or {}).items() if k in ("labels", "annotations", "finalizers")}
    meta |= {"generateName": prefix, "ownerReferences": [controller_ref.owner_reference(owner)]}
    return {"metadata": meta, "spec": template.get("spec") or {}}


class PodController(WorkloadController):
    """A controller whose objects own pods. Their pods have the `finalizer`, if set, until they are released."""

    finalizer = ""

    async def create_pods(self, owner: Obj, pods: list[Obj]) -> None:
        """Create pods in growing batches, so that a rejected template fails once and not five hundred times."""
        size = 1
        while pods:
            batch, pods = pods[:size], pods[size:]
            results = await asyncio.gather(*(self._create_pod(owner, pod) for pod in batch), return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
            size *= 2

    async def _create_pod(self, owner: Obj, pod: Obj) -> None:
        namespace = owner["metadata"]["namespace"]
        created = await self.core.verbs.create(self.informers.pod_resource, namespace, pod, self.options())
        self.events.event(owner, "SuccessfulCreate", f"Created pod: {created.obj['metadata']['name']}", self.account)

    async def delete_pod(self, owner: Obj, pod: PodInfo) -> None:
        request = Deletion(propagation="Background", uid=pod.uid)
        await self.delete_object(self.informers.pod_resource, *pod.key, request)
        self.events.event(owner, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}", self.account)

    async def claim_pods(self, owner: Obj) -> None:
        """Adopt and release pods; if there were any, reconcile again."""
        meta, pods = owner["metadata"], self.informers.pods
        found = pods.owned_by(meta["uid"]), pods.ownerless(meta["namespace"])
        if await controller_ref.claim(self, self.informers.pod_resource, owner, *found, self.finalizer):
            self.enqueue((meta["namespace"], meta["name"]))
