"""Virtual kubelets of the emulated nodes, for a Kubernetes cluster with real machines of its own.

Each renews its node's Lease, as a real kubelet does, so that the cluster's node controller considers the node alive.
Pods bound to the node run and terminate through the same stages and function as with the embedded API's kubelets
(`kubeapi/kubelet/virtual_kubelet.py`), which leave nodes with a Lease to us. The kubelet of a lost node does nothing:
its Lease expires, and its pods stay as they are until they are force-deleted.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from matrixcommon.model.errors import Conflict, NotFound
from matrixcontainer.client.client import LEASE, NODE, POD, KubeClient
from matrixcontainer.client.events import event_for_object, record_event
from matrixcontainer.kubeapi.kubelet.node_info import synthetic_address
from matrixcontainer.kubeapi.kubelet.stage_delays import StageDelays, load_stage_delays
from matrixcontainer.kubeapi.kubelet.virtual_kubelet import PodSync, pod_address, sync_pod
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL
from matrixresource.client import ResourceClient

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40
RENEW_S = 10.0
"""A kubelet's defaults."""


class Kubelets:
    """The kubelets of all nodes. After `reconcile`, `requeue_after_s` says in how many seconds a pod's next stage is
    due, or is None.

    An error in one pod or Lease does not hold up the others; the first is raised afterwards.
    """

    def __init__(
        self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float], delays: StageDelays | None = None
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall
        self._delays = delays or load_stage_delays()
        self.requeue_after_s: float | None = None

    async def reconcile(self) -> str:
        """Advance every pod on a live node to the stage that is due."""
        self.requeue_after_s = None
        pods = [pod for pod in (await self._kube.list(POD))[0] if pod["spec"].get("nodeName")]
        if not pods:
            return "no pods"
        live = await self._live_nodes()
        updated = await attempt_all(self._reconcile(pod) for pod in pods if pod["spec"]["nodeName"] in live)
        return f"{sum(updated)} pods updated"

    async def renew_leases(self) -> str:
        """Renew the Lease of every live node. The Node owns the Lease, so the Lease is deleted with it."""
        live = await self._live_nodes()
        nodes, _ = await self._kube.list(NODE, labels=f"{MANAGED_LABEL}={MANAGED_BY}")
        mirrored = {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
        due = sorted(live & set(mirrored))
        await attempt_all(self._kube.apply(LEASE, self._lease(name, mirrored[name])) for name in due)
        return f"{len(due)} leases renewed"

    async def _live_nodes(self) -> set[str]:
        return {node.name for node in await self._resource.nodes() if node.agent == "Connected" and node.power != "Off"}

    def _lease(self, name: str, uid: str) -> dict[str, Any]:
        at = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        return {
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": at},
        }

    async def _reconcile(self, pod: dict[str, Any]) -> int:
        uid, current_ip = pod["metadata"]["uid"], (pod.get("status") or {}).get("podIP")
        host_ip = synthetic_address(pod["spec"]["nodeName"])
        sync = sync_pod(pod, self._wall(), self._delays, host_ip, current_ip or pod_address(uid))
        if sync.requeue_after_s is not None:
            self.requeue_after_s = min(self.requeue_after_s or sync.requeue_after_s, sync.requeue_after_s)
        if sync.status is None and not sync.remove:
            return 0
        with contextlib.suppress(NotFound, Conflict):  # changed or deleted meanwhile; the next pass sees that
            await self._apply_sync(pod, sync)
        return 1

    async def _apply_sync(self, pod: dict[str, Any], sync: PodSync) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        if sync.status is not None:
            current = pod.get("status") or {}
            removed = {key: None for key in current if key not in sync.status}
            body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": sync.status | removed}
            await self._kube.merge(POD, name, body, namespace, "status")
            for event in sync.events:
                dedup_key, type = f"{metadata['resourceVersion']} {event}", "Warning" if event.warning else "Normal"
                at, details = self._wall(), (type, event.reason, event.message)
                await record_event(
                    self._kube, event_for_object(POD, pod, *details, component="kubelet", at=at, dedup_key=dedup_key)
                )
        if sync.remove:
            await self._kube.delete(POD, name, namespace, grace_s=0, uid=metadata["uid"])
