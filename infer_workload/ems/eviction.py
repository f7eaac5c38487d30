"""Which block goes first when the memory of a tier is full: the least recently used, or the one that costs least.

Both keep blocks in the order of their last use. By use alone, the oldest goes. By cost only the last block of what is
here of a prompt may go, since without an earlier one the later are of no use; among the few oldest of those the one
goes that is the cheapest to have computed again, for how often it was asked for: its own tokens, and what they attend
to.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

V = TypeVar("V")

LRU, COST = "lru", "cost"
CANDIDATES = 16
"""Oldest blocks that are compared, by assumption: enough to tell them apart, few enough to be looked at each time."""
ATTENDED_TOKENS = 6000.0
"""Earlier tokens that cost as much as a token's own matrix products. Of DeepSeek-R1: 37e9 weights a token at 0.80 of
the die's INT8 peak, against 2 x 128 heads x 320 wide x 61 layers for each token attended to, at 0.654 of BF16 peak."""


class Tier(Generic[V]):
    """Blocks in one kind of memory, in the order of their last use, the oldest first."""

    def __init__(self, policy: str, block_tokens: int) -> None:
        self._by_cost = policy == COST
        self._block_tokens = block_tokens
        self.blocks: OrderedDict[int, V] = OrderedDict()
        self._worth: dict[int, tuple[int, int, int | None]] = {}
        """Place in its prompt, times of use, and the block before it; only by cost."""
        self._followers: Counter[int] = Counter()
        """Blocks here that follow a block; only by cost."""

    def used(self, hashes: Sequence[int], first: int = 0) -> None:
        """These blocks, which are here, begin a prompt at its block `first` and are used now."""
        if not self._by_cost:
            for key in hashes:
                self.blocks.move_to_end(key)
            return
        for at in range(len(hashes) - 1, -1, -1):  # so that none is older than one that follows it
            key = hashes[at]
            self.blocks.move_to_end(key)
            before = hashes[at - 1] if at else None
            known = self._worth.get(key)
            if known is None and before is not None:
                self._followers[before] += 1
            self._worth[key] = first + at, 1 if known is None else known[1] + 1, before if known is None else known[2]

    def pop(self) -> tuple[int, V]:
        """Give up one block."""
        if not self._by_cost:
            return self.blocks.popitem(last=False)
        oldest = list(islice(self.blocks, min(CANDIDATES, 1 + len(self.blocks) // 8)))
        key = min((each for each in oldest if not self._followers[each]), key=self._cost, default=oldest[0])
        value = self.blocks.pop(key)
        self._forget(key)
        return key, value

    def drop(self, keys: Iterable[int]) -> None:
        """These are gone."""
        for key in keys:
            del self.blocks[key]
            self._forget(key)

    def _cost(self, key: int) -> float:
        place, uses, _ = self._worth.get(key, (0, 1, None))
        return uses * (1.0 + place * self._block_tokens / ATTENDED_TOKENS)

    def _forget(self, key: int) -> None:
        worth = self._worth.pop(key, None)
        if worth is not None and worth[2] is not None:
            self._followers[worth[2]] -= 1
            if self._followers[worth[2]] <= 0:
                del self._followers[worth[2]]
