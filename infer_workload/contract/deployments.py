"""A deployment as requested and as it runs: its shape, its objective, its pools."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from infer_workload.contract.caches import CacheMemoryView
from infer_workload.contract.load import LoadRequest
from infer_workload.contract.roles import DrainView, ScaleView
from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.resource_key import reference_to
from matrixcommon.model.resource_model import ApiModel, ResourceView

Npus = Annotated[int, Field(ge=8, le=32768, multiple_of=8, description="whole nodes of 8 NPUs")]


class DeploymentShape(ApiModel):
    """How a model is served. Fields left out follow the proportions of the paper's deployment."""

    prefill_npus: Npus | None = Field(None, description="NPUs of the prefill pool, in whole nodes of 8")
    decode_npus: Npus | None = Field(None, description="NPUs of the decode pool, in whole nodes of 8")
    caching_nodes: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="nodes of both pools that lend their memory to the context cache; by default all",
    )
    block_tokens: int = Field(512, ge=128, le=512, description="tokens per block of the context cache")
    batch_per_npu: int | None = Field(
        None, ge=2, le=1024, description="most requests that one NPU decodes at the same time"
    )
    tpot_target_s: float | None = Field(
        None,
        gt=0,
        le=60,
        description="target time per token, in seconds, to which the batch adapts: requests that would push it higher "
        "wait. By default the objective's tpotS, if there is an objective",
    )
    context_cache: bool = Field(True, description="whether to reuse cached KV for prompts that share a prefix")
    cache_plane: Literal["ub", "vpc"] | None = Field(
        None,
        description="plane over which cached blocks are read; by default UB if the machine's UB spans nodes, else VPC. "
        "A plane that does not connect the machine's nodes is refused",
    )
    cache_gb_per_node: float | None = Field(
        None,
        ge=0,
        le=4096,
        description="context-cache memory on each caching node, GB; by default a quarter of the node's memory",
    )
    cache_ssd_gb_per_node: float = Field(
        0.0, ge=0, le=65_536, description="solid-state tier behind that memory on each node, GB; 0 for none"
    )
    cache_eviction: Literal["lru", "cost"] = Field(
        "lru", description="which blocks to evict first: lru, the least recently used; cost, the cheapest to recompute"
    )
    cache_project_share: float = Field(
        1.0, gt=0, le=1, description="largest fraction of the cache's memory that one project's prompts may hold"
    )
    model_cache_gb_per_node: float | None = Field(
        None, ge=0, le=4096, description="model-cache memory on each node, GB; by default as much as its models need"
    )
    model_cache_ssd_gb_per_node: float = Field(
        0.0, ge=0, le=65_536, description="solid-state tier behind that memory on each node, GB; 0 for none"
    )
    model_cache_models: list[str] = Field(
        default_factory=empty_list,
        max_length=32,
        description="other models whose weights to cache, in order of priority; the served model always comes first",
    )
    mtp: bool = Field(
        True, description="multi-token prediction: each decode step drafts a token, if the model has a layer for it"
    )
    microbatching: Literal["auto", "on", "off"] = Field("auto", description="whether to overlap two microbatches")

    @property
    def batch_tpot_s(self) -> float | None:
        """The time per token, in seconds, that the batch adapts to; None: only memory and `batch_per_npu` limit it."""
        return self.tpot_target_s


class ServingObjective(ApiModel):
    """Latencies within which every admitted request is served; requests that would miss them are refused with 429."""

    ttft_s: float | None = Field(
        None, gt=0, le=86_400, description="time from arrival to the first token, emulated seconds"
    )
    tpot_s: float | None = Field(None, gt=0, le=60, description="mean time per token after the first, emulated seconds")


class DeploymentRequest(DeploymentShape):
    """A model served on an instance, and its admission limits. Pools left out are sized as in the paper, on the nodes
    that the instance's other deployments leave free; a ScalingPolicy with pools overrides these sizes."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"instance": "deepseek-r1", "model": "deepseek-r1", "cacheGbPerNode": 8},
    )

    instance: str = Field(min_length=1, max_length=127, description="instance whose nodes and planes it runs on")
    model: str = Field(
        "deepseek-r1",
        min_length=1,
        max_length=127,
        description="model to serve: deepseek-r1, deepseek-v3, kimi-k2, llama-3.1-70b, qwen3-235b, or one in "
        "CloudMatrix-Infer's folder of added models",
    )
    machine: str | None = Field(
        None,
        min_length=1,
        max_length=127,
        description="machine whose dies time it; must be that of the instance's supernode, which is the default",
    )
    warm_model_cache: bool = Field(True, description="whether the model cache holds the weights before the first start")
    activation_queue_max: int = Field(
        1000,
        ge=0,
        le=100_000,
        description="most requests that wait while it is scaled to zero or starting from zero; more get 503",
    )
    activation_timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that such a request waits before it gets 503"
    )
    objective: ServingObjective | None = Field(
        None, description="latency objective; without one, requests wait as long as needed"
    )
    queue_max: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="most requests that may wait for KV memory ahead of a new one; beyond that it gets 429. Requests "
        "of lower priority queue behind it: counting them, at most twice as many wait",
    )
    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")

    REFERENCES: ClassVar = ("instance",)

    @property
    def batch_tpot_s(self) -> float | None:
        asked = self.objective.tpot_s if self.objective else None
        return asked if self.tpot_target_s is None else self.tpot_target_s

    def shown_to(self, project: str) -> Self:
        """The same, with the instance's name shortened if it is the project's own."""
        return self.model_copy(update={"instance": reference_to(self.instance, project)})


class PoolsView(ApiModel):
    """The pools as laid out; zeros while nothing is laid out."""

    prefill_instances: int = Field(0, description="number of prefill instances")
    prefill_npus: int = Field(0, description="NPUs of all prefill instances")
    decode_npus: int = Field(0, description="NPUs of the decode pool")
    decode_dies: int = Field(0, description="dies of the decode pool: its degree of expert parallelism")
    caching_nodes: int = Field(0, description="nodes that lend memory to the context cache")
    experts_per_die: int = Field(0, description="experts on each decode die that has routed ones")
    redundant_experts: int = Field(
        0, description="copies of routed experts in the decode pool beyond the first of each"
    )
    kv_tokens_per_die: int = Field(0, description="tokens whose KV fits one decode die")
    context_length: int = Field(0, description="most tokens of a prompt with its answer")
    cache_blocks: int = Field(0, description="most blocks that the context cache holds in memory")
    cache_plane: str = Field("", description="plane over which cached blocks are read")


class DeploymentView(DeploymentRequest, ResourceView):
    """A deployment as requested, its layout, and its endpoint."""

    endpoint: str = Field("", description="URL at which its model is served")
    fabric_generation: int = Field(
        0, description="generation of the fabric view that its layout follows; 0: it has none"
    )
    pools: PoolsView = Field(default_factory=PoolsView, description="its pools as laid out")
    roles: dict[str, str] = Field(
        default_factory=empty_dict, description="role of each node that computes: prefill or decode"
    )
    cache_memory: CacheMemoryView | None = Field(None, description="memory of its caches on its nodes")
    load: LoadRequest | None = Field(None, description="built-in load that runs on it; null: none")
    drain: DrainView | None = Field(None, description="drain of the nodes that will leave it")
    scale: ScaleView | None = Field(None, description="requested number of nodes of each pool, if one was requested")
    role_change: DrainView | None = Field(None, description="drain of the nodes that will change their role")
    ready_nodes: list[str] = Field(
        default_factory=empty_list,
        description="nodes of its instance that serve this or another deployment, or could right now",
    )
