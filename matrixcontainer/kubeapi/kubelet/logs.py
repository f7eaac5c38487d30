"""What `kubectl logs` shows of containers in which no program runs: what their commands and annotations say.

The lines are made from the pod's status each time they are asked for, so they are the same after a restart.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.kubelet.container_script import action_of
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.request import Request
    from matrixcontainer.kubeapi.server import KubeApi

Obj = dict[str, Any]
Line = tuple[str, str]  # timestamp, text

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def answer(api: "KubeApi", request: "Request", pod: Obj) -> bytes | AsyncIterator[bytes]:
    """The log as bytes, or as chunks while it is followed; 400 with the words of the kubelet."""
    container = chosen_container(pod, request.query.get("container", ""))
    previous = request.flag("previous")
    lines = lines_of(pod, container, previous)
    shown = _limited(lines, request, api.now())
    if not request.flag("follow") or previous:
        text = _text(shown, request)
        limit = request.number("limitBytes")
        return text[:limit] if limit else text
    return _follow(api, request, pod, container, shown, len(lines))


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
    """All the container has printed so far."""
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


def _limited(lines: list[Line], request: "Request", now: float) -> list[Line]:
    since = request.number("sinceSeconds")
    after = now - since if since else parse_timestamp(request.query.get("sinceTime", "") or "")
    kept = [line for line in lines if parse_timestamp(line[0]) >= after]
    if "tailLines" in request.query:
        tail = request.number("tailLines")
        kept = kept[len(kept) - min(tail, len(kept)) :]
    return kept


def _text(lines: list[Line], request: "Request") -> bytes:
    stamped = request.flag("timestamps")
    return "".join(f"{at} {text}\n" if stamped else f"{text}\n" for at, text in lines).encode()


async def _follow(
    api: "KubeApi", request: "Request", pod: Obj, name: str, shown: list[Line], sent: int
) -> AsyncIterator[bytes]:
    """The rest as it comes, until the container has ended or the pod has gone."""
    key = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
    wake = asyncio.Event()
    waiters = api.store.log("pods").waiters
    waiters.add(wake.set)
    try:
        yield _text(shown, request)
        while not api.stopping:
            record = api.store.get(key)
            if record is None or record.uid != pod["metadata"]["uid"]:
                return
            pod = record.obj
            lines = lines_of(pod, name)
            if lines[sent:]:
                yield _text(lines[sent:], request)
                sent = len(lines)
            if "running" not in (_state(pod, name).get("state") or {}):
                return
            wake.clear()
            await wake.wait()
    finally:
        waiters.discard(wake.set)
