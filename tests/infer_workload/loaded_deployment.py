"""A deployment under built-in load, without a service around it."""

from __future__ import annotations

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.draining import Drain
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.states import SERVING
from infer_workload.serving.status import progress
from infer_workload.timing.fabric import Fabric

NODES = healthy_fabric(12).nodes
LEAVING = frozenset(NODES[6:])


def in_flight(live):
    return 0 if live.engine is None else len(live.engine.in_flight)


def accounts_for_all_requests(live):
    return live.intake.submitted == live.statistics.requests + live.intake.cancelled + live.layout.cut_off + in_flight(
        live
    )


UNDER_WAY = {"Loading", "HandingOver", "RolesChanging", "NodesLoading"}
LATER_S = 60.0
"""How long it is looked at once nothing is under way: what was to come all the same would come then."""


def is_changing(live) -> bool:
    """Whether something of its layout is under way, which ends by itself."""
    drains = live.draining is not None and not live.draining.drained
    return live.state != SERVING or live.handover.pending is not None or drains or progress(live)[1] in UNDER_WAY


def sizes(live) -> tuple[int, int]:
    """Nodes that read prompts, and that decode."""
    pools = live.engine.deployment.pools
    return pools.prefill_nodes, len(pools.decode)


class LoadedDeployment:
    """A deployment that serves under load, and its time."""

    def __init__(self, nodes=NODES, requests_per_second=20.0, input_tokens_max=8192):
        self.now, self.generation = 1000.0, 0
        self.live = LiveDeployment("d", DeploymentRequest(instance="i"), 1, lambda live: None, lambda request: None)
        self.show(nodes)
        self.advance(120)
        assert self.live.state == SERVING
        load = LoadRequest(requests_per_second=requests_per_second, seed=3, input_tokens_max=input_tokens_max)
        self.live.intake.start_load_generator(load, self.now)
        self.advance(60)
        assert in_flight(self.live) > 20

    def show(self, nodes):
        self.generation += 1
        self.live.apply_view(Fabric.healthy(nodes, self.generation), self.now)

    def advance(self, seconds, step=1.0):
        end = self.now + seconds
        while self.now < end:
            self.now += step
            while not self.live.advance(self.now):
                pass
            assert accounts_for_all_requests(self.live)

    def advance_until_stable(self, within_s, step=1.0):
        """Plays until nothing changes any more, for so long at most, and a little longer."""
        end = self.now + within_s
        while self.now < end and is_changing(self.live):
            self.advance(step, step)
        self.advance(LATER_S, step)

    def drain(self, nodes=LEAVING, deadline_s=600.0):
        self.live.drain(Drain(frozenset(nodes), self.now + deadline_s), self.now)
