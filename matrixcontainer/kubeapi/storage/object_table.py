"""The committed objects in memory, by key and in order of namespace and name.

A returned list is never modified: the next change of its resource works on a copy.
"""

from bisect import bisect_left
from collections.abc import Iterable

from matrixcontainer.kubeapi.storage.objects import Key, Record


def _key_of(record: Record) -> Key:
    return record.key


class ObjectTable:
    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Record]] = {}
        self._sorted: dict[str, list[Record]] = {}
        self._shared_lists: set[str] = set()  # resources whose sorted list a caller may still use

    def get(self, key: Key) -> Record | None:
        """The committed object, if any."""
        return self._objects.get(key[0], {}).get(key[1:])

    def objects_of(self, resource: str, namespace: str = "") -> list[Record]:
        """Committed objects of a resource, sorted by namespace and name; of all namespaces if none is given."""
        ordered = self._sorted.get(resource)
        if ordered is None:
            ordered = sorted(self._objects.get(resource, {}).values(), key=_key_of)
            self._sorted[resource] = ordered
        if not namespace:
            self._shared_lists.add(resource)
            return ordered
        first = bisect_left(ordered, (resource, namespace, ""), key=_key_of)
        return ordered[first : bisect_left(ordered, (resource, namespace + "\0", ""), key=_key_of)]

    def snapshot(self, resource: str) -> dict[tuple[str, str], Record]:
        return dict(self._objects.get(resource, {}))

    def count(self, resource: str) -> int:
        return len(self._objects.get(resource, {}))

    def resources(self) -> Iterable[str]:
        return [resource for resource, current in self._objects.items() if current]

    def set(self, key: Key, record: Record | None) -> None:
        """Set or, with None, remove the object at the key."""
        current = self._objects.setdefault(key[0], {})
        if record is None:
            current.pop(key[1:], None)
        else:
            current[key[1:]] = record
        ordered = self._sorted.get(key[0])
        if ordered is None:
            return
        at = bisect_left(ordered, key, key=_key_of)
        end = at + 1 if at < len(ordered) and ordered[at].key == key else at
        if key[0] in self._shared_lists:
            self._shared_lists.discard(key[0])
            ordered = self._sorted[key[0]] = ordered.copy()
        ordered[at:end] = [record] if record else []

    def clear(self) -> dict[Key, Record]:
        """Remove all objects and return them."""
        removed = self.all_objects()
        self._objects.clear()
        self._sorted.clear()
        return removed

    def all_objects(self) -> dict[Key, Record]:
        return {record.key: record for current in self._objects.values() for record in current.values()}
