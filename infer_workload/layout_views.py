"""Between the wire and the layout: a request as a spec, a deployment as the view of its pools."""

from __future__ import annotations

from infer_workload.contract import DeploymentRequest, PoolsView
from infer_workload.deployment import Deployment, DeploymentSpec, Pools
from infer_workload.timing.decode import StepOptions
from matrixresource.vocabulary.names import NPUS_PER_NODE


def spec_of(wish: DeploymentRequest) -> DeploymentSpec:
    microbatch = {"auto": None, "on": True, "off": False}[wish.microbatching]
    return DeploymentSpec(
        prefill_npus=wish.prefill_npus,
        decode_npus=wish.decode_npus,
        caching_nodes=wish.caching_nodes,
        block_tokens=wish.block_tokens,
        batch_per_npu=wish.batch_per_npu,
        context_cache=wish.context_cache,
        cache_plane=wish.cache_plane,
        cache_gb_per_node=wish.cache_gb_per_node,
        prefill_microbatch=microbatch,
        steps=StepOptions(microbatch=microbatch, mtp=wish.mtp),
    )


def pools_view(deployment: Deployment) -> PoolsView:
    pools, layout = deployment.pools, deployment.decode_layout
    return PoolsView(
        prefill_instances=len(pools.prefill),
        prefill_npus=pools.prefill_nodes * NPUS_PER_NODE,
        decode_npus=len(pools.decode) * NPUS_PER_NODE,
        decode_dies=deployment.decode_dies,
        caching_nodes=len(pools.caching),
        experts_per_die=layout.experts_per_die,
        redundant_experts=layout.redundant(deployment.model.routed_experts),
        kv_tokens_per_die=deployment.kv_tokens_per_die,
        context_length=deployment.context_length,
        cache_blocks=deployment.cache_blocks,
    )


def roles_of(pools: Pools) -> dict[str, str]:
    """Each node that computes, and what."""
    return {**dict.fromkeys(pools.decode, "decode"), **{node: "prefill" for held in pools.prefill for node in held}}


def layout_text(held: PoolsView) -> str:
    return (
        f"prefill on {held.prefill_instances} instances with {held.prefill_npus} NPUs, "
        f"decode on {held.decode_npus} NPUs (EP{held.decode_dies})"
    )
