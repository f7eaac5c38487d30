"""A mirror of one collection of a service, kept up to date by a watch.

It stores the result of `convert` for each resource, and calls `changed` when that changes. While the service is down,
the last known state stays, and `reachable` is False.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx

from matrixcommon.api.client import watch
from matrixcommon.model.errors import MatrixError

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_WALL_S = 0.5
"""The pause between the end of a watch and the next."""


class Mirror(Generic[T]):
    """A mirror of `collection` at `http`, by (project, name)."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        collection: str,
        convert: Callable[[dict[str, Any]], T],
        changed: Callable[[], None],
        limit: int = 0,
    ) -> None:
        """`limit`: keep only the latest so many of each project (for events)."""
        self._http, self._path, self._convert, self._changed, self._limit = (
            http,
            f"/v1/{collection}",
            convert,
            changed,
            limit,
        )
        self.items: dict[tuple[str, str], T] = {}
        self._recent: dict[str, deque[tuple[str, str]]] = {}
        """With a limit, the keys of each project in order of arrival. They are counted per project, or a busy project
        would displace the others."""
        self.reachable = False
        self._refusal = ""
        """Why the last watch ended; empty once the next has begun."""
        self.version = 0
        """Grows with every change of what is kept."""

    async def run(self) -> None:
        """Forever: read the whole state, then follow its changes."""
        while True:
            try:
                await self._follow()
            except MatrixError as refused:
                if refused.message != self._refusal:  # a service that is down is retried twice a second but logged once
                    log.info("watch ended", extra={"path": self._path, "why": refused.message})
                self._refusal = refused.message
            self._set_reachable(False)
            await asyncio.sleep(RETRY_WALL_S)

    async def _follow(self) -> None:
        """Follow the stream until it ends. Events before the first bookmark are the whole present state."""
        whole: dict[tuple[str, str], T] | None = {}
        self._recent = {}
        async for event in watch(self._http, self._path, since=None):
            items = self.items if whole is None else whole
            if event.type == "BOOKMARK":
                if whole is not None:
                    self._replace(whole)
                whole = None
            elif event.type == "DELETED":
                self._set(items, event.view, None, quiet=whole is not None)
            else:
                self._set(items, event.view, self._convert(event.view), quiet=whole is not None)

    def _set(self, items: dict[tuple[str, str], T], view: dict[str, Any], value: T | None, quiet: bool) -> None:
        key = (view.get("project") or "", view["name"])
        if value == items.get(key):
            return
        if self._limit:
            self._keep_recent(items, key, gone=value is None)
        if value is None:
            items.pop(key, None)
        else:
            items[key] = value
        if not quiet:
            self._notify()

    def _keep_recent(self, items: dict[tuple[str, str], T], key: tuple[str, str], gone: bool) -> None:
        """Make room for `key` within its project's limit."""
        recent = self._recent.setdefault(key[0], deque())
        if key in items:
            recent.remove(key)
        if not gone:
            recent.append(key)
        if len(recent) > self._limit:
            items.pop(recent.popleft(), None)
        if not recent:
            del self._recent[key[0]]

    def _replace(self, whole: dict[tuple[str, str], T]) -> None:
        self._refusal = ""
        if whole != self.items:
            self.items = whole
            self._notify()
        self._set_reachable(True)

    def _notify(self) -> None:
        self.version += 1
        self._changed()

    def _set_reachable(self, now: bool) -> None:
        if now != self.reachable:
            self.reachable = now
            self._changed()
