"""Namespaces of the context cache: the project of each block, so that no project takes all of the memory."""

from __future__ import annotations

from collections import OrderedDict


class Namespaces:
    """Blocks in memory by namespace, the least recently used first. A namespace may hold at most `share` of the
    memory."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._blocks: dict[str, OrderedDict[int, None]] = {}
        self._namespace_of: dict[int, str] = {}

    def touch(self, key: int, namespace: str) -> None:
        """Mark a block as used. If it has no namespace yet, it gets this one."""
        current = self._namespace_of.get(key)
        if current is None:
            self.add(key, namespace)
        else:
            self._blocks[current].move_to_end(key)

    def add(self, key: int, namespace: str, *, oldest: bool = False) -> None:
        """Add a block to a namespace; with `oldest`, as if last used before all others."""
        self.remove(key)
        blocks = self._blocks.setdefault(namespace, OrderedDict())
        blocks[key] = None
        self._namespace_of[key] = namespace
        if oldest:
            blocks.move_to_end(key, last=False)

    def remove(self, key: int) -> None:
        """Remove a block that is no longer in memory."""
        namespace = self._namespace_of.pop(key, None)
        if namespace is not None:
            blocks = self._blocks[namespace]
            del blocks[key]
            if not blocks:
                del self._blocks[namespace]

    def namespace_of(self, key: int) -> str:
        """The namespace of a block in memory."""
        return self._namespace_of.get(key, "")

    def remaining_blocks(self, namespace: str, capacity: int) -> int:
        """How many more blocks the namespace may hold within its share of `capacity`."""
        return int(self._share * capacity) - len(self._blocks.get(namespace, ()))

    def evict_over_share(self, namespace: str, capacity: int) -> list[int]:
        """Remove and return the least recently used blocks of the namespace that exceed its share of `capacity`."""
        blocks = self._blocks.get(namespace, OrderedDict())
        evicted = [key for key, _ in zip(blocks, range(len(blocks) - int(self._share * capacity)), strict=False)]
        for key in evicted:
            self.remove(key)
        return evicted
