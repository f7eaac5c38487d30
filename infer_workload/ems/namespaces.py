"""Namespaces of the context cache: whose a block is, so that one project does not take the memory of all others."""

from __future__ import annotations

from collections import OrderedDict


class Namespaces:
    """Blocks in memory by namespace, the least recently used first. One may hold `share` of the memory at most."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._blocks: dict[str, OrderedDict[int, None]] = {}
        self._of: dict[int, str] = {}

    def use(self, key: int, namespace: str) -> None:
        """A prompt begins with that block, which is of that namespace where nobody's it is yet."""
        of = self._of.get(key)
        if of is None:
            self.add(key, namespace)
        else:
            self._blocks[of].move_to_end(key)

    def add(self, key: int, namespace: str, *, oldest: bool = False) -> None:
        """A new block, of that namespace; `oldest`: as if it was used before all others."""
        self.remove(key)
        blocks = self._blocks.setdefault(namespace, OrderedDict())
        blocks[key] = None
        self._of[key] = namespace
        if oldest:
            blocks.move_to_end(key, last=False)

    def remove(self, key: int) -> None:
        """It is in memory no more."""
        namespace = self._of.pop(key, None)
        if namespace is not None:
            blocks = self._blocks[namespace]
            del blocks[key]
            if not blocks:
                del self._blocks[namespace]

    def of(self, key: int) -> str:
        """Whose a block in memory is."""
        return self._of.get(key, "")

    def left(self, namespace: str, capacity: int) -> int:
        """How many blocks more it may hold of its share of `capacity`."""
        return int(self._share * capacity) - len(self._blocks.get(namespace, ()))

    def over(self, namespace: str, capacity: int) -> list[int]:
        """The blocks that are more than its share of `capacity`, the least recently used ones; they are no longer
        counted."""
        blocks = self._blocks.get(namespace, OrderedDict())
        gone = [key for key, _ in zip(blocks, range(len(blocks) - int(self._share * capacity)), strict=False)]
        for key in gone:
            self.remove(key)
        return gone
