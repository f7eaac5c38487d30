"""The context cache: KV blocks of prompt prefixes in the memory of the caching nodes, with their SSDs as second tier.

A block's key is the hash of everything up to its end, so two prompts with a common prefix share its blocks and nothing
else; only an unbroken run from the start of a prompt can be reused. A block is promised when a prompt is assigned to a
prefill instance, and stored once that instance has computed it; a later prompt that needs a promised block goes to the
same instance, behind the one that computes it. Blocks evicted from memory move to the solid-state tier, if any, and
return when used; blocks evicted from there are forgotten (`eviction`). Blocks are placed on nodes by consistent
hashing; a lost node takes its blocks of both tiers with it, which costs only recomputation. A namespace (a project) may
hold no more than its share; the namespace is part of a block's hash.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from infer_workload.ems.eviction import LRU, Tier
from infer_workload.ems.namespaces import Namespaces

STORED = -1
"""Maker of a block that is in the pool; otherwise the number of the instance that has promised it."""

POINTS_PER_NODE = 64

BlockLocation = int | str
"""Where a block is: a node, or the number of the hash ring that determines the node."""


@dataclass
class CacheCounts:
    """Cache use by prompts that were begun, since the start; `evicted`, `demoted` (to solid state) and `lost` count
    blocks."""

    blocks_asked: int = 0
    blocks_hit: int = 0
    tokens_asked: int = 0
    tokens_hit: int = 0
    tokens_hit_ssd: int = 0
    evicted: int = 0
    demoted: int = 0
    lost: int = 0

    @property
    def block_hit_rate(self) -> float:
        return self.blocks_hit / self.blocks_asked if self.blocks_asked else 0.0

    @property
    def token_hit_rate(self) -> float:
        return self.tokens_hit / self.tokens_asked if self.tokens_asked else 0.0


@dataclass(frozen=True)
class Match:
    """The cached prefix of a prompt: `blocks` from its start, `tokens` in them, `ssd_tokens` of them on solid state,
    and the prefill instance that has still to compute one of them (`producer`)."""

    blocks: int
    tokens: int
    producer: int = STORED
    ssd_tokens: int = 0


NO_MATCH = Match(0, 0)


@dataclass(frozen=True)
class StoredBlock:
    """A stored block: its key, node and tier, and its namespace if shares are limited."""

    key: int
    node: str
    ssd: bool = False
    namespace: str = ""


@dataclass(frozen=True)
class WarmResult:
    """The result of an import, in blocks: added (`taken`), already `known`, on nodes `elsewhere`, and without room."""

    taken: int = 0
    known: int = 0
    elsewhere: int = 0
    no_room: int = 0


class ContextCache:
    """One deployment's context cache. Capacities are in blocks of `block_tokens` tokens; `capacity` 0 disables it.

    `share`: the fraction of the memory that one namespace may hold.
    """

    def __init__(
        self,
        capacity: int,
        block_tokens: int,
        nodes: Sequence[str],
        *,
        ssd_capacity: int = 0,
        policy: str = LRU,
        share: float = 1.0,
    ) -> None:
        self.capacity, self.ssd_capacity = capacity, ssd_capacity
        self.block_tokens = block_tokens
        self.immutable_parameters = block_tokens, policy, share
        """Parameters that cannot be changed; other values need another cache."""
        self.counts = CacheCounts()
        self._memory: Tier[tuple[int, BlockLocation]] = Tier(policy, block_tokens)
        self._ssd: Tier[BlockLocation] = Tier(policy, block_tokens)
        self._blocks = self._memory.blocks
        self._namespaces = Namespaces(share) if share < 1.0 else None
        self._ring = 0
        """The number of the hash ring for new blocks; blocks of earlier rings stay where they are."""
        self._rings = {self._ring: _ring(nodes)}
        self.nodes = tuple(nodes)
        self.granted_bytes: Mapping[str, float] | None = None
        """Bytes of memory granted by node; None if memory is not allocated."""

    def __len__(self) -> int:
        """The number of blocks in both tiers."""
        return len(self._blocks) + len(self._ssd.blocks)

    def match(self, hashes: Sequence[int], prompt_tokens: int) -> Match:
        """Find the reusable prefix of the prompt; mark its blocks as used and move those on solid state to memory.
        Hits are not counted yet, as blocks may be lost before the prompt is begun (see `count`)."""
        if self.capacity <= 0:
            return NO_MATCH
        found, ssd_keys = self._find_prefix(hashes, prompt_tokens)
        for key in ssd_keys:
            self._blocks[key] = STORED, self._ssd.blocks[key]
        self._memory.touch(hashes[: found.blocks])
        if ssd_keys:
            self._ssd.drop(ssd_keys)
            self._evict_overflow()
        return found

    def peek(self, hashes: Sequence[int], prompt_tokens: int) -> Match:
        """What `match` would find, without marking or moving anything."""
        return self._find_prefix(hashes, prompt_tokens)[0] if self.capacity > 0 else NO_MATCH

    def _find_prefix(self, hashes: Sequence[int], prompt_tokens: int) -> tuple[Match, Collection[int]]:
        """The cached prefix of the prompt, and which of its blocks are on solid state."""
        found, producer, ssd_keys = 0, STORED, dict[int, None]()
        blocks, ssd = self._blocks, self._ssd.blocks
        for key in hashes:
            block = blocks.get(key)
            if block is None:
                if key not in ssd:
                    break
                ssd_keys[key] = None
            elif block[0] != STORED:
                producer = block[0]
            found += 1
        tokens = min(prompt_tokens, found * self.block_tokens)
        return Match(found, tokens, producer, min(tokens, len(ssd_keys) * self.block_tokens)), ssd_keys

    def count(self, hashes: Sequence[int], prompt_tokens: int, tokens: int, ssd_tokens: int) -> None:
        """Count a prompt that is begun with `tokens` from the cache, `ssd_tokens` of them from solid state."""
        counts = self.counts
        counts.blocks_asked += len(hashes)
        counts.blocks_hit += -(-tokens // self.block_tokens)
        counts.tokens_asked += prompt_tokens
        counts.tokens_hit += tokens
        counts.tokens_hit_ssd += ssd_tokens

    def add_in_flight(self, hashes: Sequence[int], producer: int, namespace: str = "") -> None:
        """Promise blocks that this prefill instance (`producer`) will compute. Blocks already here are marked as
        used."""
        if self.capacity <= 0:
            return
        in_flight, ssd = (producer, self._ring), self._ssd.blocks
        for key in hashes:
            if key not in self._blocks:
                self._blocks[key] = in_flight
                if key in ssd:  # it follows a block that is gone, so its copy there is useless
                    self._ssd.drop([key])
        self._memory.touch(hashes)
        if self._namespaces is not None:
            for key in hashes:
                self._namespaces.touch(key, namespace)  # also blocks that `match` moved back from solid state
            evicted = self._namespaces.evict_over_share(namespace, self.capacity)
            self._memory.drop(key for key in evicted if key in self._blocks)
            self.counts.evicted += len(evicted)
        self._evict_overflow()

    def store(self, hashes: Iterable[int], producer: int) -> None:
        """Store blocks that this instance has promised and now computed."""
        for key in hashes:
            block = self._blocks.get(key)
            if block is not None and block[0] == producer:
                self._blocks[key] = (STORED, block[1])

    def in_flight(self, hashes: Iterable[int], producer: int) -> set[int]:
        """Those of the blocks that this instance has promised and not yet computed."""
        return {key for key in hashes if (block := self._blocks.get(key)) is not None and block[0] == producer}

    def drop_in_flight(self, hashes: Iterable[int], producer: int) -> None:
        """Drop this instance's promises of these blocks, as the prompts that would have computed them were
        withdrawn."""
        self._drop(list(self.in_flight(hashes, producer)))

    def drop_producer(self, producer: int) -> int:
        """Drop all promises of an instance that is gone. Return how many blocks."""
        return self._drop([key for key, block in self._blocks.items() if block[0] == producer])

    def move_to(self, nodes: Sequence[str], capacity: int, ssd_capacity: int | None = None) -> int:
        """Place the cache on other nodes, with other capacities. Return how many blocks are lost with nodes that
        left."""
        gone = set(self.nodes) - set(nodes)
        self.capacity = capacity
        self.ssd_capacity = self.ssd_capacity if ssd_capacity is None else ssd_capacity
        if tuple(nodes) == self.nodes:
            self._evict_overflow()
            return 0
        self.nodes = tuple(nodes)
        ssd_keys = [key for key, location in self._ssd.blocks.items() if self._node(key, location) in gone]
        self._ssd.drop(ssd_keys)
        blocks = self._blocks
        lost = self._drop([key for key, block in blocks.items() if self._node(key, block[1]) in gone]) + len(ssd_keys)
        used = {*self._ssd.blocks.values(), *(place for _, place in blocks.values())}
        self._rings = {number: ring for number, ring in self._rings.items() if number in used}
        self._ring += 1
        self._rings[self._ring] = _ring(nodes)
        self._evict_overflow()
        self.counts.lost += lost
        return lost

    def list_stored(self) -> list[StoredBlock]:
        """Every stored block, in memory and then on solid state, the most recently used first."""
        namespace_of = (lambda key: "") if self._namespaces is None else self._namespaces.namespace_of
        memory = [
            StoredBlock(key, self._node(key, location), namespace=namespace_of(key))
            for key, (producer, location) in self._blocks.items()
            if producer == STORED
        ]
        ssd = [StoredBlock(key, self._node(key, place), ssd=True) for key, place in self._ssd.blocks.items()]
        return [*reversed(memory), *reversed(ssd)]

    def warm(self, blocks: Iterable[StoredBlock], *, dry_run: bool = False) -> WarmResult:
        """Import blocks of another cache, given the most recently used first, as far as their nodes are here and there
        is room beside the present blocks, which count as used later. With `dry_run`, only report the result."""
        own_nodes, skipped = set(self.nodes), Counter[str]()
        memory, ssd, added_by_namespace = dict[int, StoredBlock](), dict[int, StoredBlock](), Counter[str]()
        for block in blocks:
            key, namespace = block.key, block.namespace
            if key in self._blocks or key in self._ssd.blocks or key in memory or key in ssd:
                skipped["known"] += 1
            elif block.node not in own_nodes:
                skipped["elsewhere"] += 1
            elif (
                not block.ssd
                and len(self._blocks) + len(memory) < self.capacity
                and self._has_share_for(namespace, added_by_namespace[namespace])
            ):
                memory[key] = block
                added_by_namespace[namespace] += 1
            elif len(self._ssd.blocks) + len(ssd) < self.ssd_capacity:
                ssd[key] = block
            else:
                skipped["no_room"] += 1
        if not dry_run:
            self._insert_oldest(memory, ssd)
        return WarmResult(taken=len(memory) + len(ssd), **skipped)

    def _has_share_for(self, namespace: str, more: int) -> bool:
        """Whether the namespace may hold more than `more` further blocks."""
        return self._namespaces is None or self._namespaces.remaining_blocks(namespace, self.capacity) > more

    def _insert_oldest(self, memory: Mapping[int, StoredBlock], ssd: Mapping[int, StoredBlock]) -> None:
        """Add blocks, each as if last used before all present ones."""
        for key, block in memory.items():
            self._blocks[key] = STORED, block.node
            self._blocks.move_to_end(key, last=False)
            if self._namespaces is not None:
                self._namespaces.add(key, block.namespace, oldest=True)
        for key, block in ssd.items():
            self._ssd.blocks[key] = block.node
            self._ssd.blocks.move_to_end(key, last=False)

    def tier_blocks(self) -> tuple[int, int]:
        """Blocks in memory, stored or promised, and on solid state."""
        return len(self._blocks), len(self._ssd.blocks)

    def _evict_overflow(self) -> None:
        """Move blocks beyond the capacity out of memory, and forget those beyond the capacity of solid state."""
        while len(self._blocks) > max(0, self.capacity):
            key, (producer, location) = self._memory.evict()
            if self._namespaces is not None:
                self._namespaces.remove(key)
            if producer == STORED and self.ssd_capacity > 0:
                self._ssd.blocks[key] = location
                self.counts.demoted += 1
            else:
                self.counts.evicted += 1
        while len(self._ssd.blocks) > max(0, self.ssd_capacity):
            self._ssd.evict()
            self.counts.evicted += 1

    def _drop(self, keys: list[int]) -> int:
        self._memory.drop(keys)
        if self._namespaces is not None:
            for key in keys:
                self._namespaces.remove(key)
        return len(keys)

    def _node(self, key: int, location: BlockLocation) -> str:
        """The node of a block. It is looked up lazily, as it never matters for most blocks."""
        if isinstance(location, str):
            return location
        points, owners = self._rings[location]
        return owners[bisect_right(points, _mix64(key)) % len(owners)] if owners else ""


Ring = tuple[list[int], list[str]]


def _ring(nodes: Sequence[str]) -> Ring:
    points = sorted(
        (_mix64(_hash_name(node) * POINTS_PER_NODE + at), node) for node in nodes for at in range(POINTS_PER_NODE)
    )
    return [point for point, _ in points], [node for _, node in points]


def _hash_name(text: str) -> int:
    value = 0
    for letter in text.encode():
        value = (value * 257 + letter) & 0xFFFFFFFFFFFFFFFF
    return value


def _mix64(value: int) -> int:
    """A well-mixed 64-bit image of a number (the finaliser of SplitMix64), the same in every process."""
    value = (value + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
