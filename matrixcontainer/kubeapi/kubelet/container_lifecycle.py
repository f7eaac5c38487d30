"""Lifecycle of one pod's containers: waiting, running, ready, terminated, restarted; init containers first.

Updates the container statuses of a pod status in place. As timestamps have a precision of one second, a probe's delay
counts from the end of the second in which its container started: never early, at most a second late.
"""

from typing import Any

from matrixcontainer.kubeapi.kubelet.container_script import ScriptAction, container_action, pod_annotation
from matrixcontainer.kubeapi.kubelet.pod_references import NOTHING_MISSING, MissingReferences
from matrixcontainer.kubeapi.kubelet.stage_delays import StageDelays
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp, timestamp

Obj = dict[str, Any]


def earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


class Containers:
    def __init__(
        self, pod: Obj, status: Obj, now: float, delays: StageDelays, missing: MissingReferences = NOTHING_MISSING
    ) -> None:
        """`missing`: references that keep containers from their first start."""
        self.pod, self.status, self.now, self.delays, self.missing = pod, status, now, delays, missing
        self.spec = pod["spec"]
        self.policy = self.spec.get("restartPolicy", "Always")
        self.init = self._with_statuses("initContainers", "initContainerStatuses")
        self.main = self._with_statuses("containers", "containerStatuses")
        self.init_failed = False

    def _with_statuses(self, specs: str, statuses: str) -> list[tuple[Obj, Obj]]:
        """Pair each container with its status, creating a waiting one if it has none."""
        current = {state["name"]: state for state in self.status.get(statuses) or []}
        pairs = []
        for container in self.spec.get(specs) or []:
            state = current.get(container["name"])
            if state is None:
                reason = "PodInitializing" if self.spec.get("initContainers") else "ContainerCreating"
                state = {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "imageID": "",
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "lastState": {},
                    "state": {"waiting": {"reason": reason}},
                }
            pairs.append((container, state))
        if pairs:
            self.status[statuses] = [state for _, state in pairs]
        return pairs

    # ---- advancing

    def advance(self) -> float | None:
        """Advance every container to its state at this time; return when the next change is due."""
        next_change = None
        for container, state in self.init:
            next_change = earliest(next_change, self._advance_container(container, state, init=True))
            if not self._init_done(container, state):
                ended = state["state"].get("terminated")
                self.init_failed = bool(ended and ended["exitCode"] and self.policy == "Never")
                return None if self.init_failed else next_change
        for container, state in self.main:
            next_change = earliest(next_change, self._advance_container(container, state, init=False))
        return next_change

    def _init_done(self, container: Obj, state: Obj) -> bool:
        if container.get("restartPolicy") == "Always":
            return bool(state.get("started"))
        ended = state["state"].get("terminated")
        return ended is not None and ended["exitCode"] == 0

    def _advance_container(self, container: Obj, state: Obj, init: bool) -> float | None:
        """Advance one container until nothing more is due."""
        for _ in range(4):  # waiting, running, terminated, and waiting for the next start
            if "terminated" in state["state"]:
                due = self._advance_terminated(container, state, init)
            elif "running" in state["state"]:
                due = self._advance_running(container, state, init)
            else:
                due = self._advance_waiting(container, state, init)
            if due is None or due > self.now:
                return due
        return self.now + 1.0

    def _advance_waiting(self, container: Obj, state: Obj, init: bool) -> float | None:
        seed = f"{self.pod['metadata']['uid']} {container['name']}"
        reason = state["state"].get("waiting", {}).get("reason")
        if pod_annotation(self.pod, "image-pull", container["name"]) == "fail" and not state["restartCount"]:
            text = f'Back-off pulling image "{container.get("image", "")}"'
            state["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
            return self.now + self.delays.delay("pull", seed)
        if not state["restartCount"] and reason != "CrashLoopBackOff":
            if self.missing.volumes:
                return None
            if problem := self.missing.by_container.get(container["name"]):
                state["state"] = {"waiting": {"reason": "CreateContainerConfigError", "message": problem}}
                return None
        if reason == "CrashLoopBackOff":
            due = self._terminated_at(state) + self.delays.back_off(state["restartCount"])
        else:
            due = self._startable_since(init) + self.delays.delay("create", seed)
        if self.now < due:
            return due
        if reason == "CrashLoopBackOff":
            state["restartCount"] += 1
        state["state"] = {"running": {"startedAt": timestamp(self.now)}}
        state["started"] = False
        state["containerID"] = f"emulated://{self.pod['metadata']['uid']}/{container['name']}/{state['restartCount']}"
        state["imageID"] = container.get("image", "")
        return self.now

    def _startable_since(self, init: bool) -> float:
        """When the container became startable: the pod was accepted, or the last init container ended."""
        ends = [self._terminated_at(state) for _, state in self.init if "terminated" in state["state"]]
        return max([parse_timestamp(self.status["startTime"]), *ends])

    def _terminated_at(self, state: Obj) -> float:
        ended = state["state"].get("terminated") or (state.get("lastState") or {}).get("terminated") or {}
        return parse_timestamp(ended.get("finishedAt", ""))

    def _advance_running(self, container: Obj, state: Obj, init: bool) -> float | None:
        started_at = parse_timestamp(state["state"]["running"]["startedAt"])
        action = self.action(container, init)
        if action.run_s is not None and self.now >= started_at + action.run_s:
            self._terminate(state, action.exit_code)
            return self.now
        ends_at = None if action.run_s is None else started_at + action.run_s
        startup_at = (
            started_at + 1 + _probe_delay_s(container["startupProbe"]) if container.get("startupProbe") else started_at
        )
        state["started"] = self.now >= startup_at
        ready_at = startup_at
        if probe := container.get("readinessProbe"):
            ready_at = max(startup_at, started_at + 1 + _probe_delay_s(probe))
        if init and container.get("restartPolicy") != "Always":
            state["ready"] = False
            return ends_at
        not_ready = pod_annotation(self.pod, "ready", container["name"]) == "false"
        state["ready"] = bool(state["started"] and self.now >= ready_at and not not_ready)
        return earliest(ends_at, *(time for time in (startup_at, ready_at) if time > self.now))

    def action(self, container: Obj, init: bool) -> ScriptAction:
        action = container_action(self.pod, container)
        if action.run_s is not None or container.get("restartPolicy") == "Always":
            return action
        seed = f"{self.pod['metadata']['uid']} {container['name']}"
        if init:
            return ScriptAction(self.delays.delay("init", seed), action.exit_code, action.lines)
        owners = self.pod["metadata"].get("ownerReferences") or []
        if any(owner.get("kind") == "Job" and owner.get("controller") for owner in owners):
            return ScriptAction(self.delays.delay("job", seed), action.exit_code, action.lines)
        return action

    def _terminate(self, state: Obj, code: int, reason: str = "") -> None:
        began = state["state"].get("running", {}).get("startedAt", timestamp(self.now))
        state["state"] = {
            "terminated": {
                "exitCode": code,
                "reason": reason or ("Error" if code else "Completed"),
                "startedAt": began,
                "finishedAt": timestamp(self.now),
                "containerID": state.get("containerID", ""),
            }
        }
        state["ready"] = state["started"] = False

    def _advance_terminated(self, container: Obj, state: Obj, init: bool) -> float | None:
        """Leave the container terminated, or make it wait for a restart, as the restart policy says."""
        code = state["state"]["terminated"]["exitCode"]
        policy = self.policy
        if init:
            state["ready"] = code == 0
            policy = "Always" if container.get("restartPolicy") == "Always" else "Never" if code == 0 else policy
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            return None
        wait_s = self.delays.back_off(state["restartCount"])
        text = f"back-off {wait_s:g}s restarting failed container={container['name']}"
        state["lastState"] = state["state"]
        state["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
        return self.now

    def terminate_all(self, code: int, reason: str) -> None:
        for _, state in self.init + self.main:
            if "terminated" not in state["state"]:
                self._terminate(state, code, reason)

    # ---- results

    def exit_codes(self) -> list[int] | None:
        """Exit codes of the main containers once all have terminated; None before."""
        ended = [state["state"].get("terminated") for _, state in self.main]
        return [end["exitCode"] for end in ended] if all(ended) else None

    def any_started(self) -> bool:
        return any(
            "running" in state["state"] or state.get("lastState") or "terminated" in state["state"]
            for _, state in self.main
        )

    def incomplete_init(self) -> list[str]:
        return [container["name"] for container, state in self.init if not self._init_done(container, state)]

    def unready(self) -> list[str]:
        return [container["name"] for container, state in self.main if not state["ready"]]


def _probe_delay_s(probe: Obj) -> float:
    """Seconds after the start until a probe that always succeeds reaches its success threshold."""
    success_delay_s = max((probe.get("successThreshold") or 1) - 1, 0) * (probe.get("periodSeconds") or 10)
    return float((probe.get("initialDelaySeconds") or 0) + success_delay_s)
