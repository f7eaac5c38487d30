"""The demo's larger losses: what was served is counted truly, and a request that was lost ends the story."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from services.matrixctl.demo.losses import counts, print_served
from services.matrixctl.demo.step_runner import StepFailed

BEFORE = {"finished": 100, "cancelled": 1, "lost": 2, "requeued": 0, "countingSince": 0.0}


def demo_with(statistics: dict[str, float]) -> SimpleNamespace:
    clock = iter([0.0, 90.0])
    answers = iter([BEFORE, statistics])
    return SimpleNamespace(
        name="served",
        statistics=lambda: next(answers),
        gauge=SimpleNamespace(now=lambda: next(clock)),
    )


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (
            {"finished": 160, "requeued": 4},
            "in 1m30s 60 requests finished, none was lost; 4 were restarted elsewhere",
        ),
        ({"finished": 7, "cancelled": 0, "lost": 0, "countingSince": 5.0}, "7 requests finished"),
    ],
)
def test_what_was_served_is_what_came_since(
    now: dict[str, float], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = demo_with(BEFORE | now)
    print_served(demo, counts(demo))
    assert says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("now", [{"lost": 3}, {"cancelled": 2}, {"finished": 100}])
def test_a_request_that_is_lost_or_cut_ends_the_story(now: dict[str, float]) -> None:
    demo = demo_with(BEFORE | {"finished": 160} | now)
    with pytest.raises(StepFailed):
        print_served(demo, counts(demo))
