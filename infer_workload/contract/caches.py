"""The caches of a deployment: the memory they are granted, the models and blocks in them, and imported blocks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.validation import pattern_of


class CacheMemoryView(ApiModel):
    """The server memory of a deployment's caches: an allocation at MatrixResource."""

    allocation: str = Field(description="name of the allocation")
    requested_gib: int = Field(description="GiB requested, over all nodes")
    granted_gib: int = Field(description="GiB allocated, which is what the caches use")
    nodes: dict[str, int] = Field(default_factory=empty_dict, description="GiB allocated on each node")
    reason: str = Field(description="Granted, or why less is allocated than was requested")
    message: str = Field("", description="the same as a sentence, where less is allocated")


class CachedModelView(ApiModel):
    """A model of the model cache, and how long this deployment's dies take to load it."""

    model: str = Field(description="name of the model")
    served: bool = Field(description="whether the deployment serves this model")
    gb: float = Field(description="size of one copy of its weights, GB")
    tier: Literal["Memory", "SolidState", "ObjectStore"] = Field(description="where the weights are stored")
    load_s: float | None = Field(
        None, description="seconds to load the weights onto all dies; null if they do not fit the dies"
    )
    switch_s: float | None = Field(
        None, description="seconds to switch dies from another model to this one: ranks, graphs and weights"
    )
    start_s: float | None = Field(None, description="seconds from nothing to serving: executors, graphs and weights")


class ModelCacheView(ApiModel):
    """Model weights kept in the nodes' pooled memory."""

    nodes: int = Field(description="nodes that lend it memory")
    memory_gb: float = Field(description="memory of the cache, GB")
    used_gb: float = Field(description="memory that holds weights, GB")
    ssd_gb: float = Field(description="solid-state storage of the cache, GB")
    ssd_used_gb: float = Field(description="solid-state storage that holds weights, GB")
    models: list[CachedModelView] = Field(description="the models that it is to hold, each with where its weights are")


class CachedBlock(ApiModel):
    """The key and location of a block of the context cache; its content is not included."""

    key: str = Field(
        pattern=pattern_of(r"^-?\d{1,40}$", "a decimal number"),
        description="hash of the prompt from its start to the block's end, a decimal number",
    )
    node: str = Field(min_length=1, max_length=127, description="node that stores it")
    tier: Literal["Memory", "SolidState"] = Field(
        "Memory", description="where it is stored: memory, or the solid-state tier behind it"
    )
    namespace: str = Field("", max_length=127, description="project that it is counted to, if shares are limited")


class ContextCacheView(ApiModel):
    """The context cache of a deployment and one page of its blocks, the most recently used first."""

    model: str = Field(description="model whose KV the blocks hold")
    block_tokens: int = Field(description="tokens per block")
    memory_blocks: int = Field(description="blocks in memory, stored or being computed")
    memory_blocks_max: int = Field(description="most blocks that fit in memory")
    ssd_blocks: int = Field(description="blocks in the solid-state tier")
    ssd_blocks_max: int = Field(description="most blocks that fit in the solid-state tier; 0: it has none")
    nodes: list[str] = Field(description="nodes that lend it memory")
    blocks: list[CachedBlock] = Field(description="the blocks of this page")
    next_page_token: str | None = Field(None, description="pass it to get the next page of blocks; null on the last")


class WarmRequest(ApiModel):
    """Blocks exported from another context cache, the most recently used first."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"model": "deepseek-r1", "blockTokens": 512, "blocks": [{"key": "42", "node": "sn0-c00-n0"}]},
    )

    model: str = Field(min_length=1, max_length=127, description="model whose KV the blocks hold")
    block_tokens: int = Field(ge=128, le=512, description="tokens per block")
    blocks: list[CachedBlock] = Field(
        max_length=10_000,
        description="the blocks to add; those on nodes that do not cache for this deployment are skipped",
    )


class WarmView(ApiModel):
    """The result of an import, in blocks."""

    taken: int = Field(description="added to the cache")
    known: int = Field(description="already in the cache")
    elsewhere: int = Field(description="skipped: stored on nodes that do not cache for this deployment")
    no_room: int = Field(description="skipped: the tier, or the project's share of it, is full")
