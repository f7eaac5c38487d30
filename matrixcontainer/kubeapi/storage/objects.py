"""Record (an object at a revision) and Change (a committed write), the store's exceptions and its encoding."""

from typing import Any

import orjson

Key = tuple[str, str, str]  # resource ("plural.group"), namespace ("" for cluster scope), name


class Conflict(Exception):
    """The object was changed, created or deleted since it was read."""


class StorageError(Exception):
    """The database failed; no acknowledged write is lost. The message says why and suggests a remedy.

    `kind` is Full, Locked, Damaged, Refused or Lost. `text` omits the `place` of the database, which clients must not
    see.
    """

    def __init__(self, text: str, kind: str = "Lost", address: str = "") -> None:
        super().__init__(f"{address}: {text}" if address else text)
        self.text, self.kind = text, kind


class TooLarge(Exception):
    """The object would exceed OBJECT_BYTES_MAX."""


class NotJsonSerializable(Exception):
    """The value cannot be represented in JSON, or is nested too deeply."""


OBJECT_BYTES_MAX = 3 * 2**19
"""As in etcd (--max-request-bytes). Bodies may be larger, but repeated patches must not grow an object indefinitely."""
RESERVED_NESTING = 16
"""Nesting levels that stored objects must leave free for the list, table or review around them: one object that is too
deep would make every list that contains it fail.
"""

NO_LABELS: dict[str, str] = {}


class Record:
    """An object at one revision, as JSON bytes. `obj` returns a fresh dict each time, so callers cannot modify the
    store's copy."""

    __slots__ = ("_labels", "body", "key", "revision", "uid")

    def __init__(self, key: Key, uid: str, revision: int, body: bytes) -> None:
        self.key, self.uid, self.revision, self.body = key, uid, revision, body
        self._labels: dict[str, str] | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels, parsed once for all selectors; read-only."""
        if self._labels is None:
            self._labels = self.obj["metadata"].get("labels") or NO_LABELS
        return self._labels

    @property
    def obj(self) -> dict[str, Any]:
        return orjson.loads(self.body)


def check_size(record: Record) -> None:
    """Raise TooLarge if the object exceeds OBJECT_BYTES_MAX."""
    if len(record.body) > OBJECT_BYTES_MAX:
        raise TooLarge


class Change:
    """One committed write. `encoded` caches its wire forms, so that all watchers share one encoding."""

    __slots__ = ("at", "encoded", "previous", "record", "type")

    def __init__(self, type: str, record: Record, previous: Record | None, at: float) -> None:
        self.type, self.record, self.previous, self.at = type, record, previous, at
        self.encoded: dict[Any, Any] = {}

    @property
    def revision(self) -> int:
        return self.record.revision


def encode(obj: dict[str, Any]) -> bytes:
    """JSON with apiVersion and kind first, as stored and sent, in a buffer of exactly its size.

    orjson returns its own buffer, of at least 4 KiB and up to eight times the text, too much for what stays in memory.
    """
    value: Any = {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")} | obj
    for _ in range(RESERVED_NESTING):
        value = [value]
    return bytes(memoryview(dump_json(value))[RESERVED_NESTING:-RESERVED_NESTING])


def dump_json(value: Any) -> bytes:
    """Encode a value as JSON. Raises NotJsonSerializable instead of orjson's TypeError, which could be any other."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as failure:
        raise NotJsonSerializable(str(failure)) from failure
