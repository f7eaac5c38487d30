"""The layout of a deployment: which nodes and dies prefill, decode and cache.

`lay_out` is a pure function of a FabricView. It splits the usable nodes of an instance in the proportions of the
paper's 256-NPU deployment (12 nodes of 32 for prefill in instances of two, the rest for decode; every node's CPU memory
caches) or as the spec requests, places the experts so that each of the 256 is at least once in each pool, and refuses
if the weights do not fit. Nodes keep their role as far as the sizes allow: a lost node must not make the others change
roles. When nodes are few, prefill yields to decode, which serves the requests in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.ems.context_cache import ContextCache
from infer_workload.layout.scale import PoolScale
from infer_workload.timing.calibration import Calibration
from infer_workload.timing.decode import DecodeTiming, StepOptions
from infer_workload.timing.experts import ExpertLayout, place_experts
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.gather_scatter import exchange_among
from infer_workload.timing.model import ServedModel
from infer_workload.timing.prefill import PrefillTiming
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized

SIZES = ("prefill_npus", "decode_npus", "caching_nodes")
"""The fields of a spec that decide which nodes have which role."""

NODES_MAX = 4096
"""The most nodes considered when searching for a size."""

MICROBATCHING = {"auto": None, "on": True, "off": False}


class DoesNotFit(Exception):
    """The deployment cannot be laid out; `blocking` lists each obstacle as {domain, needs, has}."""

    def __init__(self, message: str, blocking: list[dict[str, object]]) -> None:
        super().__init__(message)
        self.message = message
        self.blocking = blocking


@dataclass(frozen=True)
class Pools:
    """Nodes by role. Caching overlaps the other roles: it uses their CPU memory."""

    prefill: tuple[tuple[str, ...], ...]
    decode: tuple[str, ...]
    caching: tuple[str, ...]

    @property
    def prefill_nodes(self) -> int:
        return sum(len(instance) for instance in self.prefill)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that compute, in either role."""
        return frozenset(self.decode).union(*self.prefill)

    @property
    def npus(self) -> int:
        return (self.prefill_nodes + len(self.decode)) * NPUS_PER_NODE

    def restricted_to(self, nodes: Collection[str]) -> Pools:
        """The roles of those nodes only; prefill instances are kept whole or not at all."""
        return Pools(
            tuple(instance for instance in self.prefill if set(instance) <= set(nodes)),
            tuple(node for node in self.decode if node in nodes),
            tuple(node for node in self.caching if node in nodes),
        )

    def outside(self, other: Pools) -> tuple[frozenset[str], frozenset[tuple[str, ...]]]:
        """Decode nodes and prefill instances that are not in `other`."""
        return frozenset(self.decode) - frozenset(other.decode), frozenset(self.prefill) - frozenset(other.prefill)


@dataclass(frozen=True)
class Deployment:
    """A laid-out deployment under one generation of the fabric."""

    spec: DeploymentShape
    model: ServedModel
    calibration: Calibration
    fabric: Fabric
    pools: Pools
    decode_layout: ExpertLayout
    prefill_layouts: tuple[ExpertLayout, ...]
    kv_tokens_per_die: int
    cache_blocks: int
    cache_ssd_blocks: int = 0
    scale: PoolScale | None = None
    """The sizes in effect in place of the spec's."""

    @property
    def decode_dies(self) -> int:
        return self.decode_layout.dies

    @property
    def block_bytes(self) -> int:
        return self.spec.block_tokens * self.model.kv_bytes_per_token

    @property
    def cache_gb_per_node(self) -> float:
        """Context-cache memory on each caching node, GB."""
        if not self.spec.context_cache:
            return 0.0
        asked = self.spec.cache_gb_per_node
        return self.calibration.cache_gb_per_node if asked is None else asked

    @property
    def cache_plane(self) -> str:
        """The plane over which cached blocks are read: as requested, else the machine's memory plane."""
        return self.spec.cache_plane or self.calibration.memory_plane

    def context_cache(self) -> ContextCache:
        """An empty context cache of the deployment's size."""
        spec = self.spec
        return ContextCache(
            self.cache_blocks,
            spec.block_tokens,
            self.pools.caching,
            ssd_capacity=self.cache_ssd_blocks,
            policy=spec.cache_eviction,
            share=spec.cache_project_share,
        )

    @property
    def drafts(self) -> bool:
        """Whether each step drafts a token: if the spec enables it and the model has a layer for it."""
        return self.spec.mtp and self.model.draft_layers > 0

    @property
    def batch_per_die(self) -> int:
        calibration = self.calibration
        return max(1, (self.spec.batch_per_npu or calibration.decode_batch_per_npu) // calibration.dies_per_npu)

    @property
    def tpot_target_s(self) -> float | None:
        """The time per token, in seconds, that the batch adapts to; None: only memory and `batch_per_die` limit it."""
        return self.spec.batch_tpot_s

    @property
    def context_length(self) -> int:
        """The longest prompt plus answer, in tokens: limited by the model and by one die's KV memory."""
        return min(self.model.context_length, self.kv_tokens_per_die)

    def decode_timing(self) -> DecodeTiming:
        exchange = exchange_among(self.fabric, self.calibration, self.pools.decode, self.decode_dies, self.model)
        options = StepOptions(MICROBATCHING[self.spec.microbatching], self.drafts)
        return DecodeTiming(self.model, self.calibration, exchange, self.decode_layout, options)

    def prefill_timing(self, instance: int) -> PrefillTiming:
        nodes, layout = self.pools.prefill[instance], self.prefill_layouts[instance]
        exchange = exchange_among(self.fabric, self.calibration, nodes, layout.dies, self.model)
        microbatch = MICROBATCHING[self.spec.microbatching]
        return PrefillTiming(self.model, self.calibration, exchange, layout, microbatch=microbatch)


def check_planes(desired: DeploymentShape, calibration: Calibration) -> None:
    """Raise DoesNotFit if the machine lacks the plane over which the context cache is to be read, if there is one."""
    plane, has = desired.cache_plane, ", ".join(calibration.planes)
    if not desired.context_cache or plane is None or plane in calibration.planes:
        return
    why = f"the context cache cannot be read over {plane}: the machine's nodes are connected by {has}"
    raise DoesNotFit(why, [{"domain": "cachePlane", "needs": plane, "has": has}])


def lay_out(
    fabric: Fabric,
    model: ServedModel,
    calibration: Calibration,
    spec: DeploymentShape | None = None,
    previous: Pools | None = None,
    scale: PoolScale | None = None,
    *,
    at_any_size: bool = False,
) -> Deployment:
    """Lay out the deployment on the nodes of `fabric`, with pool sizes from `scale` if given, else from the spec.
    Raises DoesNotFit listing every obstacle. With `at_any_size`, fewer nodes than the spec's sizes are no obstacle:
    they are split as closely to the sizes as possible without unnecessary changes of role."""
    desired = spec or DeploymentShape()
    check_planes(desired, calibration)
    nodes = fabric.nodes
    if scale is None or scale.is_zero:
        prefill_nodes, decode_nodes = _sizes(nodes, desired, calibration, previous if at_any_size else None)
    else:
        prefill_nodes, decode_nodes = _sizes_for_scale(scale, nodes, calibration, previous)
    caching = desired.caching_nodes if scale is None else scale.caching
    pools = _assign(nodes, prefill_nodes, decode_nodes, caching, calibration, previous)
    decode_layout = place_experts(len(pools.decode) * calibration.dies_per_node, model)
    prefill_layouts = tuple(
        prefill_layout(len(instance) * calibration.dies_per_node, model, calibration) for instance in pools.prefill
    )
    spare = _spare_hbm(decode_layout, model, calibration)
    blocking: list[dict[str, object]] = [
        _hbm_blocking(role, layout, model, calibration)
        for role, layout in (("decode", decode_layout), *(("prefill", layout) for layout in prefill_layouts[:1]))
        if _spare_hbm(layout, model, calibration) <= 0
    ]
    if blocking:
        raise DoesNotFit("the weights do not fit the memory of the dies; the pool needs more nodes", blocking)
    cache_blocks, cache_ssd_blocks = _cache_blocks(desired, model, calibration, len(pools.caching))
    return Deployment(
        spec=desired,
        model=model,
        calibration=calibration,
        fabric=fabric,
        pools=pools,
        decode_layout=decode_layout,
        prefill_layouts=prefill_layouts,
        kv_tokens_per_die=int(spare // model.kv_bytes_per_token),
        cache_blocks=cache_blocks,
        cache_ssd_blocks=cache_ssd_blocks,
        scale=scale,
    )


def with_spec(current: Deployment, spec: DeploymentShape) -> Deployment:
    """The same roles with another spec, except for its pool sizes, which stay as they are."""
    desired = spec.model_copy(update={field: getattr(current.spec, field) for field in SIZES})
    blocks, ssd_blocks = _cache_blocks(desired, current.model, current.calibration, len(current.pools.caching))
    return replace(current, spec=desired, cache_blocks=blocks, cache_ssd_blocks=ssd_blocks)


def with_fabric(current: Deployment, fabric: Fabric) -> Deployment:
    """The same roles on another view of their nodes; nodes that it does not show no longer cache."""
    pools = replace(current.pools, caching=tuple(node for node in current.pools.caching if node in fabric.nodes))
    blocks, ssd_blocks = _cache_blocks(current.spec, current.model, current.calibration, len(pools.caching))
    shown = fabric.restricted_to(pools.nodes.union(pools.caching))
    return replace(current, fabric=shown, pools=pools, cache_blocks=blocks, cache_ssd_blocks=ssd_blocks)


def _cache_blocks(spec: DeploymentShape, model: ServedModel, calibration: Calibration, caching: int) -> tuple[int, int]:
    """Blocks of the context cache on that many nodes: in memory, and on SSD."""
    per_node = calibration.cache_gb_per_node if spec.cache_gb_per_node is None else spec.cache_gb_per_node
    block_bytes = spec.block_tokens * model.kv_bytes_per_token
    blocks = int(caching * per_node * 1e9 // block_bytes) if spec.context_cache else 0
    return blocks, int(caching * spec.cache_ssd_gb_per_node * 1e9 // block_bytes)


def _sizes(
    usable: Sequence[str], spec: DeploymentShape, calibration: Calibration, previous: Pools | None
) -> tuple[int, int]:
    """Nodes for (prefill, decode): explicit sizes first, the paper's proportion for the rest. With `previous`, too few
    nodes are split as by a PoolScale of these sizes; otherwise they raise DoesNotFit."""
    nodes = len(usable)
    prefill, decode = [
        None if npus is None else npus // NPUS_PER_NODE for npus in (spec.prefill_npus, spec.decode_npus)
    ]
    nodes_min = (prefill or 1) + (decode or 1)
    if nodes < nodes_min:
        if previous is not None and nodes > 1:
            return _sizes_for_scale(PoolScale(prefill or 1, decode or 1), usable, calibration, previous)
        raise DoesNotFit(
            f"the instance has {pluralized(nodes, 'usable node')}, the pools need {nodes_min}",
            [{"domain": "nodes", "needs": nodes_min, "has": nodes}],
        )
    if prefill is None:
        share = calibration.paper_prefill_nodes / calibration.paper_nodes
        free = nodes if decode is None else nodes - decode
        prefill = max(1, round(nodes * share)) if decode is None else free
        size = calibration.nodes_per_prefill_instance
        if prefill > size:
            prefill -= prefill % size
    return prefill, nodes - prefill if decode is None else decode


def _sizes_for_scale(
    scale: PoolScale, nodes: Sequence[str], calibration: Calibration, previous: Pools | None
) -> tuple[int, int]:
    """Nodes for (prefill, decode) as an autoscaler requests; nodes keep their roles as far as that allows."""
    if len(nodes) < 2:
        raise DoesNotFit(
            f"the instance has {pluralized(len(nodes), 'usable node')}, the pools need 2",
            [{"domain": "nodes", "needs": 2, "has": len(nodes)}],
        )
    usable = set(nodes)
    decode = [each for each in (previous.decode if previous else ()) if each in usable]
    instances = _without_overlaps(previous.prefill if previous else (), usable.difference(decode))
    return scale.fit(
        len(nodes), sum(len(each) for each in instances), len(decode), calibration.nodes_per_prefill_instance
    )


def kv_tokens_per_die(model: ServedModel, calibration: Calibration, decode_nodes: int) -> int:
    """KV tokens that fit on a die if that many nodes decode: the fewer nodes, the more experts each die holds."""
    layout = place_experts(decode_nodes * calibration.dies_per_node, model)
    return int(_spare_hbm(layout, model, calibration) // model.kv_bytes_per_token)


def min_decode_nodes(model: ServedModel, calibration: Calibration, tokens: int, nodes_max: int) -> int:
    """The fewest decode nodes, up to `nodes_max`, whose dies fit a request of that many tokens."""
    enough = (nodes for nodes in range(1, nodes_max) if kv_tokens_per_die(model, calibration, nodes) >= tokens)
    return next(enough, nodes_max)


@cache
def min_nodes(model: ServedModel, calibration: Calibration, tokens: int = 1) -> int:
    """The fewest nodes, in the default proportion of the pools, whose dies fit the model's weights and, for decode, a
    request of that many tokens."""
    for nodes in range(2, NODES_MAX):
        prefill, decode = _sizes([""] * nodes, DeploymentShape(), calibration, None)
        reading = min(prefill, calibration.nodes_per_prefill_instance) * calibration.dies_per_node
        reads = _spare_hbm(prefill_layout(reading, model, calibration), model, calibration) > 0
        if reads and kv_tokens_per_die(model, calibration, decode) >= tokens:
            return nodes
    return NODES_MAX


def _assign(
    nodes: Sequence[str],
    prefill_nodes: int,
    decode_nodes: int,
    caching_nodes: int | None,
    calibration: Calibration,
    previous: Pools | None,
) -> Pools:
    """Assign roles to nodes: survivors keep theirs, decode is filled first, prefill instances stay whole."""
    usable, size = set(nodes), calibration.nodes_per_prefill_instance
    kept_decode = [node for node in (previous.decode if previous else ()) if node in usable][:decode_nodes]
    instances: list[tuple[str, ...]] = []
    for instance in _without_overlaps(previous.prefill if previous else (), usable.difference(kept_decode)):
        if len(instance) <= prefill_nodes - sum(len(current) for current in instances):
            instances.append(instance)
    taken = {*kept_decode, *(node for instance in instances for node in instance)}
    free = [node for node in nodes if node not in taken]
    more = decode_nodes - len(kept_decode)
    decode = kept_decode + free[:more]
    rest = free[more:]
    room = prefill_nodes - sum(len(current) for current in instances)
    while room > 0 and rest:
        take = min(size, room, len(rest))
        instances.append(tuple(rest[:take]))
        rest, room = rest[take:], room - take
    playing = {*decode, *(node for instance in instances for node in instance)}
    caching = [node for node in nodes if node in playing]
    return Pools(tuple(instances), tuple(decode), tuple(caching[:caching_nodes]))


def _without_overlaps(instances: Iterable[tuple[str, ...]], usable: set[str]) -> list[tuple[str, ...]]:
    """The usable prefill instances, without those that share a node with an earlier one. An instance and the successor
    loading in its place may share nodes; if the former stays after all, the successor is not needed."""
    found, taken = list[tuple[str, ...]](), set[str]()
    for instance in instances:
        if usable.issuperset(instance) and taken.isdisjoint(instance):
            found.append(instance)
            taken.update(instance)
    return found


def prefill_layout(dies: int, model: ServedModel, calibration: Calibration) -> ExpertLayout:
    """Experts of a prefill instance: with one redundant slot per die if there is room (the paper's 8 + 1 + 1)."""
    roomy = place_experts(dies, model, redundant_per_die=1)
    return roomy if _spare_hbm(roomy, model, calibration) > 0 else place_experts(dies, model)


def _spare_hbm(layout: ExpertLayout, model: ServedModel, calibration: Calibration) -> float:
    """Bytes of a die left for KV after weights, exchange buffers and the runtime."""
    fixed = (calibration.exchange_buffers_gb + calibration.runtime_gb) * 1e9
    return calibration.hbm_gb * 1e9 - fixed - model.die_weight_bytes(layout.experts_per_die)


def _hbm_blocking(role: str, layout: ExpertLayout, model: ServedModel, calibration: Calibration) -> dict[str, object]:
    needs = calibration.hbm_gb - _spare_hbm(layout, model, calibration) / 1e9
    return {"domain": f"{role} HBM of one die", "needs": f"{needs:.1f} GB", "has": f"{calibration.hbm_gb:.1f} GB"}
