"""One pass of a virtual kubelet over one pod: the status to write, events, removal, and when the next pass is due.

The embedded API's kubelets and those of mirrored nodes in a shared cluster both use this function; they differ only in
how they read and write.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_events import PodEvent, pod_events
from matrixcontainer.kubeapi.kubelet.pod_lifecycle import advance_pod
from matrixcontainer.kubeapi.kubelet.pod_references import NOTHING_MISSING, MissingReferences
from matrixcontainer.kubeapi.kubelet.stage_delays import StageDelays

HOSTS_PER_SUBNET = 254  # .1 to .254 of each /24 of 10.244.0.0/14, the pods' own block
POD_ADDRESSES = 4 * 256 * HOSTS_PER_SUBNET


@dataclass(frozen=True)
class PodSync:
    """The `status` to write if it changed, the `events` to record, and the seconds until the next stage."""

    status: dict[str, Any] | None
    events: list[PodEvent]
    remove: bool
    requeue_after_s: float | None


def sync_pod(
    pod: dict[str, Any],
    now: float,
    delays: StageDelays,
    host_ip: str,
    pod_ip: str,
    missing: MissingReferences = NOTHING_MISSING,
) -> PodSync:
    """Run one pass. `pod_ip` is the pod's own address; with hostNetwork it gets `host_ip` instead. `missing`: what
    keeps containers from starting, for a kubelet that can look it up."""
    own_ip = host_ip if pod["spec"].get("hostNetwork") else pod_ip
    transition = advance_pod(pod, now, delays, host_ip, own_ip, missing)
    events = pod_events(pod, transition.status, missing) if transition.status is not None else []
    return PodSync(transition.status, events, transition.remove, None if transition.at is None else transition.at - now)


def pod_address(uid: str, attempt: int = 0) -> str:
    """An address derived from the pod's uid; each further `attempt` yields the next one of the block."""
    drawn = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:3], "big")
    network, host = divmod((drawn + attempt) % POD_ADDRESSES, HOSTS_PER_SUBNET)
    return f"10.{244 + (network >> 8)}.{network & 255}.{host + 1}"
