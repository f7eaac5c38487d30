"""The changes of one transaction, and the writers that wait for it."""

import asyncio

from matrixcontainer.kubeapi.storage.objects import Change


class Batch:
    """Changes that become durable together. `done` resolves once they are, or have failed."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._writers: list[asyncio.Future[None]] = []

    def outcome(self) -> "asyncio.Future[None]":
        """A future with the result of `done` for one writer, which may cancel it."""
        writer: asyncio.Future[None] = self._loop.create_future()
        self._writers.append(writer)
        return writer

    def resolve(self, failure: Exception | None = None) -> None:
        for future in (self.done, *self._writers):
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
                future.exception()  # mark as retrieved: all writers may have been cancelled
