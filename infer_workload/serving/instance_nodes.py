"""Division of an instance's nodes among its deployments: the claim of each, and its part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.layout.deployment import NODES_MAX, min_nodes
from infer_workload.layout.division import NO_POOLS, Claim, Part, divide, entitlements
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.ports import ServerMemory
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_key import name_of


def deployments_on(deployments: Iterable[LiveDeployment], instance: str) -> list[LiveDeployment]:
    """The deployments on that instance, in order of creation."""
    there = (live for live in deployments if live.spec.instance == instance)
    return sorted(there, key=lambda live: (live.asked_at, live.name))


def divide_instance(
    fabric: Fabric, deployments: Sequence[LiveDeployment], predecessors: Mapping[str, str] | None = None
) -> dict[str, Part]:
    """The part of the instance's view that each of its deployments has, by name. `predecessors`: the member that each
    successor node replaces."""
    return divide(fabric.nodes, [claim_of(live) for live in deployments], draining_nodes(deployments), predecessors)


class Successors:
    """The replacements under way on an instance, read from its allocation whenever the instance shows other nodes than
    before. `memory` is MatrixResource; None: there are no replacements."""

    def __init__(self, memory: ServerMemory | None) -> None:
        self._memory = memory
        self._found: dict[str, tuple[frozenset[str], dict[str, str]]] = {}

    async def find_predecessors(self, instance: str, nodes: frozenset[str]) -> Mapping[str, str]:
        """The member that each successor replaces; the last known answer if MatrixResource does not answer."""
        shown, follows = self._found.get(instance, (frozenset[str](), {}))
        if self._memory is None or shown == nodes:
            return follows
        try:
            allocation = await self._memory.find_allocation(instance)
        except MatrixError:
            return follows
        members = [] if allocation is None else allocation.members
        ranks = {each.rank: each.node for each in members if each.role == "member" and each.rank is not None}
        follows = {each.node: ranks[each.rank] for each in members if each.role == "successor" and each.rank in ranks}
        self._found[instance] = nodes, follows
        return follows


def reachable_fabric(
    live: LiveDeployment, request: DeploymentRequest, deployments: Sequence[LiveDeployment]
) -> Fabric | None:
    """The nodes that it would have with that request, once others have handed theirs over; None without a view."""
    if live.instance_fabric is None:
        return None
    claims = [claim_of(each, request if each is live else None) for each in deployments]
    own = NO_POOLS if live.engine is None else live.engine.deployment.pools
    nodes = sorted(live.instance_fabric.nodes, key=lambda node: (node not in own.nodes, node))
    return live.instance_fabric.restricted_to(
        nodes[: entitlements(nodes, claims, draining_nodes(deployments))[live.name]]
    )


def describe_others(live: LiveDeployment, parts: dict[str, Part], nodes: int) -> str:
    """A sentence about the nodes that other deployments have; empty if they have none."""
    others = [
        f"{name_of(name)} has {len(part.nodes)}" + (f", handing over {len(part.yields)}" if part.yields else "")
        for name, part in parts.items()
        if name != live.name and part.nodes
    ]
    return f"of the {pluralized(nodes, 'node')} of its instance {', '.join(others)}" if others else ""


def draining_nodes(deployments: Iterable[LiveDeployment]) -> frozenset[str]:
    """Nodes that any of the deployments drains."""
    return frozenset[str]().union(*(live.draining.nodes for live in deployments if live.draining is not None))


def claim_of(live: LiveDeployment, request: DeploymentRequest | None = None) -> Claim:
    """The claim of a deployment with its spec, or with another request."""
    handover, pools = live.handover, live.layout.pools
    size, least = _sizes(live, request or live.spec, begun=pools is not None)
    return Claim(
        live.name,
        size,
        least,
        pools or NO_POOLS,
        running=live.engine is not None,
        assigned=frozenset() if live.fabric is None else frozenset(live.fabric.nodes),
        handover_blocked=handover.pending is not None,
        yields=handover.yields,
        kept_min=0 if size is not None else _min_kept_nodes(live),
    )


def _sizes(live: LiveDeployment, spec: DeploymentRequest, begun: bool) -> tuple[int | None, int]:
    """The number of nodes requested (None: any), and the fewest with which it can begin. Once begun it continues to
    serve with fewer."""
    fewest = min_nodes(live.layout.model, live.layout.calibration)
    if (scale := live.handover.scale) is not None:
        return scale.nodes, min(fewest, scale.nodes)
    prefill, decode = (npus and npus // NPUS_PER_NODE for npus in (spec.prefill_npus, spec.decode_npus))
    if prefill and decode:
        return prefill + decode, min(fewest, prefill + decode) if begun else prefill + decode
    return None, max(fewest, (prefill or 1) + (decode or 1))


def _min_kept_nodes(live: LiveDeployment) -> int:
    """The fewest nodes whose dies fit the longest request of its model; 0 if no layout is large enough."""
    model, machine = live.layout.model, live.layout.calibration
    fewest = min_nodes(model, machine, model.context_length)
    return fewest if fewest < NODES_MAX else 0
