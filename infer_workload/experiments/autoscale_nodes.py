"""The capacity and cost of nodes in a simulated scaling policy: the model's timing, and which nodes serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.ems.model_cache import ModelCache
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out, min_decode_nodes
from infer_workload.layout.recovery import cold_start_s, role_switch_s
from infer_workload.serving.work import CHUNK_TOKENS, batch_within
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model


@dataclass(frozen=True)
class Work:
    """The cost of requests on an instance of a given size: node-seconds of prefill, and places for decoding."""

    token_node_s: float
    """Node-seconds per uncached prompt token, over all nodes."""
    alone_token_s: float
    """Seconds per prompt token on one prefill instance."""
    places_per_node: float
    """Answers that a node decodes at the same time within the objective, averaged over all nodes."""
    start_s: float
    nodes_min: int
    prefill_share: float
    """Share of the nodes that prefill in a deployment without explicit sizes."""
    decode_share: float
    prefill_instance_nodes: int
    decode_nodes_min: int
    switch_s: float
    """Seconds that a node takes to change its role."""


@cache
def work_on(nodes: int, context: int, tpot_s: float) -> Work:
    """The cost of requests with that mean context, in tokens, on that many nodes."""
    model, calibration = load_model(), load_calibration()
    deployment = lay_out(healthy_fabric(nodes), model, calibration, DeploymentShape())
    pools, reading = deployment.pools, deployment.prefill_timing(0)
    count = max(1, CHUNK_TOKENS // context)
    token_s = reading.chunk_s([(context, 0)] * count) * len(pools.prefill[0]) / (count * context)
    batch = batch_within(deployment.decode_timing(), context, deployment.kv_tokens_per_die, tpot_s)
    serving = pools.prefill_nodes + len(pools.decode)
    decode_nodes_min = min_decode_nodes(model, calibration, deployment.context_length, len(pools.decode))
    return Work(
        token_node_s=token_s * serving / pools.prefill_nodes,
        alone_token_s=reading.chunk_s([(context, 0)]) / context,
        places_per_node=min(batch, deployment.batch_per_die) * calibration.dies_per_node * len(pools.decode) / serving,
        start_s=cold_start_s(deployment, ModelCache(calibration, {model.name})),
        nodes_min=1 + decode_nodes_min,
        prefill_share=pools.prefill_nodes / serving,
        decode_share=len(pools.decode) / serving,
        prefill_instance_nodes=calibration.nodes_per_prefill_instance,
        decode_nodes_min=decode_nodes_min,
        switch_s=role_switch_s(deployment),
    )


@dataclass
class Nodes:
    """The nodes of one pool, or all: serving, starting (the time each will serve from), leaving (the time each costs
    until)."""

    serving: int
    starting: list[float] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)
    node_s: float = 0.0

    @property
    def members(self) -> int:
        return self.serving + len(self.starting)

    def resize(self, to: int, now: float, start_s: float, drain_s: float) -> None:
        change = to - self.members
        self.starting += [now + start_s] * change
        while change < 0 and self.starting:
            self.starting.pop()
            change += 1
        self.serving += min(change, 0)
        self.leaving += [now + drain_s] * -min(change, 0)

    def transfer(self, nodes: int, other: Nodes, now: float, after_s: float) -> None:
        """Move that many nodes to the other pool, where they serve `after_s` later and cost from now on."""
        self.serving -= nodes
        other.starting += [now + after_s] * nodes

    def tick(self, now: float) -> None:
        self.serving += sum(at <= now for at in self.starting)
        self.starting = [at for at in self.starting if at > now]
        self.leaving = [at for at in self.leaving if at > now]
        self.node_s += self.members + len(self.leaving)
