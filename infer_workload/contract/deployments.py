"""A deployment as it is asked for, and as it is: its shape, its objective, its pools."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from infer_workload.contract.caches import CacheMemoryView
from infer_workload.contract.load import LoadRequest
from infer_workload.contract.roles import DrainView, ScaleView
from matrixcommon.model.empty import empty_dict, empty_list
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
    cache_plane: Literal["ub", "vpc"] | None = Field(
        None,
        description="the plane that cached blocks are read over; by default UB where the machine's leaves the node, "
        "else VPC. One that the machine does not have between its nodes is refused",
    )
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
    """A model on an instance: how it is served, and who is let in. Left out, pools are as the paper has them, on the
    nodes that other deployments of the instance leave; a ScalingPolicy with pools goes before these sizes."""

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
    cache_plane: str = Field("", description="the plane that cached blocks are read over")


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
    ready_nodes: list[str] = Field(
        default_factory=empty_list,
        description="nodes of its instance that serve, or could right now, it or another deployment",
    )
