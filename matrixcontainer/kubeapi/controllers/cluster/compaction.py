"""Housekeeping once a minute: events past their hour are forgotten, history past its minutes is compacted.

An event's hour is the lease of its key in etcd: it runs from the last write, whatever the event itself says of when,
and nobody is asked when it ends, neither admission nor finalizers.
"""

import asyncio
import contextlib
from typing import Any

from matrixcontainer.kubeapi.builtin.events import LIFETIME_S
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Conflict

PERIOD_S = 60.0


class Compaction:
    def __init__(self, core: Core) -> None:
        self.core = core

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.forget_events()
            await self.core.store.compact()

    async def forget_events(self) -> int:
        """Erase events whose last write is an hour old; returns how many."""
        resource = self.core.builtin("", "events")
        oldest = self.core.now() - LIFETIME_S
        gone = 0
        for record in list(self.core.store.objects_of("events")):
            if _written(event := record.obj) < oldest:
                with contextlib.suppress(Conflict):  # written or deleted meanwhile
                    await self.core.verbs.writer.erase(resource, record, event)
                    gone += 1
        return gone


def _written(event: dict[str, Any]) -> float:
    """When it was last written, as the server noted it."""
    meta = event["metadata"]
    noted = [entry.get("time") or "" for entry in meta.get("managedFields") or []]
    return max(parse_timestamp(text) for text in [meta.get("creationTimestamp", ""), *noted])
