"""The live deployment and the engine in virtual time give the same latencies under the same arrivals: however time is played
on in between, within 3 %."""

from __future__ import annotations

from random import Random

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import generate_arrivals, healthy_fabric, replay
from infer_workload.layout.deployment import lay_out
from infer_workload.serving.live.live_deployment import LiveDeployment
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.model import load_model

NODES, REQUESTS = 8, 400


@pytest.mark.parametrize("beside", [False, True])
def test_the_same_arrivals_have_the_same_ttft_and_tpot(beside):
    fabric = healthy_fabric(NODES)
    deployment = lay_out(fabric, load_model(), load_calibration())
    slower = MeasuredContention(
        {frozenset(deployment.pools.decode): 60.0, frozenset(deployment.pools.prefill[0]): 90.0}
    )
    arrivals = generate_arrivals(REQUESTS, 5, 12.0)
    replayed = replay(
        lay_out(fabric.with_contention(slower if beside else None), load_model(), load_calibration()),
        arrivals,
        "",
        seed=3,
    ).report

    done, rng = [], Random(1)
    live = LiveDeployment("r1", DeploymentRequest(instance="i"), 3, lambda live: None, done.append)
    live.apply_view(fabric, 0.0)
    start = live.layout.loading.serves_from + 1.0
    live.advance(start)
    assert live.serves
    if beside:
        assert live.apply_contention(slower, start)
    at = start
    for arrival in arrivals:
        while at + 1.0 < start + arrival.at_s:  # somebody looks now and then, whatever comes
            at += rng.uniform(0.1, 1.0)
            live.advance(at)
        at = max(at, start + arrival.at_s)
        asked = InferenceRequest(0, at, arrival.input_tokens, arrival.output_tokens, tuple(arrival.blocks))
        live.submit(start + arrival.at_s, asked)
    while len(done) < REQUESTS:
        at += 1.0
        live.advance(at)
    assert replayed.finished == REQUESTS
    ttft = sum(request.ttft_s for request in done) / REQUESTS
    longer = [request.tpot_s for request in done if request.output_tokens > 1]
    assert ttft == pytest.approx(replayed.ttft.mean, rel=0.03)
    assert sum(longer) / len(longer) == pytest.approx(replayed.tpot.mean, rel=0.03)
