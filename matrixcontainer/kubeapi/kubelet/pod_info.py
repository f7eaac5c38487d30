"""PodInfo: the part of a pod that controllers need (owner, labels, node, readiness, requests), read once per change.

`PodIndex` holds one per pod. It is only a cache, rebuilt from the store at every start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from matrixcontainer.kubeapi.builtin.validate_pods import DELETION_COST
from matrixcontainer.kubeapi.meta.quantities import milli_or_zero, parse_int
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.storage.objects import Record

Name = tuple[str, str]
IndexKey = tuple[str, ...]
HostPort = tuple[str, str, int]
"""Address ("" for all), protocol, port."""

JOB_TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"


@dataclass(slots=True)
class PodInfo:
    """Summary of a pod. Times are seconds since the epoch; `ready_since` is 0 while the pod is not ready."""

    key: Name
    uid: str = ""
    labels: dict[str, str] | None = None
    owner_uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    node: str = ""
    phase: str = "Pending"
    ready_since: float = 0.0
    deleting: bool = False
    created: float = 0.0
    restarts: int = 0
    cost: int = 0
    scheduler: str = "default-scheduler"
    gated: bool = False
    priority: int = 0
    ip: str = ""
    requests: dict[str, int] | None = None
    tracked: bool = False  # a Job has yet to count it
    finished: float = 0.0
    restart_sum: int = 0
    anti_affinity: tuple[dict[str, Any], ...] = ()  # required terms
    host_ports: tuple[HostPort, ...] = ()
    relative: bool = False  # its placement depends on where other pods are

    @property
    def job_name(self) -> str:
        """Name of the Job that controls it, "" if none."""
        return self.owner_name if self.owner_kind == "Job" else ""

    @property
    def ready(self) -> bool:
        return self.ready_since > 0

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Whether it counts as a replica: neither finished nor being deleted."""
        return not self.ended and not self.deleting

    def available(self, min_ready_s: int, now: float) -> bool:
        return self.ready and now >= self.ready_since + min_ready_s


def controller_of(meta: dict[str, Any]) -> dict[str, Any] | None:
    return next((owner for owner in meta.get("ownerReferences") or [] if owner.get("controller")), None)


def parse_pod_info(pod: dict[str, Any]) -> PodInfo:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owner = controller_of(meta) or {}
    ready = next((c for c in status.get("conditions") or [] if c["type"] == "Ready" and c["status"] == "True"), None)
    states = status.get("containerStatuses") or []
    ends = [(state.get("state") or {}).get("terminated") or {} for state in states]
    cost = (meta.get("annotations") or {}).get(DELETION_COST, "0")
    return PodInfo(
        key=(meta.get("namespace", ""), meta.get("name", "")),
        uid=meta.get("uid", ""),
        labels=meta.get("labels") or {},
        owner_uid=owner.get("uid", ""),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        ready_since=max(parse_timestamp(ready.get("lastTransitionTime") or ""), 1.0) if ready else 0.0,
        deleting="deletionTimestamp" in meta,
        created=parse_timestamp(meta.get("creationTimestamp", "")),
        restarts=max((state.get("restartCount", 0) for state in states), default=0),
        cost=parse_int(cost),
        scheduler=spec.get("schedulerName", "default-scheduler"),
        gated=bool(spec.get("schedulingGates")),
        priority=spec.get("priority") or 0,
        ip=status.get("podIP", ""),
        requests=requests_of(spec),
        tracked=JOB_TRACKING_FINALIZER in (meta.get("finalizers") or []),
        finished=max((parse_timestamp(end.get("finishedAt") or "") for end in ends), default=0.0),
        restart_sum=sum(state.get("restartCount", 0) for state in states + (status.get("initContainerStatuses") or [])),
        anti_affinity=tuple(required_terms(spec, "podAntiAffinity")),
        host_ports=_host_ports(spec),
        relative=bool(required_terms(spec, "podAffinity") or spread_constraints(spec)),
    )


def required_terms(spec: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The required terms of a pod's `podAffinity` or `podAntiAffinity`."""
    affinity = (spec.get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def spread_constraints(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The topology spread constraints that forbid a placement."""
    constraints = spec.get("topologySpreadConstraints") or []
    return [each for each in constraints if each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def _host_ports(spec: dict[str, Any]) -> tuple[HostPort, ...]:
    sidecars = [each for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"]
    ports = [port for each in [*sidecars, *(spec.get("containers") or [])] for port in each.get("ports") or []]
    return tuple(
        (port.get("hostIP", "").replace("0.0.0.0", ""), port.get("protocol", "TCP"), port["hostPort"])
        for port in ports
        if port.get("hostPort")
    )


class Indexed(Protocol):
    """What an index requires of its entries."""

    key: Name


F = TypeVar("F", bound=Indexed)


class Indexer(Generic[F]):
    """The infos of one kind, by key and by the keys that `index_keys` returns for each."""

    def __init__(self, parse: Callable[[Record], F], index_keys: Callable[[F], Iterable[IndexKey]]) -> None:
        self._parse, self._index_keys = parse, index_keys
        self._infos: dict[Name, F] = {}
        self._keys_by_index: dict[IndexKey, set[Name]] = {}

    def get(self, key: Name) -> F | None:
        return self._infos.get(key)

    def by_index(self, *index_key: str) -> list[F]:
        """The infos under an index key, sorted by key."""
        return [self._infos[key] for key in sorted(self._keys_by_index.get(index_key, ()))]

    def put(self, record: Record) -> tuple[F | None, F]:
        """Store the object's current info; return (previous info, current info)."""
        info = self._parse(record)
        before = self.delete(record.key[1:])
        self._infos[record.key[1:]] = info
        for index_key in self._index_keys(info):
            self._keys_by_index.setdefault(index_key, set()).add(info.key)
        return before, info

    def delete(self, key: Name) -> F | None:
        info = self._infos.pop(key, None)
        for index_key in self._index_keys(info) if info is not None else ():
            self._keys_by_index[index_key].discard(key)
            if not self._keys_by_index[index_key]:
                del self._keys_by_index[index_key]
        return info


def _index_keys(pod: PodInfo) -> list[IndexKey]:
    keys: list[IndexKey] = [("owner", pod.owner_uid) if pod.owner_uid else ("ownerless", pod.key[0])]
    if pod.tracked:
        keys.append(("tracked", pod.key[0], pod.job_name))
    return [*keys, ("node", pod.node)] if pod.node else keys


class PodIndex(Indexer[PodInfo]):
    """Pods by owner, by node, and those without an owner by namespace; and the total requests on each node."""

    def __init__(self) -> None:
        super().__init__(lambda record: parse_pod_info(record.obj), _index_keys)
        self.requested_by_node: dict[
            str, dict[str, int]
        ] = {}  # node: resource: milli-units requested by unfinished pods
        self.unbound: set[Name] = set()
        self._with_anti_affinity: set[Name] = set()
        self.addresses: dict[str, Name] = {}
        self._assigned: dict[Name, str] = {}
        """Addresses assigned to pods whose status does not show them yet."""

    def owned_by(self, uid: str) -> list[PodInfo]:
        return self.by_index("owner", uid)

    def ownerless(self, namespace: str) -> list[PodInfo]:
        return self.by_index("ownerless", namespace)

    def on_node(self, node: str) -> list[PodInfo]:
        return self.by_index("node", node)

    def bound(self) -> list[PodInfo]:
        """The unfinished pods that have a node."""
        return [info for info in self._infos.values() if info.node and not info.ended]

    def with_anti_affinity(self) -> list[PodInfo]:
        """The unfinished pods on nodes that keep others away by required anti-affinity."""
        return [self._infos[key] for key in sorted(self._with_anti_affinity)]

    def tracked(self) -> list[PodInfo]:
        return [info for info in self._infos.values() if info.tracked]

    def tracked_for(self, namespace: str, job_name: str) -> list[PodInfo]:
        """Pods that Jobs of that name have yet to count, whatever the Job's uid; with "" those that no Job controls."""
        return self.by_index("tracked", namespace, job_name)

    def assign_address(self, pod: PodInfo, address: str) -> str:
        """The address assigned to the pod: an earlier one, or else `address`; "" if another live pod has that. The
        assignment ends with the pod, or once its status shows an address."""
        if pod.key in self._assigned:
            return self._assigned[pod.key]
        if self.addresses.setdefault(address, pod.key) != pod.key:
            return ""
        self._assigned[pod.key] = address
        return address

    def put(self, record: Record) -> tuple[PodInfo | None, PodInfo]:
        assigned = self._assigned.get(record.key[1:])
        before, info = super().put(record)
        if assigned and before is not None and (before.uid, "") == (info.uid, info.ip) and not info.ended:
            self.addresses[assigned] = info.key
            self._assigned[info.key] = assigned
        if info.node:
            self._count_requests(info, 1)
            if info.anti_affinity and not info.ended:
                self._with_anti_affinity.add(info.key)
        elif info.active:
            self.unbound.add(info.key)
        if info.ip and not info.ended:
            self.addresses[info.ip] = info.key
        return before, info

    def delete(self, key: Name) -> PodInfo | None:
        info = super().delete(key)
        if info is None:
            return None
        self.unbound.discard(key)
        self._with_anti_affinity.discard(key)
        for address in (info.ip, self._assigned.pop(key, "")):
            if self.addresses.get(address) == key:
                del self.addresses[address]
        if info.node:
            self._count_requests(info, -1)
        return info

    def _count_requests(self, info: PodInfo, sign: int) -> None:
        if info.ended:
            return
        requested = self.requested_by_node.setdefault(info.node, {})
        for name, amount in ((info.requests or {}) | {"pods": 1000}).items():
            requested[name] = requested.get(name, 0) + sign * amount
        if not requested["pods"]:
            del self.requested_by_node[info.node]


def requests_of(spec: dict[str, Any]) -> dict[str, int]:
    """A pod's effective requests in milli-units: the sum of its containers, or its largest init container.

    Invalid quantities count as zero: a controller must not fail on a stored object.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in _container_requests(container).items():
            restartable = container.get("restartPolicy") == "Always"
            total[name] = total.get(name, 0) + amount if restartable else max(total.get(name, 0), amount)
    for name, text in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + milli_or_zero(text)
    return total


def _container_requests(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    requested = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: milli_or_zero(text) for name, text in requested.items()}
