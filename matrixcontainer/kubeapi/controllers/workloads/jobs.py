"""Jobs: carries out what job_decision.py decides. Jobs with another manager (`managedBy`) are left alone."""

import asyncio

from matrixcontainer.kubeapi.controllers.runtime.workqueue import filter_list
from matrixcontainer.kubeapi.controllers.workloads.job_decision import INDEX, Obj, Plan, plan
from matrixcontainer.kubeapi.controllers.workloads.pod_control import BURST_REPLICAS, PodController, pod_from_template
from matrixcontainer.kubeapi.kubelet.pod_info import JOB_TRACKING_FINALIZER, Name, PodInfo, controller_of
from matrixcontainer.kubeapi.meta.errors import ApiError, ignoring
from matrixcontainer.kubeapi.registry.options import Deletion

MANAGED_BY = "kubernetes.io/job-controller"


class JobController(PodController):
    storage = "jobs.batch"
    account = "job-controller"
    finalizer = JOB_TRACKING_FINALIZER

    def load(self) -> None:
        super().load()
        for pod in self.informers.pods.tracked():
            self.enqueue((pod.key[0], pod.job_name))

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        for info in (before, pod):
            if info is not None and (info.job_name or info.tracked):
                self.enqueue((info.key[0], info.job_name))

    async def reconcile(self, key: Name) -> float | None:
        """Reconcile a Job; an empty name stands for the pods that no Job controls."""
        record = self.record(key)
        if record is None:
            await self._release_orphans(key, "")
            return None
        job = record.obj
        if job["spec"].get("managedBy") not in (None, "", MANAGED_BY):
            return None
        pods = self.informers.pods
        await self.claim_pods(job)
        await self._release_orphans(key, record.uid)
        job_plan = plan(job, pods.owned_by(record.uid), self.core.now())
        await self._apply_plan(key, job, job_plan)
        return job_plan.requeue_after_s

    async def _apply_plan(self, key: Name, job: Obj, job_plan: Plan) -> None:
        if job_plan.delete_job:
            request = Deletion(propagation="Foreground", uid=job["metadata"]["uid"])
            await self.core.verbs.delete(self.resource, *key, request, self.options())
            return
        if job_plan.status != (job.get("status") or {}):
            await self.write_status(key, job_plan.status)
        if job_plan.event:
            reason, message, warning = job_plan.event
            self.events.event(job, reason, message, self.account, warning)
        await asyncio.gather(*(self._release(pod) for pod in job_plan.release))
        await asyncio.gather(
            *(self._delete_pod(job, pod, job_plan.delete_uncounted) for pod in job_plan.delete[:BURST_REPLICAS])
        )
        try:
            await self.create_pods(job, [_pod(job, index) for index in job_plan.create[:BURST_REPLICAS]])
        except ApiError as failure:
            self.events.event(job, "FailedCreate", f"Error creating: {failure}", self.account, warning=True)
            raise

    async def _delete_pod(self, job: Obj, pod: PodInfo, release_first: bool) -> None:
        if release_first:
            await self._release(pod)
        await self.delete_pod(job, pod)

    async def _release(self, pod: PodInfo) -> None:
        """Remove the finalizer of a pod that was counted or never will be, unless another Job has adopted it."""
        if not pod.tracked:
            return

        def change(obj: Obj) -> Obj:
            if (controller_of(obj["metadata"]) or {}).get("uid", "") == pod.owner_uid:
                filter_list(obj["metadata"], "finalizers", lambda finalizer: finalizer != JOB_TRACKING_FINALIZER)
            return obj

        with ignoring(404):
            await self.core.verbs.modify(self.informers.pod_resource, *pod.key, change, self.options())

    async def _release_orphans(self, key: Name, uid: str) -> None:
        """Release the pods of a deleted Job, which nobody will count; a new Job (`uid`) may have its name by now."""
        orphans = [pod for pod in self.informers.pods.tracked_for(*key) if not uid or pod.owner_uid != uid]
        await asyncio.gather(*(self._release(pod) for pod in orphans))


def _pod(job: Obj, index: int | None) -> Obj:
    name = job["metadata"]["name"]
    body = pod_from_template(job["spec"]["template"], job, f"{name}-" if index is None else f"{name}-{index}-")
    body["metadata"].setdefault("finalizers", []).append(JOB_TRACKING_FINALIZER)
    if index is not None:
        _set_index(body, job, index)
    return body


def _set_index(body: Obj, job: Obj, index: int) -> None:
    """Set the pod's completion index as annotation, label, hostname and environment variable."""
    for part in ("labels", "annotations"):
        body["metadata"].setdefault(part, {})[INDEX] = str(index)
    body["spec"]["hostname"] = f"{job['metadata']['name']}-{index}"[:63]
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
    for group in ("containers", "initContainers"):
        for container in body["spec"].get(group) or []:
            if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in container.get("env") or []):
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
