"""One object at one revision, and one committed write: what the store holds and everybody else is handed."""

from typing import Any

import orjson

Key = tuple[str, str, str]  # resource ("plural.group"), namespace ("" for cluster scope), name


class Conflict(Exception):
    """The object changed, appeared or went since it was read."""


class StorageError(Exception):
    """The database failed; nothing acknowledged is lost. The text says why and what would help.

    `kind` is Full, Locked, Damaged, Refused or Lost. `text` leaves out the `place` of the database, which is for its
    operator alone.
    """

    def __init__(self, text: str, kind: str = "Lost", place: str = "") -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.text, self.kind = text, kind


class TooLarge(Exception):
    """The object would be larger than one may be."""


class NotJson(Exception):
    """JSON cannot say it, or not that deep."""


OBJECT_BYTES_MAX = 3 * 2**19
"""As in etcd (--max-request-bytes): a body may be larger, but what patches make of an object may not grow for ever."""
ROOM = 16
"""Levels of nesting that what is stored leaves free: a list, a table or a review puts some around it, and one object
that is too deep for them would keep everybody from all the others.
"""

NO_LABELS: dict[str, str] = {}


class Record:
    """One object at one revision, as JSON bytes. `obj` is a fresh dict at every call; nobody can spoil the store."""

    __slots__ = ("_labels", "body", "key", "revision", "uid")

    def __init__(self, key: Key, uid: str, revision: int, body: bytes) -> None:
        self.key, self.uid, self.revision, self.body = key, uid, revision, body
        self._labels: dict[str, str] | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Its labels, parsed once for all selectors; only to be read."""
        if self._labels is None:
            self._labels = self.obj["metadata"].get("labels") or NO_LABELS
        return self._labels

    @property
    def obj(self) -> dict[str, Any]:
        return orjson.loads(self.body)


def demand_size(record: Record) -> None:
    """Raises TooLarge for what is larger than an object may be."""
    if len(record.body) > OBJECT_BYTES_MAX:
        raise TooLarge


class Change:
    """One committed write. `encoded` keeps each wire form of it, so that many watchers share one encoding."""

    __slots__ = ("at", "encoded", "previous", "record", "type")

    def __init__(self, type: str, record: Record, previous: Record | None, at: float) -> None:
        self.type, self.record, self.previous, self.at = type, record, previous, at
        self.encoded: dict[Any, Any] = {}

    @property
    def revision(self) -> int:
        return self.record.revision


def encode(obj: dict[str, Any]) -> bytes:
    """JSON with apiVersion and kind first, as stored and sent, in memory of its own size.

    What orjson hands over is its buffer, of 4 KiB at least and up to eight times the text, which counts for what stays.
    """
    value: Any = {"apiVersion": obj.get("apiVersion", ""), "kind": obj.get("kind", "")} | obj
    for _ in range(ROOM):
        value = [value]
    return bytes(memoryview(dump_json(value))[ROOM:-ROOM])


def dump_json(value: Any) -> bytes:
    """A value as JSON text; raises NotJson, where orjson raises a TypeError that nobody can tell from any other."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as failure:
        raise NotJson(str(failure)) from failure
