"""What a recovery took, in parts, and what failures cost over an instance's life: as tables."""

from __future__ import annotations

import pytest

from matrixcompute.recovery.times import DownTime, describe_parts, final_parts, parts_so_far

TRACE = {
    step: {"startedAt": at - 1.0, "finishedAt": at}
    for step, at in [("fence_nodes", 162.0), ("replace_members", 163.0), ("bind_nodes", 163.5), ("await_nodes", 171.0)]
}


@pytest.mark.parametrize(
    ("sentence", "trace", "expected"),
    [
        ("found, nothing done yet", {}, {"detect": 60.0}),
        ("at a step that is not done", {"fence_nodes": {"startedAt": 161.0}}, {"detect": 60.0}),
        ("fenced", {"fence_nodes": TRACE["fence_nodes"]}, {"detect": 60.0, "fence": 2.0}),
        ("booted", TRACE, {"detect": 60.0, "fence": 2.0, "replace": 1.0, "boot": 8.0}),
    ],
)
def test_parts_so_far_are_the_ended_ones(sentence, trace, expected):
    assert parts_so_far(100.0, 160.0, trace) == expected, sentence


@pytest.mark.parametrize("missing", [(), ("fence_nodes",), ("fence_nodes", "await_nodes"), tuple(TRACE)])
def test_parts_add_up_when_steps_are_skipped(missing):
    trace = {step: entry for step, entry in TRACE.items() if step not in missing}
    parts = final_parts(100.0, 160.0, trace, 175.0)
    assert sum(parts.values()) == pytest.approx(75.0)
    assert parts["detect"] == 60.0
    assert parts["serve"] > 0


def test_clock_skew_gives_no_negative_part():
    parts = final_parts(100.0, 162.5, TRACE, 175.0)
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(75.0)


def test_parts_are_described_in_words():
    assert describe_parts({"detect": 60.0, "fence": 0.21}) == "1m00s: detect 1m00s, fence 210ms"


def test_downtime_is_counted_once_and_off_time_is_excluded():
    down = DownTime().mark_down(5.0)
    assert down == DownTime(), "what never served cannot fail"
    down = down.mark_up(10.0, on=True)
    assert (down.since, down.ettr(110.0), down.mttr_s) == (10.0, 1.0, None)
    down = down.mark_down(50.0).mark_down(55.0)
    assert down.down_until(60.0) == 10.0
    down = down.mark_up(70.0, on=True, parts={"detect": 5.0, "boot": 15.0})
    assert (down.down_s, down.recoveries, down.mttr_s) == (20.0, 1, 20.0)
    assert down.ettr(110.0) == pytest.approx(0.8)
    down = down.mark_up(110.0, on=False).mark_down(120.0)
    assert down.ettr(1110.0) == pytest.approx(0.8), "off by request"
    down = down.mark_up(1110.0, on=True)
    assert down.ettr(1210.0) == pytest.approx(0.9)
    assert DownTime.model_validate(down.wire()) == down
