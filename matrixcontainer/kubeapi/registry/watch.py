"""Watches: the changes after a revision, in order, as lines of JSON, until the timeout or until the client disconnects.

Each watcher reads its resource's change log at its own pace and is woken after each commit. The line of a change is
encoded once per form and shared by all watchers. An object that starts or stops matching the selector appears as ADDED
or DELETED. A bookmark carries the store's revision and is sent only after everything up to it.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.list import Query
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Record
from matrixcontainer.kubeapi.storage.store import Store

BOOKMARK_S = 50.0  # clients consider a stream dead after 70 s of silence
FINAL_BOOKMARK_S = 2.0
CHUNK_BYTES_MAX = 256 * 1024  # per call, or one change: a client that has fallen behind gets the backlog in parts

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
    """One client's stream. `open` registers a callback for new changes; `next_chunk` returns the next
    changes as whole lines.

    The client's connection calls `next_chunk` at its own pace: a slow client misses nothing until the history is
    compacted past its position, and then the watch ends with 410. `ended` says that nothing will follow, `due` when to
    call `next_chunk` even without a wake-up."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        query: Query,
        options: WatchOptions,
        rng: random.Random,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.resource, self.query, self.options = store, resource, query, options
        self.is_gone = is_gone
        self.log = store.log(resource.storage)
        self.timeout_s = options.timeout_s or rng.uniform(1800, 3600)
        self.first = True
        self.ended = False
        self._unfiltered = options.form is None and not query.labels and not query.fields
        self._namespace = query.namespace
        self._position: int | None = None
        self._wake: Callable[[], None] | None = None
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + self.timeout_s
        self._next_bookmark = self._clock() + min(BOOKMARK_S, max(self.timeout_s - FINAL_BOOKMARK_S, 0.0))

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.log.waiters[wake] = lambda: self._position

    def close(self) -> None:
        if self._wake is not None:
            self.log.waiters.pop(self._wake, None)

    @property
    def due(self) -> float:
        """When to call `next_chunk` at the latest, on the loop's clock."""
        return min(self._ends_at, self._next_bookmark) if self.options.bookmarks else self._ends_at

    def next_chunk(self) -> bytes:
        """The next lines, b"" if there are none. Must not be called after `ended`."""
        if self._position is None:
            return self._start()
        log = self.log
        if self._position < log.start:
            return self._too_old(self.store.compacted_revision)
        lines: list[bytes] = []
        size = 0
        for change in log.since(self._position):
            self._position += 1
            if (line := self._line_of(change)) is not None:
                lines.append(line)
                size += len(line)
            if size >= CHUNK_BYTES_MAX:
                break
        if lines:
            return lines[0] if len(lines) == 1 else b"".join(lines)
        now = self._clock()
        if now >= self._ends_at or self.is_gone():
            self.ended = True
        elif self.options.bookmarks and now >= self._next_bookmark:
            final = self._ends_at - FINAL_BOOKMARK_S
            self._next_bookmark = final if now < final < now + BOOKMARK_S else now + BOOKMARK_S
            return self._bookmark()
        return b""

    def _start(self) -> bytes:
        revision = self.query.revision
        if revision in ("", "0"):
            self._position = self.log.end()
            return self._initial_events()
        if int(revision) < self.store.compacted_revision:
            return self._too_old(int(revision))
        if int(revision) > self.store.revision:  # all commits have been read: from before the database was restored
            return self._expired(f"too large resource version: {revision}, current: {self.store.revision}")
        self._position = self.log.position_after(int(revision))
        return self.next_chunk()

    # ---- lines

    def _initial_events(self) -> bytes:
        """Existing objects as ADDED, followed by the initial-events-end bookmark if requested."""
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
        if self._namespace and record.key[1] != self._namespace:
            return None
        if self._unfiltered:
            return self._shared_line(change.type, change)
        selected_now = change.type != "DELETED" and self._selects(record)
        selected_before = self._selects(change.previous)
        if not selected_now and not selected_before:
            return None
        kind = "MODIFIED" if selected_now and selected_before else "ADDED" if selected_now else "DELETED"
        if kind == "DELETED" and change.type != "DELETED":
            assert change.previous is not None
            last = change.previous.obj
            last["metadata"]["resourceVersion"] = str(change.revision)
            record = Record(record.key, record.uid, change.revision, orjson.dumps(last))
            return line(kind, self._body(record))
        if self.options.form is not None:
            return line(kind, self._body(record))
        return self._shared_line(kind, change)

    def _shared_line(self, kind: str, change: Change) -> bytes:
        token = (kind, self.resource.api_version)
        encoded: bytes | None = change.encoded.get(token)
        if encoded is None or self.resource.refresh_before >= change.record.revision:
            encoded = change.encoded[token] = line(kind, self._body(change.record))
        return encoded

    def _body(self, record: Record) -> bytes:
        if self.options.form is None:
            return self.resource.served_bytes(record)
        body = self.options.form(self.resource.served_object(record), self.first)
        self.first = False
        return orjson.dumps(body)

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        revision = str(self.store.revision)
        meta: dict[str, Any] = {"resourceVersion": revision}
        if not self.resource.custom:
            meta["creationTimestamp"] = None  # Go serialises the unset field as null
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
        return self._expired(f"too old resource version: {revision} ({self.store.compacted_revision})")

    def _expired(self, why: str) -> bytes:
        """End the watch with 410: the client has to list again."""
        self.ended = True
        return line("ERROR", json.dumps(errors.expired(why).status(), separators=(",", ":")).encode())
