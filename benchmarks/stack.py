"""The whole stack on this machine: start-up time, memory, and the time until an instance is Active.

Each figure is measured on a new, otherwise idle stack in a temporary folder. Times are wall time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import Figure
from services.matrixctl.clients.kubernetes import Cluster, stack_cluster
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stack_report, start_supervisor, stop_stack, watch_until_ready

TIME_SCALE = 60.0
SETTLE_WALL_S = 10.0
TIMEOUT_WALL_S = 120.0
APPLY_RUNS = 3
MB = 1_000_000

MANIFEST = """\
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata:
  name: bench
spec:
  nodes: 32
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="cm-bench-") as path:
        folder = StateFolder(Path(path) / "state")
        with run_stack(folder) as first_s:
            yield Figure(
                "start to ready, first start", first_s, "s", "`up` until every /readyz is 200; databases are made", 5
            )
        with run_stack(folder) as again_s:
            yield Figure("start to ready, later start", again_s, "s", "the same on the folder of a stopped stack", 5)
            time.sleep(SETTLE_WALL_S)
            yield from measure_memory(folder)
            yield from apply_to_active(folder, Path(path) / "bench.yaml")


@contextmanager
def run_stack(folder: StateFolder) -> Iterator[float]:
    """Start a stack and yield the seconds until it was ready."""
    began = time.monotonic()
    supervisor = start_supervisor(folder, StackRequest(scale=TIME_SCALE).to_json())
    try:
        for _ in watch_until_ready(folder, supervisor, TIMEOUT_WALL_S):
            pass
        yield time.monotonic() - began
    finally:
        stop_stack(folder)


def measure_memory(folder: StateFolder) -> Iterator[Figure]:
    report = stack_report(folder)
    pss, rss = report.total(lambda current: current.pss), report.total(lambda current: current.rss)
    if pss is not None:
        method = f"sum of Pss over {len(report.memory)} processes (each shared page once), {SETTLE_WALL_S:g} s idle"
        yield Figure("idle memory, shared pages counted once", pss / MB, "MB", method, 500)
    if rss is not None:
        yield Figure("idle memory, shared pages counted in each", rss / MB, "MB", "sum of Rss over the same processes")


def apply_to_active(folder: StateFolder, manifest: Path) -> Iterator[Figure]:
    manifest.write_text(MANIFEST)
    cluster = stack_cluster(folder)
    taken = [apply_once(cluster, manifest) for _ in range(APPLY_RUNS)]
    name = f"apply to Active, 32 nodes at --time-scale {TIME_SCALE:g}"
    shown = ", ".join(f"{seconds:.2f}" for seconds in taken)
    yield Figure(name, statistics.median(taken), "s", f"from server-side apply to .status.state, median of {shown}", 5)


def apply_once(cluster: Cluster, manifest: Path) -> float:
    began = time.monotonic()
    cluster.apply(manifest)
    _wait(lambda: ((cluster.instance("bench") or {}).get("status") or {}).get("state") == "Active")
    seconds = time.monotonic() - began
    cluster.delete(manifest)
    _wait(lambda: cluster.instance("bench") is None)
    return seconds


def _wait(question: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_WALL_S
    while not question():
        if time.monotonic() > until:
            raise SystemExit("the stack did not get ready in time; see `matrixctl status` and the logs")
        time.sleep(0.05)


if __name__ == "__main__":
    for figure in measure():
        print(figure.line())
