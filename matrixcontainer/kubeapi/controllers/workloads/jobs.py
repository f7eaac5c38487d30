"""Jobs: carries out what job_decision.py decides. A Job managed by somebody else (`managedBy`) is left alone."""

import asyncio

from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.controllers.workloads import controller_ref
from matrixcontainer.kubeapi.controllers.workloads.job_decision import INDEX, Obj, Plan, plan
from matrixcontainer.kubeapi.controllers.workloads.replica_sets import BURST, pod_from
from matrixcontainer.kubeapi.kubelet.pod_info import TRACKING, Name, PodFacts
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.options import Deletion

MANAGER = "kubernetes.io/job-controller"


class Jobs(WorkloadController):
    storage = "jobs.batch"
    account = "job-controller"

    def on_pod(self, before: PodFacts | None, pod: PodFacts | None) -> None:
        for facts in (before, pod):
            if facts is not None and facts.owner_kind == "Job":
                self.enqueue((facts.key[0], facts.owner_name))

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            await self._release_orphans(key)
            return None
        job = record.obj
        if job["spec"].get("managedBy") not in (None, "", MANAGER):
            return None
        pods = self.informers.pods
        if await controller_ref.claim(
            self, self.informers.pod_resource, job, pods.owned_by(record.uid), pods.ownerless(key[0])
        ):
            self.enqueue(key)
        coming = plan(job, pods.owned_by(record.uid), self.core.now())
        await self._carry_out(key, job, coming)
        return coming.again_s

    async def _carry_out(self, key: Name, job: Obj, coming: Plan) -> None:
        if coming.expire:
            request = Deletion(propagation="Foreground", uid=job["metadata"]["uid"])
            await self.core.verbs.delete(self.resource, *key, request, self.options())
            return
        if coming.status != (job.get("status") or {}):
            status = coming.status
            await self.write_status(key, status)
        if coming.event:
            reason, message, warning = coming.event
            self.events.event(job, reason, message, self.account, warning)
        await asyncio.gather(*(self._release(pod) for pod in coming.release))
        await asyncio.gather(*(self._remove(job, pod, coming.uncounted_remove) for pod in coming.remove[:BURST]))
        await self._make(job, coming.make[:BURST])

    async def _make(self, job: Obj, indexes: list[int | None]) -> None:
        size = 1
        while indexes:
            batch, indexes = indexes[:size], indexes[size:]
            try:
                await asyncio.gather(*(self._make_one(job, index) for index in batch))
            except ApiError as failure:
                text = f"Error creating: {failure}"
                self.events.event(job, "FailedCreate", text, self.account, warning=True)
                raise
            size *= 2

    async def _make_one(self, job: Obj, index: int | None) -> None:
        meta = job["metadata"]
        prefix = f"{meta['name']}-" if index is None else f"{meta['name']}-{index}-"
        body = pod_from(job["spec"]["template"], job, prefix)
        body["metadata"].setdefault("finalizers", []).append(TRACKING)
        if index is not None:
            _number(body, job, index)
        made = await self.core.verbs.create(self.informers.pod_resource, meta["namespace"], body, self.options())
        name = made.obj["metadata"]["name"]
        self.events.event(job, "SuccessfulCreate", f"Created pod: {name}", self.account)

    async def _remove(self, job: Obj, pod: PodFacts, release_first: bool) -> None:
        if release_first:
            await self._release(pod)
        try:
            await self.core.verbs.delete(
                self.informers.pod_resource, *pod.key, Deletion(propagation="Background", uid=pod.uid), self.options()
            )
        except ApiError as failure:
            if failure.code not in (404, 409):
                raise
        self.events.event(job, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}", self.account)

    async def _release(self, pod: PodFacts) -> None:
        """The pod has been counted: what kept it goes."""
        if not pod.tracked:
            return

        def change(obj: Obj) -> Obj:
            kept = [finalizer for finalizer in obj["metadata"].get("finalizers") or [] if finalizer != TRACKING]
            obj["metadata"]["finalizers"] = kept
            if not kept:
                del obj["metadata"]["finalizers"]
            return obj

        try:
            await self.core.verbs.modify(self.informers.pod_resource, *pod.key, change, self.options())
        except ApiError as failure:
            if failure.code != 404:
                raise

    async def _release_orphans(self, key: Name) -> None:
        """Nobody counts the pods of a Job that is gone."""
        for pod in self.informers.pods.tracked():
            if pod.key[0] == key[0] and (not pod.owner_uid or pod.owner_name == key[1]):
                await self._release(pod)


def _number(body: Obj, job: Obj, index: int) -> None:
    """The pod of one completion index knows it by annotation, label, host name and environment."""
    for part in ("labels", "annotations"):
        body["metadata"].setdefault(part, {})[INDEX] = str(index)
    body["spec"]["hostname"] = f"{job['metadata']['name']}-{index}"[:63]
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
    for group in ("containers", "initContainers"):
        for container in body["spec"].get(group) or []:
            if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in container.get("env") or []):
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
