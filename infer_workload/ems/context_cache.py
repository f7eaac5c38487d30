"""The context cache: KV blocks of prompt prefixes in the CPU memory of the caching nodes.

A block is known by the hash of everything up to its end, so two prompts that begin alike share their first blocks and
nothing else; only an unbroken run from the start of a prompt can be reused. A block is promised when a prompt is
assigned to a prefill instance and held once that instance has computed it; a later prompt that needs a promised block
is sent to the same instance, behind the one that makes it. The least recently used block goes first. Blocks lie on
nodes by consistent hashing; a node that goes takes its blocks with it, which costs recomputation and nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STORED = -1
"""Maker of a block that lies in the pool; otherwise the number of the instance that has promised it."""

POINTS_PER_NODE = 64


@dataclass
class CacheCounts:
    """What was asked of the cache since the start; evicted and lost count blocks."""

    blocks_asked: int = 0
    blocks_hit: int = 0
    tokens_asked: int = 0
    tokens_hit: int = 0
    evicted: int = 0
    lost: int = 0

    @property
    def block_hit_rate(self) -> float:
        return self.blocks_hit / self.blocks_asked if self.blocks_asked else 0.0

    @property
    def token_hit_rate(self) -> float:
        return self.tokens_hit / self.tokens_asked if self.tokens_asked else 0.0


@dataclass(frozen=True)
class Match:
    """How far a prompt is known: `blocks` from its start, `tokens` in them, and who still owes one of them."""

    blocks: int
    tokens: int
    maker: int = STORED


NOTHING = Match(0, 0)


class ContextCache:
    """One deployment's context cache. `capacity` in blocks of `block_tokens` tokens; 0 switches it off."""

    def __init__(self, capacity: int, block_tokens: int, nodes: Sequence[str]) -> None:
        self.capacity = capacity
        self.block_tokens = block_tokens
        self.counts = CacheCounts()
        self._blocks: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._ring = _ring(nodes)
        self.nodes = tuple(nodes)

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, hashes: Sequence[int], prompt_tokens: int) -> Match:
        """How much of the prompt is reusable; counts the question and marks the blocks as used."""
        found, maker = 0, STORED
        for key in hashes:
            block = self._blocks.get(key)
            if block is None:
                break
            found += 1
            if block[0] != STORED:
                maker = block[0]
            self._blocks.move_to_end(key)
        tokens = min(prompt_tokens, found * self.block_tokens)
        counts = self.counts
        counts.blocks_asked += len(hashes)
        counts.blocks_hit += found
        counts.tokens_asked += prompt_tokens
        counts.tokens_hit += tokens
        return Match(found, tokens, maker)

    def known_tokens(self, hashes: Sequence[int], prompt_tokens: int) -> int:
        """How much of the prompt `match` would find, without asking: nothing is counted or marked."""
        found = next((at for at, key in enumerate(hashes) if key not in self._blocks), len(hashes))
        return min(prompt_tokens, found * self.block_tokens)

    def promise(self, hashes: Iterable[int], maker: int) -> None:
        """The blocks will come from that prefill instance. Blocks already there are marked as used."""
        if self.capacity <= 0:
            return
        for key in hashes:
            if key in self._blocks:
                self._blocks.move_to_end(key)
            else:
                self._blocks[key] = (maker, self._owner(key))
        while len(self._blocks) > self.capacity:
            self._blocks.popitem(last=False)
            self.counts.evicted += 1

    def keep(self, hashes: Iterable[int], maker: int) -> None:
        """That instance has computed the blocks: they are held from now on."""
        for key in hashes:
            block = self._blocks.get(key)
            if block is not None and block[0] == maker:
                self._blocks[key] = (STORED, block[1])

    def forget(self, hashes: Iterable[int], maker: int) -> None:
        """A prompt was withdrawn from that instance: what it alone would have computed is no longer promised."""
        for key in hashes:
            block = self._blocks.get(key)
            if block is not None and block[0] == maker:
                del self._blocks[key]

    def break_promises(self, maker: int) -> int:
        """The instance will not deliver: what it owed is forgotten. Returns how many blocks."""
        return self._drop([key for key, block in self._blocks.items() if block[0] == maker])

    def move_to(self, nodes: Sequence[str], capacity: int) -> int:
        """The pool now is placed on other nodes. Blocks of nodes that are gone are lost; returns how many."""
        gone = set(self.nodes) - set(nodes)
        self.nodes, self.capacity, self._ring = tuple(nodes), capacity, _ring(nodes)
        lost = self._drop([key for key, block in self._blocks.items() if block[1] in gone])
        while len(self._blocks) > max(0, capacity):
            self._blocks.popitem(last=False)
            self.counts.evicted += 1
        self.counts.lost += lost
        return lost

    def _drop(self, keys: list[int]) -> int:
        for key in keys:
            del self._blocks[key]
        return len(keys)

    def _owner(self, key: int) -> str:
        points, owners = self._ring
        return owners[bisect_right(points, _spread(key)) % len(owners)] if owners else ""


def _ring(nodes: Sequence[str]) -> tuple[list[int], list[str]]:
    points = sorted(
        (_spread(_number(node) * POINTS_PER_NODE + at), node) for node in nodes for at in range(POINTS_PER_NODE)
    )
    return [point for point, _ in points], [node for _, node in points]


def _number(text: str) -> int:
    value = 0
    for letter in text.encode():
        value = (value * 257 + letter) & 0xFFFFFFFFFFFFFFFF
    return value


def _spread(value: int) -> int:
    """A well-mixed 64-bit image of a number (the finaliser of SplitMix64), the same in every process."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
