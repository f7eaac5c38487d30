"""ReplicaSets: keep the number of active pods at spec.replicas, and report it in the status."""

import asyncio
from typing import Any

from matrixcontainer.kubeapi.controllers.workloads import controller_ref
from matrixcontainer.kubeapi.controllers.workloads.pod_control import BURST_REPLICAS, PodController, pod_from_template
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector

PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def deletion_order(pods: list[PodInfo], pods_per_node: dict[str, int]) -> list[PodInfo]:
    """Pods in order of deletion; first those: unassigned, not running, not ready, of low deletion cost, on crowded
    nodes, recently ready, often restarted, new.

    `pods_per_node` counts active pods of the owner and its siblings by node.
    """
    return sorted(
        pods,
        key=lambda pod: (
            bool(pod.node),
            PHASES.get(pod.phase, 2),
            pod.ready,
            pod.cost,
            -pods_per_node.get(pod.node, 0),
            -pod.ready_since,
            -pod.restarts,
            -pod.created,
            pod.key,
        ),
    )


def replica_counts(rs: dict[str, Any], pods: list[PodInfo], now: float) -> dict[str, Any]:
    """The counts of the status; zeros are omitted, as in Go."""
    labels = (rs["spec"]["template"].get("metadata") or {}).get("labels") or {}
    wait_s = rs["spec"].get("minReadySeconds") or 0
    counts = {
        "fullyLabeledReplicas": sum(labels.items() <= (pod.labels or {}).items() for pod in pods),
        "readyReplicas": sum(pod.ready for pod in pods),
        "availableReplicas": sum(pod.available(wait_s, now) for pod in pods),
    }
    return {"replicas": len(pods)} | {name: count for name, count in counts.items() if count}


def seconds_until_available(pods: list[PodInfo], min_ready_s: int, now: float) -> float | None:
    """Seconds until the next ready pod counts as available."""
    delays_s = [
        pod.ready_since + min_ready_s - now for pod in pods if pod.ready and not pod.available(min_ready_s, now)
    ]
    return min(delays_s, default=None)


class ReplicaSetController(PodController):
    storage = "replicasets.apps"
    account = "replicaset-controller"

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        """A pod was created, changed or deleted."""
        for info in (before, pod):
            if info is not None and info.owner_kind == "ReplicaSet":
                self.enqueue((info.key[0], info.owner_name))
        if (
            pod is not None
            and not pod.owner_uid
            and (before is None or before.labels != pod.labels or before.owner_uid)
        ):
            for rs in self.informers.replica_sets.in_namespace(pod.key[0]):
                if matches_label_selector(rs.selector, pod.labels or {}):
                    self.enqueue(rs.key)

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            return None
        rs = record.obj
        pods = self.informers.pods
        await self.claim_pods(rs)
        active = [pod for pod in pods.owned_by(record.uid) if pod.active]
        failure = None
        if "deletionTimestamp" not in rs["metadata"]:
            failure = await self._scale(rs, active)
            active = [pod for pod in pods.owned_by(record.uid) if pod.active]
        await self._write_status(key, rs, active, failure)
        if failure is not None:
            raise failure[1]
        return seconds_until_available(active, rs["spec"].get("minReadySeconds") or 0, self.core.now())

    async def _scale(self, rs: dict[str, Any], active: list[PodInfo]) -> tuple[str, ApiError] | None:
        """Create or delete pods; return (condition reason, error) if that fails."""
        missing = (rs["spec"].get("replicas") or 0) - len(active)
        try:
            if missing > 0:
                template, prefix = rs["spec"]["template"], f"{rs['metadata']['name']}-"
                await self.create_pods(
                    rs, [pod_from_template(template, rs, prefix) for _ in range(min(missing, BURST_REPLICAS))]
                )
            elif missing < 0:
                to_delete = deletion_order(active, self._related_pods_per_node(rs))[: min(-missing, BURST_REPLICAS)]
                await asyncio.gather(*(self.delete_pod(rs, pod) for pod in to_delete))
        except ApiError as failure:
            reason = "FailedCreate" if missing > 0 else "FailedDelete"
            text = f"Error {'creating' if missing > 0 else 'deleting'}: {failure}"
            self.events.event(rs, reason, text, self.account, warning=True)
            return reason, failure
        return None

    def _related_pods_per_node(self, rs: dict[str, Any]) -> dict[str, int]:
        """Active pods by node, of this set and of those with the same owner."""
        uids = {rs["metadata"]["uid"]}
        owner = controller_ref.controller_of(rs["metadata"])
        if owner is not None:
            uids |= {record.uid for record in self.informers.replica_sets_of(rs["metadata"]["namespace"], owner["uid"])}
        counts: dict[str, int] = {}
        for uid in uids:
            for pod in self.informers.pods.owned_by(uid):
                if pod.active:
                    counts[pod.node] = counts.get(pod.node, 0) + 1
        return counts

    async def _write_status(
        self, key: Name, rs: dict[str, Any], active: list[PodInfo], failure: tuple[str, ApiError] | None
    ) -> None:
        status = replica_counts(rs, active, self.core.now())
        status["observedGeneration"] = rs["metadata"].get("generation", 0)
        current = list((rs.get("status") or {}).get("conditions") or [])
        if failure is None:
            current = [c for c in current if c["type"] != "ReplicaFailure"]
        if current:
            status["conditions"] = current
        reported = next((c["reason"] for c in current if c["type"] == "ReplicaFailure"), None)
        if (
            failure is not None and reported != failure[0]
        ):  # the message differs for every pod, so it does not count as a change
            set_condition(status, "ReplicaFailure", "True", failure[0], str(failure[1]), self.core.now())
        if status == rs.get("status"):
            return
        await self.write_status(key, status)
