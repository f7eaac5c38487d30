"""Housekeeping once a minute: events past their hour are forgotten, history past its minutes is compacted."""

import asyncio

from matrixcontainer.kubeapi.builtin.events import LIFETIME_S
from matrixcontainer.kubeapi.meta.errors import ignoring
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion, Options

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
        """Delete events whose last write is an hour old; returns how many."""
        resource = self.core.builtin("", "events")
        oldest = self.core.now() - LIFETIME_S
        gone = 0
        for record in list(self.core.store.objects_of("events")):
            obj = record.obj
            seen = [obj["metadata"].get("creationTimestamp", ""), obj.get("lastTimestamp") or ""]
            if max(parse_timestamp(text) for text in seen) < oldest:
                with ignoring(404):
                    _, namespace, name = record.key
                    await self.core.verbs.delete(resource, namespace, name, Deletion(), Options(from_controller=True))
                    gone += 1
        return gone
