"""Logs of emulated containers, generated from their commands and annotations, as no program runs.

The lines are generated from the pod's status on each request, so they are the same after a restart.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from matrixcontainer.kubeapi.kubelet.container_script import action_of
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
    _check(options, pod["metadata"]["name"])
    container = chosen_container(pod, options.container)
    if not pod["spec"].get("nodeName"):
        return b""  # not scheduled yet, so there are no logs
    lines = lines_of(pod, container, options.previous)
    shown = _limited(lines, options, core.now())
    if not options.follow or options.previous:
        text = _text(shown, options.timestamps)
        return text[: options.bytes_max] if options.bytes_max else text
    return _follow(core, options, pod, container, shown, len(lines))


def _check(options: LogOptions, pod: str) -> None:
    if options.since_time and not DATE_TIME.fullmatch(options.since_time):
        raise errors.bad_request(f"sinceTime: {errors.shown(options.since_time)} is not an RFC 3339 timestamp")
    found = []
    if options.tail is not None and options.tail < 0:
        found.append(errors.invalid("tailLines", options.tail, "must be greater than or equal to 0"))
    if options.bytes_max is not None and options.bytes_max < 1:
        found.append(errors.invalid("limitBytes", options.bytes_max, "must be greater than 0"))
    if options.since_s is not None and options.since_time:
        why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        found.append(errors.forbidden_field("", why))
    elif options.since_s is not None and options.since_s < 1:
        found.append(errors.invalid("sinceSeconds", options.since_s, "must be greater than 0"))
    if found:
        raise errors.unprocessable("PodLogOptions", "", pod, found)


def chosen_container(pod: Obj, wanted: str) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    names = [container["name"] for container in spec.get("containers") or []]
    known = names + [container["name"] for container in spec.get("initContainers") or []]
    if not wanted:
        wanted = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "") or (
            names[0] if len(known) == 1 else ""
        )
    if not wanted:
        listed = f"[{' '.join(known)}]"
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: {listed}")
    if wanted not in known:
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted


def _state(pod: Obj, name: str) -> Obj:
    status = pod.get("status") or {}
    states = (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
    return next((state for state in states if state["name"] == name), {})


def lines_of(pod: Obj, name: str, previous: bool = False) -> list[Line]:
    """All lines that the container has printed so far."""
    current = _state(pod, name)
    state = current.get("state") or {}
    if previous:
        state = current.get("lastState") or {}
        if "terminated" not in state:
            text = f'previous terminated container "{name}" in pod "{pod["metadata"]["name"]}" not found'
            raise errors.bad_request(text)
    elif "waiting" in state and "terminated" in (current.get("lastState") or {}):
        state = current["lastState"]
    ended = state.get("terminated")
    began = (state.get("running") or ended or {}).get("startedAt")
    if not began:
        reason = (state.get("waiting") or {}).get("reason", "ContainerCreating")
        text = f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: {reason}'
        raise errors.bad_request(text)
    spec = pod["spec"]
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    container = next(container for container in containers if container["name"] == name)
    printed = action_of(pod, container).lines
    if printed:
        return [(began, line) for line in printed]
    words = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
    lines = [(began, f"{name}: {container.get('image', '')} {words}".rstrip() + f" on {spec['nodeName']}, emulated")]
    if ended:
        lines.append((ended["finishedAt"], f"{name}: ended with exit code {ended['exitCode']}"))
    return lines


def _limited(lines: list[Line], options: LogOptions, now: float) -> list[Line]:
    after = now - options.since_s if options.since_s else parse_timestamp(options.since_time)
    kept = [line for line in lines if parse_timestamp(line[0]) >= after]
    return kept if options.tail is None else kept[len(kept) - min(options.tail, len(kept)) :]


def _text(lines: list[Line], stamped: bool) -> bytes:
    return "".join(f"{at} {text}\n" if stamped else f"{text}\n" for at, text in lines).encode()


async def _follow(
    core: Core, options: LogOptions, pod: Obj, name: str, shown: list[Line], sent: int
) -> AsyncIterator[bytes]:
    """Yield the log as it grows, until the container terminates or the pod is deleted."""
    key = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    wake = asyncio.Event()
    waiters = core.store.log("pods").waiters
    waiters[wake.set] = lambda: None
    try:
        yield _text(shown, options.timestamps)
        while not core.stopping:
            record = core.store.get(key)
            if record is None or record.uid != pod["metadata"]["uid"]:
                return
            pod = record.obj
            lines = lines_of(pod, name)
            if lines[sent:]:
                yield _text(lines[sent:], options.timestamps)
                sent = len(lines)
            if "running" not in (_state(pod, name).get("state") or {}):
                return
            wake.clear()
            await wake.wait()
    finally:
        waiters.pop(wake.set, None)
