"""What is written in one transaction, and who waits for it."""

import asyncio

from matrixcontainer.kubeapi.storage.objects import Change


class Batch:
    """Changes that become durable together; `done` is settled when they have or have not."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._writers: list[asyncio.Future[None]] = []

    def outcome(self) -> "asyncio.Future[None]":
        """What `done` will be, for one writer, who may give up waiting for it."""
        writer: asyncio.Future[None] = self._loop.create_future()
        self._writers.append(writer)
        return writer

    def settle(self, failure: Exception | None = None) -> None:
        for one in (self.done, *self._writers):
            if one.done():
                continue
            if failure is None:
                one.set_result(None)
            else:
                one.set_exception(failure)
                one.exception()  # every writer of the batch may have gone already
