"""Offered twice what it can serve, a deployment with an objective keeps it for what it admits and loses nothing."""

import gc
import tracemalloc

import pytest

from infer_workload.contract.deployments import DeploymentRequest, ServingObjective
from infer_workload.contract.load import LoadRequest
from infer_workload.engine.request import InferenceRequest
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.serving.live.statistics import percentiles
from infer_workload.timing.fabric import Fabric
from matrixcommon.model.errors import Overloaded

NODES = ("sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2", "sn0-c00-n3")
OBJECTIVE = ServingObjective(ttft_s=2.0, tpot_s=0.05)
CAPACITY = 10.0
"""Requests a second of this traffic that these nodes serve within the objective, nearly all of them."""


class OverloadRun:
    """A deployment on a few nodes that is offered so many requests a second."""

    def __init__(self, requests_per_second, objective=OBJECTIVE, **more):
        self.now, self.done = 1000.0, []
        spec = DeploymentRequest(instance="i", objective=objective, **more)
        self.live = LiveDeployment("d", spec, 1, lambda live: None, self.done.append)
        self.live.apply_view(Fabric.healthy(NODES, 1), self.now)
        self.advance(120)
        load = LoadRequest(requests_per_second=requests_per_second, seed=3, input_tokens_max=16_384)
        self.live.intake.start_load_generator(load, self.now)

    def advance(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 5.0
            while not self.live.advance(self.now):
                pass

    @property
    def in_flight(self):
        return len(self.live.engine.in_flight)

    def accounts_for_all_requests(self):
        live, load = self.live, self.live.load
        assert (
            load.submitted == live.intake.submitted == live.statistics.requests + live.intake.cancelled + self.in_flight
        )
        assert load.refused >= live.intake.admission.refused, "some are too long"
        return load.submitted + load.refused


def within_objective(done):
    ttft = percentiles([request.ttft_s for request in done])
    tpot = percentiles([request.tpot_s for request in done if request.output_tokens > 100])
    assert ttft.p99 <= OBJECTIVE.ttft_s
    assert tpot.p99 <= OBJECTIVE.tpot_s * 1.05, "steps with few accepted drafts"


def overloaded_for(seconds):
    whole = OverloadRun(CAPACITY / 2)
    whole.advance(300)
    assert whole.live.intake.admission.refused < 0.02 * whole.accounts_for_all_requests(), (
        "at half the load nobody is refused"
    )
    offered = OverloadRun(2 * CAPACITY)
    offered.advance(300)
    in_flight = offered.in_flight
    offered.done.clear()
    finished = most = 0
    minutes = int(seconds // 60)
    for minute in range(minutes):
        offered.advance(60)
        most = max(most, offered.in_flight)
        finished += len(offered.done)
        within_objective(offered.done)
        offered.done.clear()
        if minute == minutes // 2:
            gc.collect()
            tracemalloc.start()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]  # of the second half, what replaced something of before included
    tracemalloc.stop()
    came = offered.accounts_for_all_requests()
    refused = offered.live.intake.admission.refused
    assert 0.2 * came < refused < 0.8 * came
    assert most < 3 * in_flight + 100
    return grown, finished / seconds


def test_twice_the_capacity_is_admitted_as_far_as_the_objective_goes():
    grown, per_second = overloaded_for(300)
    assert grown < 20e6
    assert per_second > 0.7 * CAPACITY


@pytest.mark.soak
def test_an_hour_of_twice_the_capacity_takes_no_more_memory_than_ten_minutes():
    grown, _ = overloaded_for(3600)
    assert grown < 20e6


def test_without_an_objective_the_queue_is_bounded_all_the_same():
    offered = OverloadRun(4 * CAPACITY, objective=None, queue_max=50, batch_per_npu=2)
    offered.advance(120)
    assert 0 < len(offered.live.engine.waiting) <= 50
    assert offered.live.intake.admission.refused > 0
    offered.accounts_for_all_requests()


def test_a_deployment_without_a_queue_takes_what_begins_at_once():
    offered = OverloadRun(CAPACITY, objective=None, queue_max=0, batch_per_npu=2)
    live = offered.live
    live.intake.start_load_generator(None, offered.now)
    places = 2 * live.engine.deployment.decode_dies // live.engine.deployment.calibration.dies_per_npu
    for _ in range(places):
        live.submit(offered.now, InferenceRequest(0, offered.now, 1000, 500))
    assert len(live.engine.waiting) == 0
    with pytest.raises(Overloaded):
        live.submit(offered.now, InferenceRequest(0, offered.now, 1000, 500))
    offered.advance(60)
    assert live.submit(offered.now, InferenceRequest(0, offered.now, 1000, 500))
    assert (live.intake.admission.refused, len(live.engine.waiting)) == (1, 0)


def test_a_refusal_says_when_to_come_again_and_counts_as_work():
    offered = OverloadRun(3 * CAPACITY)
    offered.advance(120)
    arrived = offered.live.statistics.arrivals(offered.now, 60)[0]

    def fill():
        for _ in range(100):
            offered.live.submit(offered.now, InferenceRequest(0, offered.now, 16_000, 500))

    with pytest.raises(Overloaded) as refused:
        fill()
    assert refused.value.retry_after_s > 0
    assert arrived == pytest.approx(3 * CAPACITY * 60, rel=0.2), "an autoscaler sees what was refused too"
