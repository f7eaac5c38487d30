"""The pure parts of the autoscaling story: what counts as a change of direction, and what the picture shows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from matrixcompute.autoscaling.policy import draining_text
from services.matrixctl.demo.autoscale import STEPS, AutoscaleRun, count, grow, meet_the_objective, shrink
from services.matrixctl.demo.gauge import DRAIN_MESSAGE, Mark, Sample, changes_of_direction
from services.matrixctl.demo.in_container import SKIPPED_STEPS
from services.matrixctl.demo.live_charts import LiveCharts, clock_text, render_charts
from services.matrixctl.demo.node_hours import node_hours
from services.matrixctl.demo.run import DEMOS
from services.matrixctl.demo.step_runner import StepFailed, wait_until


@pytest.mark.parametrize(
    ("sizes", "changes"),
    [([6], 0), ([6, 12], 0), ([6, 9, 12], 0), ([6, 12, 6], 1), ([6, 12, 9, 6], 1), ([6, 12, 9, 12, 6], 3), ([], 0)],
)
def test_growing_and_shrinking_once_is_one_change_of_direction(sizes: list[int], changes: int) -> None:
    assert changes_of_direction(sizes) == changes


def test_the_picture_shows_every_figure_and_says_what_its_marks_mean() -> None:
    samples = [Sample(1000.0 + at, load_per_s=8.0 + at, desired=6, ready=6, allocated=6) for at in range(0, 120, 5)]
    lines = render_charts(samples, [Mark(1060.0, "s", "autoscaler: New size: 12")], width=40)
    for figure in ("load", "nodes", "first token", "output token"):
        assert any(figure in line for line in lines)
    assert lines[-1].endswith("s    1:00  autoscaler: New size: 12")
    assert render_charts([], []) == []
    assert clock_text(-3.0).strip() == "0:00"


def test_on_a_terminal_the_picture_grows_and_elsewhere_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.matrixctl.demo.step_runner.POLL_PERIOD_WALL_S", 0.0)
    for terminal in (True, False):
        written = io.StringIO()
        console = Console(force_terminal=terminal, width=120, file=written)
        monkeypatch.setattr("services.matrixctl.demo.live_charts.console", lambda shown=console: shown)
        monkeypatch.setattr("services.matrixctl.output.screen.console", lambda shown=console: shown)
        gauge = FakeGauge([Sample(1000.0, load_per_s=9.0, desired=4, ready=4, allocated=4)])
        drawn = LiveCharts(gauge)  # type: ignore[arg-type]
        drawn.show()
        try:
            wait_until("the objective holds", lambda: True, 1.0, display=drawn)
            wait_until("nodes start", iter([None, True]).__next__, 5.0, progress=lambda: "9 of 10", display=drawn)
        finally:
            drawn.hide()
        assert ("nodes active" in written.getvalue()) == terminal
        assert ("nodes 4/4" in written.getvalue()) or terminal


def test_node_hours_beside_a_fixed_pool_and_a_plan_that_knew_the_load() -> None:
    """An hour: 4 nodes carry the load but for the second half of it, which 10 do; they came late and left late."""
    samples = [
        Sample(at, load_per_s=27.0 if 900 <= at < 2700 else 9.0, allocated=10 if 1200 <= at < 3000 else 4)
        for at in map(float, range(0, 3601, 5))
    ]
    found = node_hours(samples, lambda load: 10 if load > 9.0 else 4, 60.0)
    assert found.spent == pytest.approx(7.0)
    assert (found.fixed_nodes, found.fixed) == (10, pytest.approx(10.0))
    assert found.clairvoyant == pytest.approx(7.0 + 6 * 60 / 3600)


def test_containers_leave_out_only_steps_there_are() -> None:
    for name, left_out in SKIPPED_STEPS.items():
        assert set(left_out) < {step.name for step in DEMOS[name].steps}
    assert {"grow", "objective", "shrink", "count", "nothing-left"} < {step.name for step in STEPS}


# --- the story fails where a promise is broken


COUNTS = {"submitted": 100, "finished": 100, "inFlight": 0, "cancelled": 0, "lost": 0, "requeued": 0,
          "refused": 0, "skipped": 0, "countingSince": 0.0}  # fmt: skip


class FakeGauge:
    """What the gauge would have seen, as the test says."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples
        self.restarts, self.drained_requests = 0, 7

    def samples(self) -> list[Sample]:
        return self._samples

    def marks(self) -> list[Mark]:
        return []

    @property
    def last(self) -> Sample:
        return self._samples[-1]

    def sizes(self) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        for sample in self._samples:
            if not found or found[-1][1] != sample.desired:
                found.append((sample.at, sample.desired))
        return found

    def now(self) -> float:
        return self._samples[-1].at


class NullCharts:
    def update(self, status: str) -> None:
        pass

    def hide(self) -> None:
        pass


class ScriptedRun(AutoscaleRun):
    """A run whose world is written down: every wait is over at once."""

    def __post_init__(self) -> None:
        self.gauge: Any = None
        self.charts: Any = NullCharts()
        self.counted: list[dict[str, Any]] = [COUNTS]

    def until(self, what: str, holds: Any, timeout_s: float) -> Any:
        return holds()

    def put_load(self, requests_per_second: float) -> float:
        return 0.0

    def autoscaler(self) -> dict[str, Any]:
        return {"spec": {"minReplicas": 6, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}}}

    def counts(self) -> dict[str, Any]:
        return self.counted[-1]

    def stop_load(self) -> None:
        pass

    def objective_holds(self) -> bool:
        return True

    def active(self, nodes: int) -> bool:
        return True


def scripted(*samples: tuple[float, int, int, float]) -> ScriptedRun:
    """Of (at, desired, ready, TTFT) each."""
    story = ScriptedRun(None, None, None, "autoscaled", start_s=120.0)  # type: ignore[arg-type]
    seen = [
        Sample(at, desired=desired, ready=ready, allocated=ready, ttft_s=ttft) for at, desired, ready, ttft in samples
    ]
    story.gauge = FakeGauge(seen)
    story.before_shrink = COUNTS
    return story


def growing(story: ScriptedRun) -> None:
    """`grow` reads the size before from the last sample: the calm one comes first."""
    seen = story.gauge._samples
    story.gauge._samples = seen[:1]
    story.put_load = lambda rate: setattr(story.gauge, "_samples", seen) or 0.0  # type: ignore[method-assign,func-returns-value]
    grow(story)


CALM = (-10.0, 6, 6, 0.2)


def test_nodes_that_grow_in_time_are_believed() -> None:
    growing(scripted(CALM, (30.0, 12, 6, 9.0), (170.0, 12, 12, 20.0)))


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([(61.0, 12, 6, 9.0), (150.0, 12, 12, 9.0)], "to request more nodes"),
        ([(30.0, 12, 6, 9.0), (181.0, 12, 12, 9.0)], "later than the limit of 180 s"),
    ],
)
def test_nodes_that_grow_late_fail_the_story(samples: list[tuple[float, int, int, float]], why: str) -> None:
    with pytest.raises(StepFailed, match=why):
        growing(scripted(CALM, *samples))


def test_an_objective_that_was_never_missed_proves_nothing() -> None:
    meet_the_objective(scripted((30.0, 12, 6, 9.0), (400.0, 12, 12, 0.2)))
    with pytest.raises(StepFailed, match="the rise in load had no effect"):
        meet_the_objective(scripted((30.0, 12, 6, 0.9), (400.0, 12, 12, 0.2)))


@pytest.mark.parametrize(
    ("at", "why"), [(320.0, ""), (200.0, "its window"), (500.0, "later than")], ids=["in time", "early", "late"]
)
def test_nodes_shrink_after_the_window(at: float, why: str) -> None:
    story = scripted((-50.0, 12, 12, 0.2), (at, 6, 6, 0.2))
    story.grown_to = 12
    if not why:
        shrink(story)
        return
    with pytest.raises(StepFailed, match=why):
        shrink(story)


STEADY = ((0.0, 6, 6, 0.2), (30.0, 12, 12, 0.2), (400.0, 6, 6, 0.2))


def test_requests_that_all_finished_are_counted() -> None:
    count(scripted(*STEADY))


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({"requeued": 3}, "3 requests requeued"),
        ({"lost": 1, "submitted": 101}, "1 requests lost"),
        ({"cancelled": 1}, "1 requests cancelled"),
        ({"submitted": 101}, "101 submitted, 100 finished"),
        ({"skipped": 1}, "refused or skipped"),
        ({"submitted": 0, "finished": 0}, "0 submitted"),
    ],
)
def test_a_request_that_is_missing_fails_the_story(counts: dict[str, int], why: str) -> None:
    story = scripted(*STEADY)
    story.counted.append(COUNTS | counts)
    with pytest.raises(StepFailed, match=why):
        count(story)


def test_a_second_change_of_direction_or_an_empty_drain_fails_the_story() -> None:
    with pytest.raises(StepFailed, match="changed direction 3 times"):
        count(scripted((0.0, 6, 6, 0.2), (1.0, 12, 12, 0.2), (2.0, 9, 9, 0.2), (3.0, 12, 12, 0.2), (4.0, 6, 6, 0.2)))
    with pytest.raises(StepFailed, match="changed direction 0 times"):
        count(scripted((0.0, 6, 6, 0.2)))
    story = scripted(*STEADY)
    story.gauge.drained_requests = 0
    with pytest.raises(StepFailed, match="is the drain worth anything"):
        count(story)


@pytest.mark.parametrize("requests", [1, 12])
def test_the_demo_reads_how_many_requests_drain_in_the_operators_words(requests: int) -> None:
    found = DRAIN_MESSAGE.match(draining_text(requests, "sn0-c00-n0"))
    assert found is not None
    assert int(found[1]) == requests
