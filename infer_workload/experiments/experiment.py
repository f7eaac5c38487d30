"""Experiments: a trace or generated traffic through a whole deployment in virtual time.

`run` replays forty minutes of requests in seconds, since nothing waits for a clock. The fabric consists of the trial's
nodes: healthy, with a share of it granted, or with losses and a neighbour on it (`conditions`). The same trial always
has the same outcome.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import inf

from infer_workload.engine.engine import Engine
from infer_workload.engine.request import ContextTooLong, InferenceRequest
from infer_workload.experiments.trial import SHARES, Trial
from infer_workload.layout.deployment import Deployment, DoesNotFit, lay_out
from infer_workload.layout.recovery import LayoutChange, plan_change
from infer_workload.reports.report import Objectives, Report, report_of
from infer_workload.reports.served import Served
from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, blocks_of, generate, read_trace
from matrixcommon.model.quantities import pluralized

PROGRESS_EVERY = 200
COLLECT_EVERY = 50_000
HALF_LANES = "--half-lanes"
"""The domain of the refusal when more nodes are to lose lanes than decode."""

Progress = Callable[[int, int, float], None]
"""Called with the requests submitted, the total, and the emulated second."""


@dataclass(frozen=True)
class Outcome:
    """The report of an experiment, and every finished request."""

    report: Report
    requests: Served


@contextmanager
def _infrequent_gc() -> Iterator[None]:
    """Collect garbage less often: a replay makes millions of objects and few cycles, and collecting after every 700
    allocations took a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(trial: Trial, progress: Progress | None = None) -> Outcome:
    """Replay the trial's trace, or its generated requests.

    Raises DoesNotFit for a deployment that cannot be laid out, BadTrace or OSError for a trace that cannot be read.
    """
    model, machine = load_model(trial.model), load_calibration(trial.machine)
    shares = {plane: getattr(trial, share) for plane, share in SHARES.items()}
    fabric = healthy_fabric(trial.nodes, machine).scaled_by(shares)
    if trial.contended:
        from infer_workload.experiments.conditions import TrialContention  # imports numpy, which other trials skip

        fabric = fabric.with_contention(TrialContention(trial, tuple(fabric.nodes), machine))
    deployment = lay_out(fabric, model, machine, trial.shape())
    if trial.half_lanes > (has := len(deployment.pools.decode)):
        why = f"{pluralized(trial.half_lanes, 'decode node')} cannot lose half of their lanes: the layout has {has}"
        raise DoesNotFit(why, [{"domain": HALF_LANES, "needs": trial.half_lanes, "has": has}])
    lost = () if trial.lose_node_at is None else (trial.lose_node_at,)
    if lost:
        without_decode_node(deployment)  # refuse before the replay if the rest does not fit
    objectives = Objectives(trial.ttft, trial.tpot)
    if trial.trace is not None:
        recorded = read_trace(trial.trace)
        workload = f"trace {trial.trace.name}"
        return replay(deployment, recorded, workload, trial.seed, lost, objectives, progress, len(recorded))
    count = trial.generate or 0
    arrivals = islice(generate(trial.seed, trial.rate), count)  # lazily: a million prompts take a gigabyte
    workload = f"{count:,} generated requests"
    return replay(deployment, arrivals, workload, trial.seed, lost, objectives, progress, count)


def generate_arrivals(count: int, seed: int, requests_per_second: float | None = None) -> list[Arrival]:
    """The first `count` requests of seeded traffic. Raises ValueError for fewer than one."""
    if count < 1:
        raise ValueError("at least one request must be generated")
    return list(islice(generate(seed, requests_per_second), count))


@_infrequent_gc()
def replay(
    deployment: Deployment,
    arrivals: Iterable[Arrival],
    workload: str,
    seed: int = 0,
    node_losses_s: Iterable[float] = (),
    objectives: Objectives | None = None,
    progress: Progress | None = None,
    count: int = 0,
) -> Outcome:
    """Submit each arrival to a deployment at its time, and run until the last has finished. At each of `node_losses_s`
    before that, the last decode node is lost. `count`, the number of arrivals, is used only for `progress`."""
    finished = Served()
    engine = Engine(deployment, seed, on_finished=finished.add)
    limits, losses, notes = list[int](), sorted(node_losses_s), list[str]()
    for number, arrival in enumerate(arrivals):
        while losses and losses[0] <= arrival.at_s:
            engine.advance(losses.pop(0))
            notes.append(lose_decode_node(engine))
        engine.advance(arrival.at_s)
        if progress and number % PROGRESS_EVERY == 0:
            progress(number, count, engine.now)
        tokens = arrival.input_tokens, arrival.output_tokens
        blocks = blocks_of(arrival, engine.cache.block_tokens)
        try:
            engine.submit(InferenceRequest(number, arrival.at_s, *tokens, blocks, priority=arrival.priority))
        except ContextTooLong as refused:
            limits.append(refused.limit)
    for at in losses:
        while engine.in_flight and (due := engine.next_event_at()) <= at and due < inf:
            engine.advance(due)
        if not engine.in_flight:
            notes.append(f"no node was lost at {at:g} s: all requests had finished by then")
            continue
        engine.advance(at)
        notes.append(lose_decode_node(engine))
    engine.advance(inf)
    if progress:
        progress(count, count, engine.now)
    if limits:
        long = f"prompt and answer exceed {min(limits):,} tokens, the context length on a decode die"
        notes.append(f"{pluralized(len(limits), 'request')} refused: {long}")
    report = report_of(engine, finished, workload, seed, len(limits), notes, objectives)
    return Outcome(report, finished)


def lose_decode_node(engine: Engine) -> str:
    """Remove the last node of the decode pool from the fabric and lay out again without it. Return a note about it."""
    node, change = without_decode_node(engine.deployment)
    requeued = engine.apply_layout(change.deployment, change.pause_s, change.start_s)
    return (
        f"{node} was lost at {engine.now:.1f} s: decode paused for {change.pause_s:.1f} s and continued as "
        f"EP{change.deployment.decode_dies}; {pluralized(requeued, 'request')} requeued"
    )


def without_decode_node(current: Deployment) -> tuple[str, LayoutChange]:
    """The last node of the decode pool, and the layout without it. Raises DoesNotFit."""
    node = current.pools.decode[-1]
    return node, plan_change(current, current.fabric.without([node]))


def healthy_fabric(nodes: int, machine: Calibration | None = None) -> Fabric:
    """A healthy fabric of the first `nodes` nodes of a machine, by default a CloudMatrix384."""
    return Fabric.healthy((f"sn0-c{at // 4:02d}-n{at % 4}" for at in range(nodes)), machine=machine)
