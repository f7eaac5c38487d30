"""PodFacts: the part of a pod that controllers need (owner, labels, node, readiness, requests), read once per change.

`PodIndex` holds one per pod. It is only a cache, rebuilt from the store at every start.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from matrixcontainer.kubeapi.builtin.validate_pods import DELETION_COST
from matrixcontainer.kubeapi.meta.quantities import milli_or_nothing, whole_number
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.storage.objects import Record

Name = tuple[str, str]
Place = tuple[str, ...]

TRACKING = "batch.kubernetes.io/job-tracking"


@dataclass(slots=True)
class PodFacts:
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
    asks: dict[str, int] | None = None
    tracked: bool = False  # a Job has yet to count it
    finished: float = 0.0
    restart_sum: int = 0

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


def facts_of(pod: dict[str, Any]) -> PodFacts:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owner = controller_of(meta) or {}
    ready = next((c for c in status.get("conditions") or [] if c["type"] == "Ready" and c["status"] == "True"), None)
    states = status.get("containerStatuses") or []
    ends = [(state.get("state") or {}).get("terminated") or {} for state in states]
    cost = (meta.get("annotations") or {}).get(DELETION_COST, "0")
    return PodFacts(
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
        cost=whole_number(cost),
        scheduler=spec.get("schedulerName", "default-scheduler"),
        gated=bool(spec.get("schedulingGates")),
        priority=spec.get("priority") or 0,
        ip=status.get("podIP", ""),
        asks=requests_of(spec),
        tracked=TRACKING in (meta.get("finalizers") or []),
        finished=max((parse_timestamp(end.get("finishedAt") or "") for end in ends), default=0.0),
        restart_sum=sum(state.get("restartCount", 0) for state in states + (status.get("initContainerStatuses") or [])),
    )


class Facts(Protocol):
    """What an index requires of its entries."""

    key: Name


F = TypeVar("F", bound=Facts)


class FactsIndex(Generic[F]):
    """An index of one kind's facts, by key and by the places that `places` returns for each."""

    def __init__(self, read: Callable[[Record], F], places: Callable[[F], Iterable[Place]]) -> None:
        self._read, self._places = read, places
        self._facts: dict[Name, F] = {}
        self._at: dict[Place, set[Name]] = {}

    def get(self, key: Name) -> F | None:
        return self._facts.get(key)

    def at(self, *place: str) -> list[F]:
        """The facts at a place, sorted by key."""
        return [self._facts[key] for key in sorted(self._at.get(place, ()))]

    def put(self, record: Record) -> tuple[F | None, F]:
        """Store the object's current facts; return (previous facts, current facts)."""
        facts = self._read(record)
        before = self.drop(record.key[1:])
        self._facts[record.key[1:]] = facts
        for place in self._places(facts):
            self._at.setdefault(place, set()).add(facts.key)
        return before, facts

    def drop(self, key: Name) -> F | None:
        facts = self._facts.pop(key, None)
        for place in self._places(facts) if facts is not None else ():
            self._at[place].discard(key)
            if not self._at[place]:
                del self._at[place]
        return facts


def _places_of(pod: PodFacts) -> list[Place]:
    found: list[Place] = [("owner", pod.owner_uid) if pod.owner_uid else ("ownerless", pod.key[0])]
    if pod.tracked:
        found.append(("tracked", pod.key[0], pod.job_name))
    return [*found, ("node", pod.node)] if pod.node else found


class PodIndex(FactsIndex[PodFacts]):
    """Pods by owner, by node, and those without an owner by namespace; and the total requests on each node."""

    def __init__(self) -> None:
        super().__init__(lambda record: facts_of(record.obj), _places_of)
        self.taken: dict[str, dict[str, int]] = {}  # node: resource: milli-units requested by unfinished pods
        self.unbound: set[Name] = set()
        self.addresses: dict[str, Name] = {}
        self._assigned: dict[Name, str] = {}
        """Addresses assigned to pods whose status does not show them yet."""

    def owned_by(self, uid: str) -> list[PodFacts]:
        return self.at("owner", uid)

    def ownerless(self, namespace: str) -> list[PodFacts]:
        return self.at("ownerless", namespace)

    def on_node(self, node: str) -> list[PodFacts]:
        return self.at("node", node)

    def tracked(self) -> list[PodFacts]:
        return [facts for facts in self._facts.values() if facts.tracked]

    def tracked_for(self, namespace: str, job_name: str) -> list[PodFacts]:
        """Pods that Jobs of that name have yet to count, whatever the Job's uid; with "" those that no Job controls."""
        return self.at("tracked", namespace, job_name)

    def assign_address(self, pod: PodFacts, address: str) -> str:
        """The address assigned to the pod: an earlier one, or else `address`; "" if another live pod has that. The
        assignment ends with the pod, or once its status shows an address."""
        if pod.key in self._assigned:
            return self._assigned[pod.key]
        if self.addresses.setdefault(address, pod.key) != pod.key:
            return ""
        self._assigned[pod.key] = address
        return address

    def put(self, record: Record) -> tuple[PodFacts | None, PodFacts]:
        assigned = self._assigned.get(record.key[1:])
        before, facts = super().put(record)
        if assigned and before is not None and (before.uid, "") == (facts.uid, facts.ip) and not facts.ended:
            self.addresses[assigned] = facts.key
            self._assigned[facts.key] = assigned
        if facts.node:
            self._count_requests(facts, 1)
        elif facts.active:
            self.unbound.add(facts.key)
        if facts.ip and not facts.ended:
            self.addresses[facts.ip] = facts.key
        return before, facts

    def drop(self, key: Name) -> PodFacts | None:
        facts = super().drop(key)
        if facts is None:
            return None
        self.unbound.discard(key)
        for address in (facts.ip, self._assigned.pop(key, "")):
            if self.addresses.get(address) == key:
                del self.addresses[address]
        if facts.node:
            self._count_requests(facts, -1)
        return facts

    def _count_requests(self, facts: PodFacts, sign: int) -> None:
        if facts.ended:
            return
        taken = self.taken.setdefault(facts.node, {})
        for name, amount in ((facts.asks or {}) | {"pods": 1000}).items():
            taken[name] = taken.get(name, 0) + sign * amount
        if not taken["pods"]:
            del self.taken[facts.node]


def requests_of(spec: dict[str, Any]) -> dict[str, int]:
    """A pod's effective requests in milli-units: the sum of its containers, or its largest init container.

    Invalid quantities count as zero: a controller must not fail on a stored object.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        for name, amount in _requested(container).items():
            total[name] = total.get(name, 0) + amount
    for container in spec.get("initContainers") or []:
        for name, amount in _requested(container).items():
            stays = container.get("restartPolicy") == "Always"
            total[name] = total.get(name, 0) + amount if stays else max(total.get(name, 0), amount)
    for name, text in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + milli_or_nothing(text)
    return total


def _requested(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    requested = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: milli_or_nothing(text) for name, text in requested.items()}
