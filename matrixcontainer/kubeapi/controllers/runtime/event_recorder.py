"""Records controllers' events, in the background so that no reconcile waits for them.

Repeating an event of an object increments the count of its Event. Events are best effort: one that cannot be written is
dropped.
"""

import asyncio
import hashlib
from typing import Any

from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.timestamps import timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Options

QUEUE_LENGTH_MAX = 10_000


class EventRecorder:
    def __init__(self, core: Core) -> None:
        self.core = core
        self._queue: list[dict[str, Any]] = []
        self._wake = asyncio.Event()

    def event(self, obj: dict[str, Any], reason: str, message: str, source: str, warning: bool = False) -> None:
        """Queue an event about the object `obj`, reported by the component `source`."""
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        if len(self._queue) >= QUEUE_LENGTH_MAX:
            return
        digest = hashlib.sha256(f"{meta.get('uid')} {reason} {message} {source}".encode()).hexdigest()[:16]
        at = timestamp(self.core.now())
        reference = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": meta["name"],
            "uid": meta.get("uid", ""),
            "resourceVersion": meta.get("resourceVersion", ""),
        }
        if namespace:
            reference["namespace"] = namespace
        self._queue.append(
            {
                "metadata": {"name": f"{meta['name']}.{digest}"[:253], "namespace": namespace or "default"},
                "involvedObject": reference,
                "reason": reason,
                "message": message[:1024],
                "type": "Warning" if warning else "Normal",
                "source": {"component": source},
                "reportingComponent": source,
                "reportingInstance": "",
                "firstTimestamp": at,
                "lastTimestamp": at,
                "count": 1,
            }
        )
        self._wake.set()

    async def run(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            batch, self._queue = self._queue[:64], self._queue[64:]
            await asyncio.gather(*(self._write(event) for event in batch))

    async def _write(self, event: dict[str, Any]) -> None:
        resource = self.core.builtin("", "events")
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        options = Options(user="system:kube-controller-manager", field_manager="kube-controller-manager")
        options.field_validation = "Ignore"

        def increment_count(current: dict[str, Any]) -> dict[str, Any]:
            return current | {"count": (current.get("count") or 1) + 1, "lastTimestamp": event["lastTimestamp"]}

        try:
            if self.core.store.latest(("events", namespace, name)) is None:
                await self.core.verbs.create(resource, namespace, event, options)
            else:
                await self.core.verbs.modify(resource, namespace, name, increment_count, options)
        except ApiError:
            pass
