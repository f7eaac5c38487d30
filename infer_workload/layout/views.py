"""Conversions between a layout and its wire form: the pools view, roles and status texts."""

from __future__ import annotations

from collections.abc import Mapping

from infer_workload.contract.deployments import PoolsView
from infer_workload.ems.context_cache import ContextCache
from infer_workload.layout.deployment import Deployment, Pools
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized


def pools_view(deployment: Deployment, cache: ContextCache) -> PoolsView:
    pools, layout = deployment.pools, deployment.decode_layout
    return PoolsView(
        prefill_instances=len(pools.prefill),
        prefill_npus=pools.prefill_nodes * NPUS_PER_NODE,
        decode_npus=len(pools.decode) * NPUS_PER_NODE,
        decode_dies=deployment.decode_dies,
        caching_nodes=len(cache.nodes),
        experts_per_die=layout.experts_per_die,
        redundant_experts=layout.redundant(deployment.model.routed_experts),
        kv_tokens_per_die=deployment.kv_tokens_per_die,
        context_length=deployment.context_length,
        cache_blocks=max(0, cache.capacity),
        cache_plane=deployment.cache_plane if deployment.spec.context_cache else "",
    )


def roles_of(pools: Pools) -> dict[str, str]:
    """The role of each node that computes."""
    return {
        **dict.fromkeys(pools.decode, "decode"),
        **{node: "prefill" for current in pools.prefill for node in current},
    }


def pools_of(roles: Mapping[str, str], nodes_per_prefill_instance: int) -> Pools | None:
    """The pools of recorded roles, in their order; None if there are no roles."""
    prefill = [node for node, role in roles.items() if role == "prefill"]
    decode = tuple(node for node, role in roles.items() if role == "decode")
    instances = tuple(
        tuple(prefill[at : at + nodes_per_prefill_instance])
        for at in range(0, len(prefill), nodes_per_prefill_instance)
    )
    return Pools(instances, decode, ()) if roles else None


def requeued_text(requeued: int) -> str:
    """The addition to the reason of a layout change."""
    return f"; {pluralized(requeued, 'request')} requeued" if requeued else ""


def prefill_text(instances: int) -> str:
    return f"prefill continues with {pluralized(instances, 'instance')}"


def layout_text(view: PoolsView) -> str:
    return (
        f"prefill on {pluralized(view.prefill_instances, 'instance')} with {view.prefill_npus} NPUs, "
        f"decode on {view.decode_npus} NPUs (EP{view.decode_dies})"
    )
