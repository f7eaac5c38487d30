"""The Job controller's decision as a pure function: from a Job, its pods and the time to a new status and actions.

A pod has a finalizer until it is counted. A finished pod is first listed in the status as uncounted, then loses its
finalizer, then is added to the count, so that a crash between any two steps neither loses nor double-counts it. A Job
that reaches its goal or limit says so immediately (SuccessCriteriaMet, FailureTarget), and becomes Complete or Failed
when its last pod is gone.
"""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.controllers.workloads.replica_sets import deletion_order
from matrixcontainer.kubeapi.kubelet.pod_info import PodInfo
from matrixcontainer.kubeapi.meta.conditions import set_condition
from matrixcontainer.kubeapi.meta.quantities import parse_int
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp, timestamp
from matrixcontainer.kubeapi.schema.structural import copy_json

Obj = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
BACK_OFF_S, BACK_OFF_S_MAX = 10.0, 600.0
INDEXES_MAX = 100_000
"""Maximum completions that the API accepts for an indexed Job."""


@dataclass
class Plan:
    """The new status and actions. `create` has the completion indexes of pods to create, None for pods without one."""

    status: Obj
    create: list[int | None] = field(default_factory=list)
    delete: list[PodInfo] = field(default_factory=list)
    delete_uncounted: bool = False  # removed pods must not count as failed: remove their finalizer first
    release: list[PodInfo] = field(default_factory=list)
    delete_job: bool = False
    requeue_after_s: float | None = None
    event: tuple[str, str, bool] | None = None  # event: reason, message, warning


def is_true(status: Obj, kind: str) -> Obj | None:
    return next((c for c in status.get("conditions") or [] if c["type"] == kind and c["status"] == "True"), None)


def format_indexes(indexes: set[int]) -> str:
    """Format {0, 1, 2, 5} as "0-2,5"."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def parse_indexes(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(parse_int(first, 0), min(parse_int(last or first, -1), INDEXES_MAX) + 1))
    return found


def index_of(pod: PodInfo) -> int | None:
    found = parse_int((pod.labels or {}).get(INDEX, ""), -1)
    return found if found >= 0 else None


def plan(job: Obj, pods: list[PodInfo], now: float) -> Plan:
    current = job.get("status") or {}
    finished = is_true(current, "Complete") or is_true(current, "Failed")
    if finished:
        return _plan_finished(job, current, finished, pods, now)
    decision = _Decision(job, pods, now)
    decision.count()
    decision.start()
    decision.conclude()
    if decision.target:
        decision.terminate()
    elif job["spec"].get("suspend"):
        decision.suspend()
    elif "deletionTimestamp" not in job["metadata"]:
        decision.adjust_pods()
    return decision.finish()


def _plan_finished(job: Obj, status: Obj, finished: Obj, pods: list[PodInfo], now: float) -> Plan:
    found = Plan(status, release=[pod for pod in pods if pod.tracked])
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is not None and "deletionTimestamp" not in job["metadata"]:
        left = parse_timestamp(finished["lastTransitionTime"]) + ttl - now
        found.delete_job, found.requeue_after_s = left <= 0, left if left > 0 else None
    return found


class _Decision:
    def __init__(self, job: Obj, pods: list[PodInfo], now: float) -> None:
        self.job, self.spec, self.pods, self.now = job, job["spec"], pods, now
        self.status = copy_json(job.get("status") or {})
        self.found = Plan(self.status)
        self.active = [pod for pod in pods if pod.active]
        self.terminating = [pod for pod in pods if pod.deleting and not pod.ended]
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.done = parse_indexes(self.status.get("completedIndexes", ""))
        self.target: Obj | None = None

    # ---- counting

    def count(self) -> None:
        noted = {
            word: list((self.status.get("uncountedTerminatedPods") or {}).get(word) or [])
            for word in ("succeeded", "failed")
        }
        tracked = {pod.uid for pod in self.pods if pod.tracked}
        for word, uids in noted.items():
            self.status[word] = self.status.get(word, 0) + sum(uid not in tracked for uid in uids)
            noted[word] = [uid for uid in uids if uid in tracked]
        known = {*noted["succeeded"], *noted["failed"]}
        for pod in self.pods:
            if not pod.tracked or pod.uid in known:
                continue
            if pod.phase == "Succeeded":
                index = index_of(pod)
                if self.indexed and (index is None or index in self.done or index >= self._goal()):
                    self.found.release.append(pod)
                    continue
                if index is not None and self.indexed:
                    self.done.add(index)
                noted["succeeded"].append(pod.uid)
            elif pod.phase == "Failed" or pod.deleting:
                noted["failed"].append(pod.uid)
        self.uncounted_status = noted
        self.succeeded = len(self.done) if self.indexed else self.status["succeeded"] + len(noted["succeeded"])
        self.failed = self.status["failed"] + len(noted["failed"])
        terminal = {*noted["succeeded"], *noted["failed"]}
        self.found.release += [pod for pod in self.pods if pod.tracked and pod.uid in terminal]

    def _goal(self) -> int:
        return int(self.spec.get("completions") or 0)

    def start(self) -> None:
        if not self.spec.get("suspend") and "startTime" not in self.status:
            self.status["startTime"] = timestamp(self.now)

    # ---- deciding

    def conclude(self) -> None:
        self.target = is_true(self.status, "FailureTarget") or is_true(self.status, "SuccessCriteriaMet")
        if self.target:
            return
        if self._too_many_failures():
            self._set_target("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif (left := self._seconds_left()) is not None and left <= 0:
            self._set_target("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif self._is_complete():
            self._set_target("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")

    def _set_target(self, kind: str, reason: str, message: str) -> None:
        set_condition(self.status, kind, "True", reason, message, self.now)
        self.target = is_true(self.status, kind)

    def _too_many_failures(self) -> bool:
        limit = self.spec.get("backoffLimit", 6)
        if self.failed > limit:
            return True
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(pod.restart_sum for pod in self.active)
        return restarts > 0 if limit == 0 else restarts >= limit

    def _seconds_left(self) -> float | None:
        limit, started = self.spec.get("activeDeadlineSeconds"), self.status.get("startTime")
        if limit is None or not started or self.spec.get("suspend"):
            return None
        return parse_timestamp(started) + float(limit) - self.now

    def _is_complete(self) -> bool:
        if self.spec.get("completions") is None:
            return self.succeeded > 0 and not self.active
        return self.succeeded >= self._goal()

    # ---- doing

    def terminate(self) -> None:
        assert self.target is not None
        self.found.delete = self.active
        if self.active or self.terminating or any(self.uncounted_status.values()):
            return
        good = self.target["type"] == "SuccessCriteriaMet"
        kind = "Complete" if good else "Failed"
        set_condition(self.status, kind, "True", self.target["reason"], self.target["message"], self.now)
        if good:
            self.status["completionTime"] = timestamp(self.now)
        text = "Job completed" if good else self.target["message"]
        self.found.event = ("Completed" if good else self.target["reason"], text, not good)

    def suspend(self) -> None:
        self.found.delete, self.found.delete_uncounted = self.active, True
        self.status.pop("startTime", None)
        if not is_true(self.status, "Suspended"):
            set_condition(self.status, "Suspended", "True", "JobSuspended", "Job suspended", self.now)
            self.found.event = ("Suspended", "Job suspended", False)

    def adjust_pods(self) -> None:
        """Adjust the number of pods: remove surplus ones, or create missing ones once the failure back-off is over."""
        if is_true(self.status, "Suspended"):
            set_condition(self.status, "Suspended", "False", "JobResumed", "Job resumed", self.now)
            self.status["startTime"] = timestamp(self.now)
            self.found.event = ("Resumed", "Job resumed", False)
        parallel, goal = int(self.spec.get("parallelism", 1)), self.spec.get("completions")
        counted = len(self.active)
        if self.spec.get("podReplacementPolicy") == "Failed":
            counted += len(self.terminating)
        if goal is not None:
            wanted = min(parallel, max(int(goal) - self.succeeded, 0))
        else:
            wanted = min(parallel, counted) if self.succeeded else parallel
        if counted > wanted:
            self.found.delete = deletion_order(self.active, {})[: counted - wanted]
            self.found.delete_uncounted = True
        elif counted < wanted:
            if (wait := self._back_off()) > 0:
                self.found.requeue_after_s = wait
            else:
                self.found.create = self._indexes(wanted - counted)

    def _back_off(self) -> float:
        """Seconds until a failed pod may be replaced: ten after the first failure, doubling with each further one."""
        last = max((pod.finished for pod in self.pods if pod.phase == "Failed"), default=0.0)
        if not self.failed or not last:
            return 0.0
        return last + min(BACK_OFF_S * 2 ** min(self.failed - 1, 10), BACK_OFF_S_MAX) - self.now

    def _indexes(self, count: int) -> list[int | None]:
        if not self.indexed:
            return [None] * count
        taken = self.done | {index for pod in self.active if (index := index_of(pod)) is not None}
        free: list[int | None] = [index for index in range(self._goal()) if index not in taken]
        return free[:count]

    def finish(self) -> Plan:
        status = self.status
        status["uncountedTerminatedPods"] = {word: uids for word, uids in self.uncounted_status.items() if uids}
        status["ready"] = sum(pod.ready for pod in self.active)
        status["terminating"] = len(self.terminating)
        status["active"] = len(self.active)
        if self.indexed and self.done:
            status["completedIndexes"] = format_indexes(self.done)
        for word in ("active", "succeeded", "failed"):
            if not status[word]:
                del status[word]
        if (left := self._seconds_left()) is not None and left > 0 and not self.target:
            self.found.requeue_after_s = (
                left if self.found.requeue_after_s is None else min(left, self.found.requeue_after_s)
            )
        return self.found
