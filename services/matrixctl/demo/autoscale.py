"""The autoscaling demo: load triples and falls again, an autoscaler grows and shrinks the instance, no request is lost.

The autoscaler is a plain `autoscaling/v2` one from the manifest; CloudMatrix-Infer's own generator offers the load,
open loop. Every claim is checked against what the gauge saw, and no check passes vacuously: the objective has to be
missed under load before it holds again, and requests have to run on nodes that drain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from services.matrixctl.demo import telling
from services.matrixctl.demo.gauge import changes_of_direction
from services.matrixctl.demo.node_hours import node_hours
from services.matrixctl.demo.picture import Picture, picture
from services.matrixctl.demo.story import Step, check, until
from services.matrixctl.demo.telling import PATIENCE_WALL_S, Story, Telling
from services.matrixctl.output.columns import dig
from services.matrixctl.output.screen import say

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
COUNTED = ("submitted", "finished", "inFlight", "cancelled", "lost", "requeued")


@dataclass
class Autoscaling(Telling):
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
        self.picture = Picture(self.gauge)

    def end(self) -> None:
        self.picture.hide()
        super().end()

    def until(self, what: str, holds: Any, patience_s: float) -> Any:
        """Wait and draw meanwhile; `patience_s` is emulated."""
        patience_wall_s = (patience_s + self.delay_s) / self.reach.stack.time.scale + PATIENCE_WALL_S / 8
        return until(what, holds, patience_wall_s, progress=lambda: self.gauge.last.text(), shown_by=self.picture)

    def autoscaler(self) -> dict[str, Any]:
        return self.cluster.read(HPA) or {}

    def counts(self) -> dict[str, Any]:
        """Outcomes of all requests, as of one moment."""
        view = self.statistics()
        load = view.get("load") or {}
        kept = {word: view[word] for word in (*COUNTED, "countingSince")}
        return kept | {word: load.get(word, 0) for word in ("refused", "skipped")}

    def objective_holds(self) -> bool:
        """Whether the objective held over a whole minute in which all requested nodes served."""
        statistics = self.statistics()
        roles = self.reach.call("infer", "GET", f"/v1/deployments/{self.name}")["roles"]
        whole = statistics["state"] == "Serving" and statistics["measuredS"] >= statistics["windowS"]
        ttft, tpot = statistics["ttft"], statistics["tpot"]
        met = ttft and tpot and ttft["p90"] <= TTFT_S_MAX and tpot["p90"] <= TPOT_S_MAX
        return bool(whole and met) and len(roles) == self.gauge.last.desired


# --- the steps


def apply(story: Autoscaling) -> None:
    story.applied_at = story.gauge.now()
    telling.apply(story)


def become_active(story: Autoscaling) -> None:
    telling.become_active(story)
    story.start_s = story.gauge.now() - story.applied_at
    say(f"   {story.start_s:.0f} emulated seconds after the request: the time a node takes to start here")


def serve_calmly(story: Autoscaling) -> None:
    telling.serve(story)
    story.gauge.start()
    story.picture.show()
    story.put_load(CALM_PER_S)
    story.until("the objective holds", story.objective_holds, 300.0)
    story.until("the autoscaler reads its metrics", partial(_says, story, "ScalingActive"), 120.0)
    nodes, least = story.gauge.last.desired, dig(story.autoscaler(), "spec.minReplicas")
    check(nodes == least, f"{nodes} nodes under calm load, but the autoscaler's minimum is {least}")


def _says(story: Autoscaling, condition: str) -> bool:
    return telling.conditions(story.autoscaler()).get(condition) == "True"


def grow(story: Autoscaling) -> None:
    before = story.gauge.last.desired
    story.rose_at = story.put_load(RUSH_PER_S)
    story.until("the autoscaler decides", lambda: story.gauge.last.desired > before, 2 * DECIDES_WITHIN_S)
    decided_s, first = next((at - story.rose_at, size) for at, size in story.gauge.sizes() if size > before)
    check(decided_s <= DECIDES_WITHIN_S + story.delay_s, f"it took {decided_s:.0f} s to request more nodes")
    story.until("nodes start", lambda: story.gauge.last.ready >= first, 3 * story.start_s)
    grown_s = next(s.at for s in story.gauge.samples() if s.at > story.rose_at and s.ready >= first) - story.rose_at
    limit_s = DECIDES_WITHIN_S + story.start_s + story.delay_s
    check(
        grown_s <= limit_s,
        f"{first} nodes were active {grown_s:.0f} s after the rise, later than the limit of {limit_s:.0f} s",
    )
    story.picture.update("")
    say(f"   requested after {decided_s:.0f} s, active after {grown_s:.0f} s (limit {limit_s:.0f} s)")


def meet_the_objective(story: Autoscaling) -> None:
    story.until("the objective holds again", story.objective_holds, 900.0)
    took_s = story.gauge.now() - story.rose_at
    worst = max(sample.ttft_s or 0.0 for sample in story.gauge.samples() if sample.at > story.rose_at)
    check(worst > TTFT_S_MAX, f"TTFT was never above {worst:.2f} s: the rise in load had no effect")
    story.grown_to = story.gauge.last.ready
    say(f"   TTFT p90 peaked at {worst:.1f} s; after {took_s:.0f} s the objective holds on {story.grown_to} nodes")


def shrink(story: Autoscaling) -> None:
    window_s = float(dig(story.autoscaler(), "spec.behavior.scaleDown.stabilizationWindowSeconds"))
    least = dig(story.autoscaler(), "spec.minReplicas")
    story.before_shrink = story.counts()
    fell_at = story.put_load(CALM_PER_S)
    late_s = RATES_WINDOW_S + 3 * SEEN_LATE_S
    shrinks = lambda: 0 < story.gauge.last.desired < story.grown_to  # noqa: E731
    story.until("the autoscaler waits its window", shrinks, window_s + 2 * late_s)
    waited_s = next(at for at, size in story.gauge.sizes() if at > fell_at and size < story.grown_to) - fell_at
    check(
        waited_s >= window_s - SEEN_LATE_S,
        f"it shrank {waited_s:.0f} s after the fall, within its window of {window_s:g} s",
    )
    limit_s = window_s + late_s + story.delay_s
    check(waited_s <= limit_s, f"it shrank {waited_s:.0f} s after the fall, later than the limit of {limit_s:g} s")

    def shrunk() -> bool:
        return story.gauge.last.allocated == least and story.active(least)

    story.until(f"back to {least} nodes, drained first", shrunk, 900.0)
    story.until("the objective holds on them", story.objective_holds, 300.0)
    story.picture.update("")


def count(story: Autoscaling) -> None:
    """Check that no request was lost or truncated: while it shrank, and in all once running requests have finished."""
    story.picture.hide()
    for line in picture(story.gauge.samples(), story.gauge.marks()):
        say("   " + line)
    ran = story.gauge.drained_requests
    check(ran > 0, "no request was seen on the nodes that drained; is the drain worth anything?")
    before, now = story.before_shrink, story.counts()
    if story.gauge.restarts:
        before = dict.fromkeys(before, 0)
    for word in ("cancelled", "lost", "requeued"):
        check(now[word] == before[word], f"{now[word] - before[word]} requests {word} while it shrank")
    _check_sum(now)
    story.stop_load()
    finished = story.until("what runs finishes", lambda: _finished(story), 300.0)
    _check_sum(finished)
    check(finished["lost"] == finished["cancelled"] == 0, f"requests were cut: {finished}")
    sizes = [size for _, size in story.gauge.sizes()]
    turns = changes_of_direction(sizes)
    check(turns == 1, f"sizes {sizes} changed direction {turns} times")
    say(
        f"   sizes {' > '.join(map(str, sizes))}: one change of direction; {ran} requests were running on nodes when "
        "these began to drain"
    )
    say(
        f"   {finished['submitted']} requests submitted, {finished['finished']} finished; lost, truncated or "
        "requeued: 0"
    )


def cost(story: Autoscaling) -> None:
    least = dig(story.autoscaler(), "spec.minReplicas")
    carries = lambda load_per_s: story.grown_to if load_per_s > CALM_PER_S else least  # noqa: E731
    spent = node_hours(story.gauge.samples(), carries, story.start_s)
    check(spent.spent < spent.fixed, f"following the load saved no node-hours: {spent.text()}")
    say("   " + spent.text())


def _check_sum(counts: dict[str, Any]) -> None:
    known = counts["finished"] + counts["inFlight"]
    check(counts["submitted"] == known > 0, f"{counts['submitted']} submitted, {known} finished or in flight")
    check(counts["refused"] == counts["skipped"] == 0, f"load was refused or skipped: {counts}")


def _finished(story: Autoscaling) -> dict[str, Any] | None:
    counts = story.counts()
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
    Step("delete", "Delete everything", telling.delete),
    Step("nothing-left", "Prove that nothing is left", telling.nothing_left),
)

AUTOSCALE = Story(
    "autoscale",
    "autoscaling: load triples and falls, nodes follow, no request is lost",
    "autoscaling.yaml",
    STEPS,
    lambda reach, cluster, manifest: Autoscaling(reach, cluster, manifest, NAME),
    TIME_SCALE,
)
