"""Experiments: a trace or generated traffic through a whole deployment in virtual time.

`run` replays forty minutes of requests in seconds, since nothing waits for a clock. The fabric is a healthy one of
`nodes` nodes unless one is given. The same arguments give the same report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from pathlib import Path

from infer_workload.engine.engine import ContextTooLong, Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.layout.deployment import Deployment, DeploymentSpec, DoesNotFit, lay_out
from infer_workload.layout.recovery import plan_change
from infer_workload.reports.report import Report, report_of
from infer_workload.timing.calibration import Calibration, load_calibration
from infer_workload.timing.decode import StepOptions
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import ServedModel, load_model
from infer_workload.traffic.generator import Arrival, BadTrace, generate, read_trace

PAPER_NODES = 32
PROGRESS_EVERY = 200

Progress = Callable[[int, int, float], None]
"""Called with requests submitted, requests in all, and the emulated second."""


def run(
    trace: Path | None = None,
    generate: int | None = None,
    *,
    nodes: int = PAPER_NODES,
    prefill_npus: int | None = None,
    decode_npus: int | None = None,
    seed: int = 0,
    requests_per_second: float | None = None,
    lose_node_at_s: float | None = None,
    spec: DeploymentSpec | None = None,
    fabric: Fabric | None = None,
    model: ServedModel | None = None,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> Report:
    """Replay `trace`, or `generate` requests of seeded traffic, and report.

    `lose_node_at_s` takes the last decode node away at that second. Raises DoesNotFit for a deployment that cannot be
    laid out, BadTrace or OSError for a trace that cannot be read, ValueError when neither or both workloads are given.
    """
    if (trace is None) == (generate is None):
        raise ValueError("give a trace or a number of requests to generate, one of the two")
    desired = spec or DeploymentSpec(prefill_npus=prefill_npus, decode_npus=decode_npus)
    deployment = lay_out(
        fabric or healthy_fabric(nodes), model or load_model(), calibration or load_calibration(), desired
    )
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
        refused += not _submitted(engine, number, arrival)
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


def _submitted(engine: Engine, number: int, arrival: Arrival) -> bool:
    request = InferenceRequest(number, arrival.at_s, arrival.input_tokens, arrival.output_tokens, arrival.blocks)
    try:
        engine.submit(request)
    except ContextTooLong:
        return False
    return True


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infer_workload.experiments.experiment", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--trace", type=Path, help="JSON lines in the Mooncake format, plain or .gz")
    parser.add_argument("--generate", type=int, metavar="N", help="N requests of seeded conversation traffic")
    parser.add_argument(
        "--nodes", type=int, default=PAPER_NODES, help="nodes of the instance, 8 NPUs each (default 32)"
    )
    parser.add_argument(
        "--prefill", type=int, metavar="NPUS", help="NPUs for prefill (default: the paper's proportion)"
    )
    parser.add_argument("--decode", type=int, metavar="NPUS", help="NPUs for decode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rate", type=float, metavar="R", help="generated requests a second (default: the trace's 3.27)"
    )
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--cache-gb", type=float, metavar="GB", help="context cache on each node")
    parser.add_argument("--no-cache", action="store_true", help="without context caching")
    parser.add_argument("--cache-plane", choices=("ub", "vpc"), default="ub")
    parser.add_argument("--no-mtp", action="store_true", help="without multi-token prediction")
    parser.add_argument("--microbatch", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--lose-node-at", type=float, metavar="S", help="lose a decode node at that second")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args(None if arguments is None else list(arguments))
    microbatch = {"auto": None, "on": True, "off": False}[given.microbatch]
    spec = DeploymentSpec(
        prefill_npus=given.prefill,
        decode_npus=given.decode,
        block_tokens=given.block_tokens,
        context_cache=not given.no_cache,
        cache_plane=given.cache_plane,
        cache_gb_per_node=given.cache_gb,
        prefill_microbatch=microbatch,
        steps=StepOptions(microbatch=microbatch, mtp=not given.no_mtp),
    )
    try:
        report = run(
            given.trace,
            given.generate,
            nodes=given.nodes,
            seed=given.seed,
            requests_per_second=given.rate,
            lose_node_at_s=given.lose_node_at,
            spec=spec,
        )
    except (DoesNotFit, BadTrace, OSError, ValueError) as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 2
    print(report.json() if given.output == "json" else report.text(), end="" if given.output == "text" else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
