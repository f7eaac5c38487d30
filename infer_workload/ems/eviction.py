"""Eviction from a full tier: of the least recently used block, or of the one that is cheapest to recompute.

Both policies keep blocks in order of last use. `lru` evicts the oldest. `cost` evicts only blocks that no present block
of a prompt follows, since later blocks are useless without an earlier one. Among the few oldest of these it takes the
cheapest to recompute (its own tokens, and those they attend to), weighted by how often it was used.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

V = TypeVar("V")

LRU, COST = "lru", "cost"
CANDIDATES = 16
"""Number of oldest blocks that are compared (assumed): enough for a choice, few enough to check each time."""
ATTENDED_TOKENS = 6000.0
"""Earlier tokens that cost as much as a token's own matrix products. For DeepSeek-R1: 37e9 weights per token at 0.80 of
the die's INT8 peak, against 2 x 128 heads x 320 wide x 61 layers per attended token, at 0.654 of the BF16 peak."""


class Tier(Generic[V]):
    """The blocks of one tier, in order of last use, the oldest first."""

    def __init__(self, policy: str, block_tokens: int) -> None:
        self._by_cost = policy == COST
        self._block_tokens = block_tokens
        self.blocks: OrderedDict[int, V] = OrderedDict()
        self._usage: dict[int, tuple[int, int, int | None]] = {}
        """Position in the prompt, number of uses, and the preceding block, by key; only for `cost`."""
        self._followers: Counter[int] = Counter()
        """Number of present blocks that follow a block, by key; only for `cost`."""

    def touch(self, hashes: Sequence[int], first: int = 0) -> None:
        """Mark these present blocks as used now; they are consecutive in a prompt, from its block `first` on."""
        if not self._by_cost:
            for key in hashes:
                self.blocks.move_to_end(key)
            return
        for at in range(len(hashes) - 1, -1, -1):  # backwards, so that no block is older than one that follows it
            key = hashes[at]
            self.blocks.move_to_end(key)
            before = hashes[at - 1] if at else None
            known = self._usage.get(key)
            if known is None and before is not None:
                self._followers[before] += 1
            self._usage[key] = first + at, 1 if known is None else known[1] + 1, before if known is None else known[2]

    def evict(self) -> tuple[int, V]:
        """Evict one block, and return it."""
        if not self._by_cost:
            return self.blocks.popitem(last=False)
        oldest = list(islice(self.blocks, min(CANDIDATES, 1 + len(self.blocks) // 8)))
        key = min((each for each in oldest if not self._followers[each]), key=self._cost, default=oldest[0])
        value = self.blocks.pop(key)
        self._forget(key)
        return key, value

    def drop(self, keys: Iterable[int]) -> None:
        """Remove these blocks."""
        for key in keys:
            del self.blocks[key]
            self._forget(key)

    def _cost(self, key: int) -> float:
        position, uses, _ = self._usage.get(key, (0, 1, None))
        return uses * (1.0 + position * self._block_tokens / ATTENDED_TOKENS)

    def _forget(self, key: int) -> None:
        usage = self._usage.pop(key, None)
        if usage is not None and usage[2] is not None:
            self._followers[usage[2]] -= 1
            if self._followers[usage[2]] <= 0:
                del self._followers[usage[2]]
