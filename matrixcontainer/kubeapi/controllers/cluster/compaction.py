"""Housekeeping once a minute: expired events are deleted and the change history is compacted.

Events expire an hour after their last write, whatever times they contain, and without admission or finalizers: upstream
this is a lease on the event's key in etcd.
"""

import asyncio
import contextlib
from typing import Any

from matrixcontainer.kubeapi.builtin.events import LIFETIME_S
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Conflict

PERIOD_S = 60.0


class Compactor:
    def __init__(self, core: Core) -> None:
        self.core = core

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.delete_expired_events()
            await self.core.store.compact()

    async def delete_expired_events(self) -> int:
        """Delete events that were last written over an hour ago; return how many."""
        resource = self.core.builtin("", "events")
        expires_before = self.core.now() - LIFETIME_S
        deleted = 0
        for record in list(self.core.store.objects_of("events")):
            if _last_written(event := record.obj) < expires_before:
                with contextlib.suppress(Conflict):  # written or deleted meanwhile
                    await self.core.verbs.writer.erase(resource, record, event)
                    deleted += 1
        return deleted


def _last_written(event: dict[str, Any]) -> float:
    """Time of the last write, as recorded by the server."""
    meta = event["metadata"]
    times = [entry.get("time") or "" for entry in meta.get("managedFields") or []]
    return max(parse_timestamp(text) for text in [meta.get("creationTimestamp", ""), *times])
