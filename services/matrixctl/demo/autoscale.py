"""The autoscaling demo: load triples and falls again, an autoscaler grows and shrinks the instance, no request is lost.

The autoscaler is a plain `autoscaling/v2` one from the manifest; CloudMatrix-Infer's own generator offers the load,
open loop. Every claim is checked against what the gauge saw, and no check passes vacuously: the objective has to be
missed under load before it holds again, and requests have to run on nodes that drain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from services.matrixctl.demo import shared_steps
from services.matrixctl.demo.gauge import changes_of_direction
from services.matrixctl.demo.live_charts import LiveCharts, render_charts
from services.matrixctl.demo.node_hours import node_hours
from services.matrixctl.demo.shared_steps import TIMEOUT_WALL_S, Demo, DemoRun
from services.matrixctl.demo.step_runner import Step, check, wait_until
from services.matrixctl.output.columns import value_at
from services.matrixctl.output.screen import echo

NAME = "autoscaled"
TIME_SCALE = 15.0
"""Slower than the other demo: the sixty emulated seconds in which the autoscaler has to act are four of wall time."""
CALM_PER_S, RUSH_PER_S = 9.0, 27.0
TTFT_S_MAX, TPOT_S_MAX = 1.0, 0.050
"""The objective for nine requests in ten over a minute: TPOT from the CloudMatrix384 paper (arXiv 2506.12708, 50 ms),
TTFT chosen here."""
DECIDES_WITHIN_S = 60.0
RATES_WINDOW_S = 60.0
SEEN_LATE_S = 20.0
"""One period of the autoscaler plus one sample of the gauge."""
HPA = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{NAME}"
COUNTED_OUTCOMES = ("submitted", "finished", "inFlight", "cancelled", "lost", "requeued")


@dataclass
class AutoscaleRun(DemoRun):
    """One run: what the gauge sees, and the state that its steps share.

    `delay_s` is added to every time limit, for tests that kill processes.
    """

    delay_s: float = 0.0
    applied_at: float = 0.0
    start_s: float = 0.0
    rose_at: float = 0.0
    grown_to: int = 0
    before_shrink: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.charts = LiveCharts(self.gauge)

    def close(self) -> None:
        self.charts.hide()
        super().close()

    def until(self, what: str, holds: Any, timeout_s: float) -> Any:
        """Wait and draw meanwhile; `timeout_s` is emulated."""
        timeout_wall_s = (timeout_s + self.delay_s) / self.client.stack.time.scale + TIMEOUT_WALL_S / 8
        return wait_until(what, holds, timeout_wall_s, progress=lambda: self.gauge.last.text(), display=self.charts)

    def autoscaler(self) -> dict[str, Any]:
        return self.cluster.read(HPA) or {}

    def counts(self) -> dict[str, Any]:
        """Outcomes of all requests, as of one moment."""
        view = self.statistics()
        load = view.get("load") or {}
        kept = {word: view[word] for word in (*COUNTED_OUTCOMES, "countingSince")}
        return kept | {word: load.get(word, 0) for word in ("refused", "skipped")}

    def objective_holds(self) -> bool:
        """Whether the objective held over a whole minute in which all requested nodes served."""
        statistics = self.statistics()
        roles = self.client.call("infer", "GET", f"/v1/deployments/{self.name}")["roles"]
        whole = statistics["state"] == "Serving" and statistics["measuredS"] >= statistics["windowS"]
        ttft, tpot = statistics["ttft"], statistics["tpot"]
        met = ttft and tpot and ttft["p90"] <= TTFT_S_MAX and tpot["p90"] <= TPOT_S_MAX
        return bool(whole and met) and len(roles) == self.gauge.last.desired


# --- the steps


def apply(run: AutoscaleRun) -> None:
    run.applied_at = run.gauge.now()
    shared_steps.apply(run)


def become_active(run: AutoscaleRun) -> None:
    shared_steps.become_active(run)
    run.start_s = run.gauge.now() - run.applied_at
    echo(f"   {run.start_s:.0f} emulated seconds after the request: the time a node takes to start here")


def serve_calmly(run: AutoscaleRun) -> None:
    shared_steps.serve(run)
    run.gauge.start()
    run.charts.show()
    run.put_load(CALM_PER_S)
    run.until("the objective holds", run.objective_holds, 300.0)
    run.until("the autoscaler reads its metrics", partial(_is_true, run, "ScalingActive"), 120.0)
    nodes, least = run.gauge.last.desired, value_at(run.autoscaler(), "spec.minReplicas")
    check(nodes == least, f"{nodes} nodes under calm load, but the autoscaler's minimum is {least}")


def _is_true(run: AutoscaleRun, condition: str) -> bool:
    return shared_steps.conditions(run.autoscaler()).get(condition) == "True"


def grow(run: AutoscaleRun) -> None:
    before = run.gauge.last.desired
    run.rose_at = run.put_load(RUSH_PER_S)
    run.until("the autoscaler decides", lambda: run.gauge.last.desired > before, 2 * DECIDES_WITHIN_S)
    decided_s, first = next((at - run.rose_at, size) for at, size in run.gauge.sizes() if size > before)
    check(decided_s <= DECIDES_WITHIN_S + run.delay_s, f"it took {decided_s:.0f} s to request more nodes")
    run.until("nodes start", lambda: run.gauge.last.ready >= first, 3 * run.start_s)
    grown_s = next(s.at for s in run.gauge.samples() if s.at > run.rose_at and s.ready >= first) - run.rose_at
    limit_s = DECIDES_WITHIN_S + run.start_s + run.delay_s
    check(
        grown_s <= limit_s,
        f"{first} nodes were active {grown_s:.0f} s after the rise, later than the limit of {limit_s:.0f} s",
    )
    run.charts.update("")
    echo(f"   requested after {decided_s:.0f} s, active after {grown_s:.0f} s (limit {limit_s:.0f} s)")


def meet_the_objective(run: AutoscaleRun) -> None:
    run.until("the objective holds again", run.objective_holds, 900.0)
    took_s = run.gauge.now() - run.rose_at
    worst = max(sample.ttft_s or 0.0 for sample in run.gauge.samples() if sample.at > run.rose_at)
    check(worst > TTFT_S_MAX, f"TTFT was never above {worst:.2f} s: the rise in load had no effect")
    run.grown_to = run.gauge.last.ready
    echo(f"   TTFT p90 peaked at {worst:.1f} s; after {took_s:.0f} s the objective holds on {run.grown_to} nodes")


def shrink(run: AutoscaleRun) -> None:
    window_s = float(value_at(run.autoscaler(), "spec.behavior.scaleDown.stabilizationWindowSeconds"))
    least = value_at(run.autoscaler(), "spec.minReplicas")
    run.before_shrink = run.counts()
    fell_at = run.put_load(CALM_PER_S)
    late_s = RATES_WINDOW_S + 3 * SEEN_LATE_S
    shrinks = lambda: 0 < run.gauge.last.desired < run.grown_to  # noqa: E731
    run.until("the autoscaler waits its window", shrinks, window_s + 2 * late_s)
    waited_s = next(at for at, size in run.gauge.sizes() if at > fell_at and size < run.grown_to) - fell_at
    check(
        waited_s >= window_s - SEEN_LATE_S,
        f"it shrank {waited_s:.0f} s after the fall, within its window of {window_s:g} s",
    )
    limit_s = window_s + late_s + run.delay_s
    check(waited_s <= limit_s, f"it shrank {waited_s:.0f} s after the fall, later than the limit of {limit_s:g} s")

    def shrunk() -> bool:
        return run.gauge.last.allocated == least and run.active(least)

    run.until(f"back to {least} nodes, drained first", shrunk, 900.0)
    run.until("the objective holds on them", run.objective_holds, 300.0)
    run.charts.update("")


def count(run: AutoscaleRun) -> None:
    """Check that no request was lost or truncated: while it shrank, and in all once running requests have finished."""
    run.charts.hide()
    for line in render_charts(run.gauge.samples(), run.gauge.marks()):
        echo("   " + line)
    ran = run.gauge.drained_requests
    check(ran > 0, "no request was seen on the nodes that drained; is the drain worth anything?")
    before, now = run.before_shrink, run.counts()
    if run.gauge.restarts:
        before = dict.fromkeys(before, 0)
    for word in ("cancelled", "lost", "requeued"):
        check(now[word] == before[word], f"{now[word] - before[word]} requests {word} while it shrank")
    _check_sum(now)
    run.stop_load()
    finished = run.until("what runs finishes", lambda: _finished(run), 300.0)
    _check_sum(finished)
    check(finished["lost"] == finished["cancelled"] == 0, f"requests were cut: {finished}")
    sizes = [size for _, size in run.gauge.sizes()]
    turns = changes_of_direction(sizes)
    check(turns == 1, f"sizes {sizes} changed direction {turns} times")
    echo(
        f"   sizes {' > '.join(map(str, sizes))}: one change of direction; {ran} requests were running on nodes when "
        "these began to drain"
    )
    echo(
        f"   {finished['submitted']} requests submitted, {finished['finished']} finished; lost, truncated or "
        "requeued: 0"
    )


def cost(run: AutoscaleRun) -> None:
    least = value_at(run.autoscaler(), "spec.minReplicas")
    required_nodes = lambda load_per_s: run.grown_to if load_per_s > CALM_PER_S else least  # noqa: E731
    spent = node_hours(run.gauge.samples(), required_nodes, run.start_s)
    check(spent.spent < spent.fixed, f"following the load saved no node-hours: {spent.text()}")
    echo("   " + spent.text())


def _check_sum(counts: dict[str, Any]) -> None:
    known = counts["finished"] + counts["inFlight"]
    check(counts["submitted"] == known > 0, f"{counts['submitted']} submitted, {known} finished or in flight")
    check(counts["refused"] == counts["skipped"] == 0, f"load was refused or skipped: {counts}")


def _finished(run: AutoscaleRun) -> dict[str, Any] | None:
    counts = run.counts()
    return counts if counts["inFlight"] == 0 else None


STEPS: tuple[Step, ...] = (
    Step("apply", "Request an instance with DeepSeek-R1 on it, and an autoscaler", apply),
    Step("active", "Its nodes start", become_active),
    Step("calm", f"It serves {CALM_PER_S:g} requests per second within its objective", serve_calmly),
    Step("grow", "The load triples, and the autoscaler requests nodes", grow),
    Step("objective", "With more nodes the objective holds again", meet_the_objective),
    Step("shrink", "The load falls, and nodes drain before they leave", shrink),
    Step("count", "Account for every request", count),
    Step("cost", "Compare its node-hours with a fixed pool's and those of a plan that knew the load", cost),
    Step("delete", "Delete everything", shared_steps.delete),
    Step("nothing-left", "Prove that nothing is left", shared_steps.check_nothing_left),
)

AUTOSCALE = Demo(
    "autoscale",
    "autoscaling: load triples and falls, nodes follow, no request is lost",
    "autoscaling.yaml",
    STEPS,
    lambda client, cluster, manifest: AutoscaleRun(client, cluster, manifest, NAME),
    TIME_SCALE,
)
