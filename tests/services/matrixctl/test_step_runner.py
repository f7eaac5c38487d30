"""Stories stop where a promise is broken; charts put figures and marks where they belong."""

from types import SimpleNamespace
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, Unavailable
from services.matrixctl.demo.chart import chart
from services.matrixctl.demo.cut_cables import measure_pace
from services.matrixctl.demo.step_runner import Step, StepFailed, check, run_steps, wait_until


def test_a_story_that_holds_is_timed_to_its_end() -> None:
    reported: list[str] = []
    steps = [Step("one", "First", lambda run: run.append("one")), Step("two", "Then", lambda run: None)]
    outcome = run_steps(steps, reported)
    assert outcome.ok
    assert list(outcome.took_wall_s) == ["one", "two"]
    assert reported == ["one"]


@pytest.mark.parametrize("wrong", [StepFailed("seen this"), Conflict("seen this", field="x")])
def test_a_story_stops_at_the_step_that_fails(wrong: Exception) -> None:
    def fails(run: object) -> None:
        raise wrong

    outcome = run_steps([Step("one", "First", fails), Step("two", "Never", lambda run: 1 / 0)], None)
    assert outcome.failed == "one"
    assert "seen this" in outcome.seen
    assert "two" not in outcome.took_wall_s


def test_until_asks_again_while_a_service_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.matrixctl.demo.step_runner.POLL_PERIOD_WALL_S", 0.0)
    answers = iter([Unavailable("starting"), None, False, 0])

    def question() -> int | None:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert wait_until("waiting", question, 5.0) == 0


def test_until_says_what_it_last_saw() -> None:
    with pytest.raises(StepFailed, match="3 of 4 there"):
        wait_until("all there", lambda: None, 0.0, progress=lambda: "3 of 4 there")
    with pytest.raises(StepFailed, match="odd"):
        check(False, "odd")


def test_a_chart_shows_the_dip_and_the_mark_below_it() -> None:
    samples = [(float(at), 0.0 if 4 <= at < 6 else 80.0) for at in range(10)]
    lines = chart(samples, [(4.0, "x lost")], width=9, height=2, unit="tokens/s")
    assert lines[0].endswith("████  ███")
    assert lines[1].endswith("████  ███")
    assert lines[2].index("x") - 11 == 4


def test_an_empty_chart_says_so() -> None:
    assert chart([], []) == ["(nothing measured)"]


def test_a_chart_of_what_was_not_known_at_first_begins_with_the_others() -> None:
    """On the same time as a chart above it; what is not known for a while stays where it was."""
    lines = chart([(0.0, None), (1.0, None), (2.0, 4.0), (3.0, None)], [], width=4, height=1)
    assert lines[0].removeprefix(" " * 9 + "4 ") == "  ██"
    assert chart([(0.0, None), (1.0, None)], [], width=2, height=1)[0].endswith("1   ")


class ServingWithBacklog:
    """A deployment whose measured step leaves what the model predicts for a while after it had settled."""

    name = "demo"
    client = SimpleNamespace(call=lambda *_: {"generation": 1, "fabricGeneration": 1, "roles": {}})

    def __init__(self) -> None:
        self.steps = iter([30.0, *[40.0] * 3, *[50.0] * 8])

    def slices(self) -> list[dict[str, str]]:
        return [{"instance": "demo"}]

    def statistics(self) -> dict[str, float]:
        return {"decodeStepMs": next(self.steps, 31.0), "decodeBatchPerNpu": 8.0, "decodePaused": 0.0}


def test_a_pace_is_not_taken_while_a_backlog_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: next(now) / 4)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("services.matrixctl.demo.cut_cables.predicted_ms", lambda *_: 30.0)
    demo: Any = ServingWithBacklog()
    assert measure_pace(demo).step_ms == 31.0
