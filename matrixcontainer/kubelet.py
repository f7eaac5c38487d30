"""The kubelets of the emulated nodes, as far as pods need one: what is bound to a node runs, what is deleted ends.

A kubelet whose node is lost does nothing; its pods stay as they are until somebody removes them by force, which the
operator does once the node has been replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from matrixcontainer.gangs import SCHEDULER_NAME
from matrixcontainer.kube_client import POD, KubeClient
from matrixcontainer.kube_events import kube_time
from matrixcontainer.reconcile import MANAGED_BY, MANAGED_LABEL
from matrixcontainer.workload import running_status
from matrixresource.client import ResourceClient
from matrixresource.vocabulary.errors import Conflict, NotFound

log = logging.getLogger(__name__)


def ours(pod: dict[str, Any]) -> bool:
    """Pods of the workload, and those that our scheduler placed."""
    labels = pod["metadata"].get("labels") or {}
    return labels.get(MANAGED_LABEL) == MANAGED_BY or pod["spec"].get("schedulerName") == SCHEDULER_NAME


class Kubelets:
    """All of them, looking at our pods once per run."""

    def __init__(self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall

    async def look(self) -> str:
        """Start what is bound, end what is being deleted."""
        pods = [pod for pod in (await self._kube.list(POD))[0] if ours(pod)]
        if not pods:
            return "no pods"
        alive = {node.name for node in await self._resource.nodes() if node.agent == "Connected"}
        touched = 0
        for pod in pods:
            if pod["spec"].get("nodeName") in alive:
                touched += await self._tend(pod)
        return f"{touched} pods touched"

    async def _tend(self, pod: dict[str, Any]) -> int:
        metadata = pod["metadata"]
        try:
            if metadata.get("deletionTimestamp"):
                await self._kube.delete(POD, metadata["name"], metadata["namespace"], grace_s=0)
                return 1
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                at = kube_time(self._wall())
                status = {"status": running_status(pod, at)}
                await self._kube.merge(POD, metadata["name"], status, metadata["namespace"], "status")
                return 1
        except (NotFound, Conflict):
            pass  # somebody was faster; the next look sees it
        return 0
