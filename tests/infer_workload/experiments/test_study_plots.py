"""The page of every kind of experiment has the plots that its reader wants, drawn of what was found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infer_workload.reports.study_plots import (
    capacity_plots,
    change_plots,
    operator_plots,
    policy_plots,
    validation_plots,
)
from tests.services.matrixctl.inprocess import run_matrixctl

SMALL = "--generate 40 --nodes 6"


def found(capsys: pytest.CaptureFixture[str], page: Path, line: str) -> tuple[dict[str, Any], str]:
    """The document that a command printed, and the page that it wrote."""
    code, out, err = run_matrixctl(capsys, *line.split(), "--html", str(page), "-o", "json")
    assert code == 0, err
    return json.loads(out), page.read_text("utf-8")


def drawn(page: str) -> list[str]:
    """The captions of the pictures in a page that needs nothing else."""
    assert "<script" not in page
    captions = re.findall(r"<figcaption>(.*?)</figcaption><svg", page)
    assert len(captions) == page.count("<svg ") > 0
    return captions


def test_predictions_are_drawn_over_what_is_published_with_their_intervals(capsys: Any, tmp_path: Path) -> None:
    document, page = found(capsys, tmp_path / "page.html", "experiment validate")
    plots = validation_plots(document)
    assert drawn(page) == [plot.title for plot in plots]
    sections = [plot.title.partition(": ")[2] for plot in plots]
    figures = sorted(document["figures"], key=lambda each: sections.index(each["section"]))
    points = [at for plot in plots for at in plot.lines["predicted"]]
    assert [part - 1 for _, part in points] == pytest.approx([each["error"] for each in figures])
    inside = [
        low <= 1 <= high
        for plot in plots
        for (_, low), (_, high) in zip(plot.lines["interval, low"], plot.lines["interval, high"], strict=True)
    ]
    assert inside == [each["inside_interval"] for each in figures]
    assert {part for plot in plots for _, part in plot.lines["published"]} == {1.0}


def test_a_capacity_search_is_a_curve_beside_its_objective(capsys: Any, tmp_path: Path) -> None:
    line = "experiment capacity --generate 40 --least 4 --most 6 --attained 0.01"
    document, page = found(capsys, tmp_path / "page.html", line)
    share, ttft, _ = capacity_plots(document)
    assert drawn(page)[0] == share.title
    tried = [each for each in document["tried"] if each["report"]]
    assert share.lines["found"] == [(each["nodes"], each["report"]["goodput_share"]) for each in tried]
    assert {at for _, at in share.lines["objective"]} == {0.01}
    assert {at for _, at in ttft.lines["objective"]} == {document["objectives"]["ttft_s"]}
    assert capacity_plots({**document, "tried": [{"nodes": 1, "report": None}]}) == []


def test_what_is_changed_is_drawn_beside_what_was(capsys: Any, tmp_path: Path) -> None:
    _, page = found(capsys, tmp_path / "page.html", f"experiment what-if no-mtp {SMALL}")
    assert drawn(page)[:2] == ["Time to first token", "Time per token"]
    assert "TPOT, before" in page
    assert "TPOT, after" in page
    files = []
    for name, more in (("before", ""), ("after", "--no-mtp")):
        code, out, err = run_matrixctl(capsys, *f"experiment run {small(more)} -o json".split())
        assert code == 0, err
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(out)
    document, page = found(capsys, tmp_path / "other.html", f"experiment compare {files[0]} {files[1]}")
    plots = {plot.title: plot for plot in change_plots(document["changes"])}
    assert drawn(page) == list(plots)
    after = json.loads(files[1].read_text())
    assert plots["Time per token"].lines["after"] == [
        (at, pytest.approx(after["tpot"][name] * 1e3)) for name, at in (("p50", 50), ("p90", 90), ("p99", 99))
    ]


def small(more: str) -> str:
    return f"{SMALL} {more}"


def test_the_time_of_each_stream_adds_up(capsys: Any, tmp_path: Path) -> None:
    for phase in ("decode", "prefill"):
        document, page = found(capsys, tmp_path / "page.html", f"experiment operators --phase {phase}")
        (plot,) = operator_plots(document)
        assert drawn(page) == [plot.title]
        assert sum(line[-1][1] for line in plot.lines.values()) == pytest.approx(document["summed_ms"])


def test_a_policy_is_drawn_as_the_nodes_it_had_until_the_end() -> None:
    point = {"varied": {"maxReplicas": 12}, "seconds": 100.0, "sizes": [[0.0, 2, "begin"], [30.0, 5, "load"]]}
    (plot,) = policy_plots({"points": [point], "fixed": {"nodes": 4, "seconds": 100.0}})
    assert plot.lines["maxReplicas 12"] == [(0.0, 2.0), (30.0, 2.0), (30.0, 5.0), (100.0, 5.0)]
    assert plot.lines["fixed"] == [(0.0, 4.0), (100.0, 4.0)]
