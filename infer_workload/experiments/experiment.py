"""Experiments: a trace or generated traffic through a whole deployment in virtual time.

`run` replays forty minutes of requests in seconds, since nothing waits for a clock. The fabric is a healthy one of
`nodes` nodes. The same arguments give the same report.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from pathlib import Path

from infer_workload.contract import DeploymentShape
from infer_workload.engine.engine import ContextTooLong, Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment, lay_out
from infer_workload.layout.recovery import plan_change
from infer_workload.reports.report import Report, report_of
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, generate, read_trace

PAPER_NODES = 32
PROGRESS_EVERY = 200

Progress = Callable[[int, int, float], None]
"""Called with requests submitted, requests in all, and the emulated second."""


def run(
    trace: Path | None = None,
    generate: int | None = None,
    *,
    nodes: int = PAPER_NODES,
    seed: int = 0,
    requests_per_second: float | None = None,
    lose_node_at_s: float | None = None,
    spec: DeploymentShape | None = None,
    progress: Progress | None = None,
) -> Report:
    """Replay `trace`, or `generate` requests of seeded traffic, and report.

    `lose_node_at_s` takes the last decode node away at that second. Raises DoesNotFit for a deployment that cannot be
    laid out, BadTrace or OSError for a trace that cannot be read, ValueError when neither or both workloads are given.
    """
    if (trace is None) == (generate is None):
        raise ValueError("give a trace or a number of requests to generate, one of the two")
    deployment = lay_out(healthy_fabric(nodes), load_model(), load_calibration(), spec)
    if trace is not None:
        arrivals, workload = read_trace(trace), f"trace {trace.name}"
    else:
        arrivals = generated(generate or 0, seed, requests_per_second)
        workload = f"{generate:,} generated requests"
    return replay(deployment, arrivals, workload, seed, lose_node_at_s, progress)


def generated(count: int, seed: int, requests_per_second: float | None = None) -> list[Arrival]:
    """The first `count` requests of seeded traffic. Raises ValueError for fewer than one."""
    if count < 1:
        raise ValueError("generate at least one request")
    return list(islice(generate(seed, requests_per_second), count))


def replay(
    deployment: Deployment,
    arrivals: list[Arrival],
    workload: str,
    seed: int = 0,
    lose_node_at_s: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Put the arrivals through a deployment, each at its time, and wait until the last has finished."""
    finished: list[InferenceRequest] = []
    engine = Engine(deployment, seed, finished=finished.append)
    refused, losses, notes = 0, [] if lose_node_at_s is None else [lose_node_at_s], list[str]()
    for number, arrival in enumerate(arrivals):
        while losses and losses[0] <= arrival.at_s:
            engine.advance(losses.pop(0))
            notes.append(lose_decode_node(engine))
        engine.advance(arrival.at_s)
        if progress and number % PROGRESS_EVERY == 0:
            progress(number, len(arrivals), engine.now)
        tokens = arrival.input_tokens, arrival.output_tokens
        try:
            engine.submit(InferenceRequest(number, arrival.at_s, *tokens, arrival.blocks))
        except ContextTooLong:
            refused += 1
    engine.advance(inf)
    if progress:
        progress(len(arrivals), len(arrivals), engine.now)
    return report_of(engine, finished, workload, seed, refused, notes)


def lose_decode_node(engine: Engine) -> str:
    """Take the last node of the decode pool out of the fabric and lay out again without it; says what happened."""
    current = engine.deployment
    node = current.pools.decode[-1]
    fabric = current.fabric.without([node])
    change = plan_change(current, fabric)
    requeued = engine.apply_layout(change.deployment, change.pause_s, change.start_s)
    return (
        f"at {engine.now:.1f} s {node} was lost: decode paused {change.pause_s:.1f} s and continued as "
        f"EP{change.deployment.decode_dies}, {requeued} requests were sent back"
    )


def healthy_fabric(nodes: int) -> Fabric:
    """A whole fabric of that many nodes in the order of the machine."""
    return Fabric.healthy(f"sn0-c{at // 4:02d}-n{at % 4}" for at in range(nodes))
