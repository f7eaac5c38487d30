"""What is asked of CloudMatrix-Infer and what it shows, as documents on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.resource_key import reference
from matrixcommon.model.resource_model import ApiModel, ResourceView

Npus = Annotated[int, Field(ge=8, le=32768, multiple_of=8, description="whole nodes of 8 NPUs")]


class DeploymentShape(ApiModel):
    """How a model is served. What is left out follows the proportions of the paper's deployment."""

    prefill_npus: Npus | None = Field(None, description="NPUs of the prefill pool, in whole nodes of 8")
    decode_npus: Npus | None = Field(None, description="NPUs of the decode pool, in whole nodes of 8")
    caching_nodes: int | None = Field(
        None, ge=1, le=4096, description="nodes of both that lend their memory to the context cache; by default all"
    )
    block_tokens: int = Field(512, ge=128, le=512, description="tokens of one block of the context cache")
    batch_per_npu: int | None = Field(None, ge=2, le=1024, description="requests an NPU decodes at once, at most")
    tpot_target_s: float | None = Field(
        None,
        gt=0,
        le=60,
        description="seconds of a token that the batch adapts to: requests that would make it take longer wait. "
        "Left out, an objective's, where there is one",
    )
    context_cache: bool = Field(True, description="whether prompts that begin as earlier ones are read from the cache")
    cache_plane: Literal["ub", "vpc"] = Field("ub", description="the plane that cached blocks are read over")
    cache_gb_per_node: float | None = Field(
        None, ge=0, le=4096, description="memory of each caching node for the context cache, GB; by default a quarter"
    )
    cache_ssd_gb_per_node: float = Field(0.0, ge=0, le=65_536, description="solid state behind it, GB; 0: none")
    cache_eviction: Literal["lru", "cost"] = Field(
        "lru", description="what goes first: the least recently used, or what costs least to compute again"
    )
    cache_project_share: float = Field(
        1.0, gt=0, le=1, description="the part of the cache's memory that one project's prompts may hold"
    )
    model_cache_gb_per_node: float | None = Field(
        None, ge=0, le=4096, description="memory of each node for weights, GB; by default what its models need"
    )
    model_cache_ssd_gb_per_node: float = Field(0.0, ge=0, le=65_536, description="solid state behind it, GB; 0: none")
    model_cache_models: list[str] = Field(
        default_factory=empty_list,
        max_length=32,
        description="further models whose weights the pool keeps, the most wanted first; the served one comes before",
    )
    mtp: bool = Field(True, description="whether each step drafts a token, where the model has a layer for it")
    microbatching: Literal["auto", "on", "off"] = Field("auto", description="two microbatches side by side")

    @property
    def batch_tpot_s(self) -> float | None:
        """Seconds of a token that the batch adapts to; None: only memory and its limit bound it."""
        return self.tpot_target_s


class ServingObjective(ApiModel):
    """What requests that are admitted are served within; those that would not be are refused with 429."""

    ttft_s: float | None = Field(None, gt=0, le=86_400, description="arrival to first token, emulated seconds")
    tpot_s: float | None = Field(None, gt=0, le=60, description="mean time of a token after the first")


class DeploymentRequest(DeploymentShape):
    """A model on an instance: how it is served, and who is let in. Left out, pools are as the paper has them; a
    ScalingPolicy with pools goes before these sizes."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"instance": "deepseek-r1", "model": "deepseek-r1", "cacheGbPerNode": 8},
    )

    instance: str = Field(min_length=1, max_length=127, description="the instance whose nodes and planes are used")
    model: str = Field(
        "deepseek-r1",
        min_length=1,
        max_length=127,
        description="the model that is served: deepseek-r1, deepseek-v3, kimi-k2, llama-3.1-70b, qwen3-235b, or one of "
        "CloudMatrix-Infer's own folder of models",
    )
    machine: str | None = Field(
        None,
        min_length=1,
        max_length=127,
        description="the machine whose dies it is timed on: that of the instance's supernode, which it is where nobody "
        "says; another is refused",
    )
    warm_model_cache: bool = Field(True, description="whether the pool holds the weights before the first start")
    activation_queue_max: int = Field(
        1000,
        ge=0,
        le=100_000,
        description="requests that wait while it is scaled to zero or returns; others get 503",
    )
    activation_timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that a request waits so before it gets 503"
    )
    objective: ServingObjective | None = Field(None, description="without one requests wait as long as it takes")
    queue_max: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="requests that wait for KV memory ahead of one that comes, at most; others get 429. Those of later "
        "priorities are behind it: with them twice as many wait, at most",
    )
    labels: dict[str, str] = Field(default_factory=empty_dict)

    REFERENCES: ClassVar = ("instance",)

    @property
    def batch_tpot_s(self) -> float | None:
        asked = self.objective.tpot_s if self.objective else None
        return asked if self.tpot_target_s is None else self.tpot_target_s

    def shown_to(self, project: str) -> Self:
        """With the name of an instance of the project's own."""
        return self.model_copy(update={"instance": reference(self.instance, project)})


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


class PoolsView(ApiModel):
    """The pools as laid out; zeros while there are none."""

    prefill_instances: int = 0
    prefill_npus: int = 0
    decode_npus: int = 0
    decode_dies: int = 0
    caching_nodes: int = 0
    experts_per_die: int = 0
    redundant_experts: int = 0
    kv_tokens_per_die: int = 0
    context_length: int = 0
    cache_blocks: int = 0


class LoadRequest(ApiModel):
    """Seeded conversation traffic played through the live engine, in emulated time."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"requestsPerSecond": 2, "seed": 7},)

    requests_per_second: float = Field(gt=0, le=100_000, description="in emulated time")
    seed: int = Field(0, ge=0, le=2**31, description="for everything that is left to chance")
    input_tokens_max: int | None = Field(None, ge=1, le=1_000_000, description="longer prompts are cut to this")


class LoadView(LoadRequest):
    """The load, and what became of it since it began or the process started."""

    submitted: int = 0
    refused: int = 0
    skipped: int = Field(0, description="not played because this machine could not keep up")


class DrainRequest(ApiModel):
    """Nodes that are to leave: nothing new begins there, what runs there finishes, the rest is handed over in time."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": ["sn0-c00-n0"]},)

    nodes: list[NodeName] = Field(min_length=1, max_length=4096)
    deadline_s: float = Field(600.0, gt=0, le=86_400, description="emulated seconds that what runs there may take")
    by: str = Field(
        "",
        max_length=253,
        description="the operation of MatrixCompute that asks: only it may drain others; withdrawn when it ends",
    )
    keep_serving: bool = Field(False, description="refuse where what stays cannot serve alone")


class ScaleRequest(ApiModel):
    """How many nodes each pool is to have, in place of the sizes of the spec. Both zero: nothing is served, and
    requests wait until somebody asks for more."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"prefillNodes": 2, "decodeNodes": 2},)

    prefill_nodes: int = Field(ge=0, le=4096, description="nodes that read prompts")
    decode_nodes: int = Field(ge=0, le=4096, description="nodes that generate answers")
    caching_nodes: int | None = Field(
        None, ge=1, le=8192, description="of these, how many lend their memory to the context cache; by default all"
    )
    deadline_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that requests may take to leave a role that changes"
    )
    by: str = Field("", max_length=253, description="who asks, such as a scaling policy")

    @field_validator("decode_nodes")
    @classmethod
    def _both_or_none(cls, decode: int, given: ValidationInfo) -> int:
        prefill = given.data.get("prefill_nodes")
        if prefill is not None and bool(decode) != bool(prefill):
            raise ValueError("prefillNodes and decodeNodes are both at least one, or both zero")
        return decode

    @field_validator("caching_nodes")
    @classmethod
    def _within(cls, caching: int | None, given: ValidationInfo) -> int | None:
        most = given.data.get("prefill_nodes", 8192) + given.data.get("decode_nodes", 8192)
        if caching is not None and caching > most:
            raise ValueError(f"it is to be at most prefillNodes and decodeNodes together, {most}")
        return caching


class ScaleView(ScaleRequest):
    """What was asked for, and whether it is so."""

    state: Literal["Changing", "LacksNodes", "Settled"] = "Settled"
    requests: int = Field(0, description="requests that still run in roles that change")


class DrainView(ApiModel):
    """A drain and how far it is. Once Drained, the nodes may be released."""

    nodes: list[str]
    absent: list[str] = Field(default_factory=empty_list, description="of these, those that it did not have when asked")
    deadline_at: str
    state: Literal["Draining", "Drained"]
    by: str = Field("", description="the operation that asked for it")
    requests: int = Field(0, description="requests that still run there")
    requests_at_start: int = Field(0, description="requests that ran there when it began")


class DeploymentView(DeploymentRequest, ResourceView):
    """A deployment as it was asked for, its layout, and where to talk to it."""

    endpoint: str = ""
    fabric_generation: int = 0
    pools: PoolsView = Field(default_factory=PoolsView)
    roles: dict[str, str] = Field(
        default_factory=empty_dict, description="node to prefill or decode; all of them cache"
    )
    cache_memory: CacheMemoryView | None = Field(None, description="the memory that its caches hold on its nodes")
    load: LoadRequest | None = None
    drain: DrainView | None = Field(None, description="nodes that are to leave it")
    scale: ScaleView | None = Field(None, description="how many nodes each pool is to have, where somebody asked")
    role_change: DrainView | None = Field(None, description="nodes that are to change their roles, as a drain")
    ready_nodes: list[str] = Field(default_factory=empty_list, description="nodes that serve, or could right now")


class Percentiles(ApiModel):
    """A latency in seconds of emulated time, over the requests that finished in the window."""

    p50: float
    p90: float
    p99: float
    mean: float


class Sample(ApiModel):
    """Tokens generated in one emulated second.

    `at` counts seconds before the moment of the statistics, `second` is the same second since the epoch.
    """

    at: float
    second: int
    tokens_per_second: float


class WorkView(ApiModel):
    """The work that comes in over the window, in nodes that it would keep busy within the objective for a token."""

    arrivals_per_second: float = Field(description="requests accepted")
    prompt_tokens_per_second: float = Field(description="tokens of their prompts, cached ones too")
    prefill_nodes: float = Field(description="nodes that read the prompts, less what is cached")
    decode_nodes: float = Field(description="nodes that generate the answers")
    nodes: float = Field(description="nodes in all, at the present proportions of the two")
    backlog_node_seconds: float = Field(description="prompts not yet read, in seconds of one node")
    start_s: float = Field(description="how long a node takes from being there to serving")
    stays_s: float = Field(description="how long a request stays")
    prompt_s: float = Field(0.0, description="how long a prompt of the usual length is read, by itself")
    prefill_backlog_node_seconds: float = Field(
        0.0, description="prompts not yet read, in seconds of one node that reads prompts"
    )
    caching_nodes: float = Field(0.0, description="nodes whose memory holds what is new in the cache for so long")
    prefill_instance_nodes: int = Field(1, description="nodes that read prompts come in so many")
    decode_nodes_min: int = Field(1, description="with fewer the longest request it takes now would have no room")


class StatisticsView(ApiModel):
    """What a deployment does now. Rates are per emulated second over `windowS`; the counts are of this moment."""

    name: str
    state: str
    now: float = Field(description="emulated seconds since the epoch that these are of")
    window_s: float
    measured_s: float = Field(0.0, description="how much of the window it has been serving")
    tokens_per_second: float = 0.0
    tokens_per_second_per_npu: float = 0.0
    prompt_tokens_per_second: float = 0.0
    requests_per_second: float = 0.0
    ttft: Percentiles | None = Field(None, description="time to first token; null when nothing finished in the window")
    tpot: Percentiles | None = Field(None, description="time per further token; null when none came in the window")
    waiting: int = Field(0, description="without room on a decode die")
    queued: int = Field(0, description="not begun: without room, or in the queue of a prefill instance")
    prefilling: int = 0
    transferring: int = 0
    decoding: int = 0
    counting_since: float = Field(0.0, description="since when the counts run: the start of the process")
    submitted: int = Field(0, description="accepted: finished, cancelled, lost or in flight")
    refused: int = Field(0, description="not accepted, with 429: they would not be served in time")
    finished: int = 0
    cancelled: int = Field(0, description="their client went away")
    lost: int = Field(0, description="cut off: what they ran on could not go on serving")
    in_flight: int = 0
    requeued: int = Field(0, description="times that a request went back to the queue")
    activation_queue: int = Field(0, description="waiting for a deployment that is scaled to zero or comes back")
    idle_s: float = Field(0.0, description="since when nothing has come in or run")
    prefill_busy: float = 0.0
    decode_step_ms: float | None = Field(0.0, description="null while a step cannot end: a member is not reached")
    decode_batch_per_npu: float = 0.0
    kv_usage: float = 0.0
    cache_hit_rate_blocks: float | None = Field(None, description="null before any block was looked for")
    cache_hit_rate_tokens: float | None = Field(None, description="of prompt tokens; null before there were any")
    cache_blocks: int = 0
    decode_paused: bool = False
    work: WorkView | None = Field(None, description="what comes in; not there before it has served for the window")
    samples: list[Sample] = Field(default_factory=empty_list)
    load: LoadView | None = None
