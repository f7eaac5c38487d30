"""Logs of emulated containers, generated from their commands and annotations, as no program runs.

The lines are generated from the pod's status on each request, so they are the same after a restart.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.kubelet.container_script import container_action
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.schema.formats import DATE_TIME

Obj = dict[str, Any]
Line = tuple[str, str]  # timestamp, text

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class LogOptions:
    """PodLogOptions."""

    container: str = ""
    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    since_s: int | None = None
    since_time: str = ""
    tail: int | None = None
    bytes_max: int | None = None


def read_log(core: Core, pod: Obj, options: LogOptions) -> bytes | AsyncIterator[bytes]:
    """The log as bytes, or as chunks if followed. Raises 400 with the kubelet's messages."""
    _validate(options, pod["metadata"]["name"])
    container = select_container(pod, options.container)
    if not pod["spec"].get("nodeName"):
        return b""  # not scheduled yet, so there are no logs
    lines = log_lines(pod, container, options.previous)
    shown = _apply_limits(lines, options, core.now())
    if not options.follow or options.previous:
        text = _format_lines(shown, options.timestamps)
        return text[: options.bytes_max] if options.bytes_max else text
    return _follow(core, options, pod, container, shown, len(lines))


def _validate(options: LogOptions, pod: str) -> None:
    if options.since_time and not DATE_TIME.fullmatch(options.since_time):
        raise errors.bad_request(f"sinceTime: {errors.format_value(options.since_time)} is not an RFC 3339 timestamp")
    causes = []
    if options.tail is not None and options.tail < 0:
        causes.append(errors.invalid("tailLines", options.tail, "must be greater than or equal to 0"))
    if options.bytes_max is not None and options.bytes_max < 1:
        causes.append(errors.invalid("limitBytes", options.bytes_max, "must be greater than 0"))
    if options.since_s is not None and options.since_time:
        message = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(errors.forbidden_field("", message))
    elif options.since_s is not None and options.since_s < 1:
        causes.append(errors.invalid("sinceSeconds", options.since_s, "must be greater than 0"))
    if causes:
        raise errors.unprocessable("PodLogOptions", "", pod, causes)


def select_container(pod: Obj, requested: str) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    names = [container["name"] for container in spec.get("containers") or []]
    known = names + [container["name"] for container in spec.get("initContainers") or []]
    if not requested:
        requested = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "") or (
            names[0] if len(known) == 1 else ""
        )
    if not requested:
        choices = f"[{' '.join(known)}]"
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: {choices}")
    if requested not in known:
        raise errors.bad_request(f"container {requested} is not valid for pod {name}")
    return requested


def _container_status(pod: Obj, name: str) -> Obj:
    status = pod.get("status") or {}
    states = (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
    return next((state for state in states if state["name"] == name), {})


def log_lines(pod: Obj, name: str, previous: bool = False) -> list[Line]:
    """All lines that the container has printed so far."""
    current = _container_status(pod, name)
    state = current.get("state") or {}
    if previous:
        state = current.get("lastState") or {}
        if "terminated" not in state:
            text = f'previous terminated container "{name}" in pod "{pod["metadata"]["name"]}" not found'
            raise errors.bad_request(text)
    elif "waiting" in state and "terminated" in (current.get("lastState") or {}):
        state = current["lastState"]
    terminated = state.get("terminated")
    started_at = (state.get("running") or terminated or {}).get("startedAt")
    if not started_at:
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        text = f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: {reason}'
        raise errors.bad_request(text)
    spec = pod["spec"]
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    container = next(container for container in containers if container["name"] == name)
    printed = container_action(pod, container).lines
    if printed:
        return [(started_at, line) for line in printed]
    words = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
    lines = [
        (started_at, f"{name}: {container.get('image', '')} {words}".rstrip() + f" on {spec['nodeName']}, emulated")
    ]
    if terminated:
        lines.append((terminated["finishedAt"], f"{name}: ended with exit code {terminated['exitCode']}"))
    return lines


def _apply_limits(lines: list[Line], options: LogOptions, now: float) -> list[Line]:
    after = now - options.since_s if options.since_s else parse_timestamp(options.since_time)
    kept = [line for line in lines if parse_timestamp(line[0]) >= after]
    return kept if options.tail is None else kept[len(kept) - min(options.tail, len(kept)) :]


def _format_lines(lines: list[Line], stamped: bool) -> bytes:
    return "".join(f"{at} {text}\n" if stamped else f"{text}\n" for at, text in lines).encode()


async def _follow(
    core: Core, options: LogOptions, pod: Obj, name: str, lines_so_far: list[Line], sent: int
) -> AsyncIterator[bytes]:
    """Yield the log as it grows, until the container terminates or the pod is deleted."""
    key = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    wake = asyncio.Event()
    waiters = core.store.log("pods").waiters
    waiters[wake.set] = lambda: None
    try:
        yield _format_lines(lines_so_far, options.timestamps)
        while not core.stopping:
            record = core.store.get(key)
            if record is None or record.uid != pod["metadata"]["uid"]:
                return
            pod = record.obj
            lines = log_lines(pod, name)
            if lines[sent:]:
                yield _format_lines(lines[sent:], options.timestamps)
                sent = len(lines)
            if "running" not in (_container_status(pod, name).get("state") or {}):
                return
            wake.clear()
            await wake.wait()
    finally:
        waiters.pop(wake.set, None)
