"""The caches of a deployment: whose memory they have, the models and blocks in them, and blocks brought along."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_model import ApiModel


class CacheMemoryView(ApiModel):
    """The memory of servers that the caches of a deployment have: an allocation at MatrixResource."""

    allocation: str = Field(description="its name")
    requested_gib: int = Field(description="GiB asked for, of all nodes together")
    granted_gib: int = Field(description="GiB that are held, and used")
    nodes: dict[str, int] = Field(default_factory=empty_dict, description="GiB held of each node")
    reason: str = Field(description="Granted, or why less than that is held than was asked for")
    message: str = ""


class CachedModelView(ApiModel):
    """A model of the model cache, and how long it takes to have it on the dies of this deployment."""

    model: str
    served: bool = Field(description="whether it is the one that the deployment serves")
    gb: float = Field(description="its weights, once")
    tier: Literal["Memory", "SolidState", "ObjectStore"] = Field(description="where they are")
    load_s: float | None = Field(None, description="until all dies have their weights; none where they do not fit them")
    switch_s: float | None = Field(None, description="until dies that serve another go over: ranks, graphs, the load")
    start_s: float | None = Field(None, description="from nothing to serving: executors, graphs, the load")


class ModelCacheView(ApiModel):
    """Weights in the memory of the pool."""

    nodes: int = Field(description="nodes that lend it memory")
    memory_gb: float = Field(description="memory that it has")
    used_gb: float = Field(description="of that, with weights in it")
    ssd_gb: float = Field(description="solid state that it has")
    ssd_used_gb: float
    models: list[CachedModelView]


class CachedBlock(ApiModel):
    """A block of the context cache: which, and where; not what is in it."""

    key: str = Field(pattern=r"^-?\d{1,40}$", description="the hash of everything up to its end, as a number")
    node: str = Field(min_length=1, max_length=127, description="the node it lies on")
    tier: Literal["Memory", "SolidState"] = "Memory"
    namespace: str = Field("", max_length=127, description="the project whose it is, where shares are bounded")


class ContextCacheView(ApiModel):
    """The context cache of a deployment, and its blocks, the latest used first, in pages."""

    model: str
    block_tokens: int
    memory_blocks: int = Field(description="blocks in memory, stored or being computed")
    memory_blocks_max: int
    ssd_blocks: int
    ssd_blocks_max: int
    nodes: list[str] = Field(description="nodes that lend it memory")
    blocks: list[CachedBlock]
    next_page_token: str | None = Field(None, description="ask with it for the blocks that come after these")


class WarmRequest(ApiModel):
    """Blocks that another context cache held, as its export shows them, the latest used first."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"model": "deepseek-r1", "blockTokens": 512, "blocks": [{"key": "42", "node": "sn0-c00-n0"}]},
    )

    model: str = Field(min_length=1, max_length=127, description="whose KV it is")
    block_tokens: int = Field(ge=128, le=512, description="tokens of a block")
    blocks: list[CachedBlock] = Field(max_length=10_000)


class WarmView(ApiModel):
    """What became of them, in blocks."""

    taken: int = Field(description="held from now on")
    known: int = Field(description="held before")
    elsewhere: int = Field(description="left out: they, and what is in them, lie on nodes that do not cache here")
    no_room: int = Field(description="left out: the tier, or the project's share of it, is full")
