"""Watches: what changed after a revision, in order, as lines of JSON, until the time is up or the client has gone.

Every watcher walks the store's log of its resource at its own pace and is woken after each commit; the line of a
change is encoded once per form and shared by all watchers. An object that enters or leaves a selector appears as
ADDED or DELETED. Bookmarks carry the store's revision, and only once everything up to it has been handed over.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from matrixcontainer.kubeapi import errors
from matrixcontainer.kubeapi.listing import Query
from matrixcontainer.kubeapi.records import Change, Record
from matrixcontainer.kubeapi.resources import Resource
from matrixcontainer.kubeapi.store import Store

BOOKMARK_S = 50.0  # clients call a stream dead after 70 s of silence
LAST_BOOKMARK_S = 2.0

Form = Callable[[dict[str, Any], bool], dict[str, Any]]  # (object, first of the stream) -> what is sent as `object`


@dataclass
class WatchOptions:
    timeout_s: float = 0.0
    bookmarks: bool = False
    initial_events: bool = False
    form_name: str = ""
    form: Form | None = None


def line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)


class Watch:
    """One client's stream; `lines()` yields chunks of whole lines."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        query: Query,
        options: WatchOptions,
        chance: random.Random,
        gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.resource, self.query, self.options = store, resource, query, options
        self.gone = gone
        self.log = store.log(resource.storage)
        self.wake = asyncio.Event()
        self.timeout_s = options.timeout_s or chance.uniform(1800, 3600)
        self.first = True

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.timeout_s
        self.log.waiters.add(self.wake)
        try:
            revision = self.query.revision
            if revision in ("", "0"):
                place = self.log.end()
                yield self._present()
            else:
                if int(revision) < self.store.floor:
                    yield self._too_old(int(revision))
                    return
                place = self.log.position_after(int(revision))
            async for chunk in self._follow(place, ends):
                yield chunk
        finally:
            self.log.waiters.discard(self.wake)

    async def _follow(self, place: int, ends: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        next_bookmark = loop.time() + min(BOOKMARK_S, max(self.timeout_s - LAST_BOOKMARK_S, 0.0))
        while True:
            self.wake.clear()
            if place < self.log.start:
                yield self._too_old(self.store.floor)
                return
            end = self.log.end()
            if place < end:
                fresh = [self.log.changes[index - self.log.start] for index in range(place, end)]
                place = end
                if chunk := b"".join(filter(None, map(self._line_of, fresh))):
                    yield chunk
                continue
            now = loop.time()
            if now >= ends or self.gone():
                return
            if self.options.bookmarks and now >= next_bookmark:
                yield self._bookmark()
                final = ends - LAST_BOOKMARK_S
                next_bookmark = final if now < final < now + BOOKMARK_S else now + BOOKMARK_S
                continue
            deadline = min(ends, next_bookmark) if self.options.bookmarks else ends
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), max(deadline - now, 0.001))

    # ---- lines

    def _present(self) -> bytes:
        """What exists now, as ADDED, and the mark that ends it when asked for."""
        present = self.store.objects_of(self.resource.storage, self.query.namespace)
        lines = [line("ADDED", self._body(record)) for record in present if self._selects(record)]
        if self.options.initial_events:
            lines.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        return b"".join(lines)

    def _selects(self, record: Record | None) -> bool:
        if record is None or (self.query.namespace and record.key[1] != self.query.namespace):
            return False
        if not self.query.labels and not self.query.fields:
            return True
        return self.query.matches(self.resource, record)

    def _line_of(self, change: Change) -> bytes | None:
        record = change.record
        if self.query.namespace and record.key[1] != self.query.namespace:
            return None
        now = change.type != "DELETED" and self._selects(record)
        before = self._selects(change.previous)
        if not now and not before:
            return None
        kind = "MODIFIED" if now and before else "ADDED" if now else "DELETED"
        if kind == "DELETED" and change.type != "DELETED":
            assert change.previous is not None
            last = change.previous.obj
            last["metadata"]["resourceVersion"] = str(change.revision)
            record = Record(record.key, record.uid, change.revision, orjson.dumps(last))
            return line(kind, self._body(record))
        if self.options.form is not None:
            return line(kind, self._body(record))
        token = (kind, self.resource.api_version)
        encoded = change.encoded.get(token)
        if encoded is None or self.resource.refresh_before >= record.revision:
            encoded = change.encoded[token] = line(kind, self._body(record))
        return encoded

    def _body(self, record: Record) -> bytes:
        if self.options.form is None:
            return self.resource.shown_bytes(record)
        shown = self.options.form(self.resource.show(record), self.first)
        self.first = False
        return orjson.dumps(shown)

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        revision = str(self.store.revision)
        meta: dict[str, Any] = {"resourceVersion": revision, "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        obj: dict[str, Any] = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": meta}
        if self.options.form_name:
            obj |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        if self.options.form_name == "Table":
            row: dict[str, Any] = {"cells": None, "object": obj}
            obj = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision}}
            obj |= {"columnDefinitions": None, "rows": [row]}
        return line("BOOKMARK", json.dumps(obj, separators=(",", ":")).encode())

    def _too_old(self, revision: int) -> bytes:
        failure = errors.expired(f"too old resource version: {revision} ({self.store.floor})")
        return line("ERROR", json.dumps(failure.status(), separators=(",", ":")).encode())
