"""--keep and `matrixctl report`: what an experiment found is on the stack, as the console reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from matrixcommon.model.clock import ScaledClock
from services.chassis.database import DatabaseEngine
from services.infer.main import InferSettings, build
from services.matrixctl.commands.experiments.kept_reports import POINTS_MAX, thin_points
from tests.infer_workload.conftest import FakeFabricViews
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line, run_matrixctl

ROOT = Path(__file__).parents[3]


@pytest.fixture
def infer(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    database = DatabaseEngine(f"sqlite:///{fresh}")
    app = build(InferSettings(seed=1, agents_url=""), ScaledClock(60.0, time.time()), database, FakeFabricViews())
    with TestClient(app) as client:
        connect_matrixctl(monkeypatch, {"infer": client})
        yield client


def test_every_kind_of_experiment_can_be_kept(
    infer: TestClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = "--generate 40 --nodes 6"
    policy = ROOT / "examples" / "scaling-policy.yaml"
    files = []
    for name, more in (("before", ""), ("after", "--no-mtp")):
        code, out, err = run_matrixctl(capsys, *f"experiment run {small} {more} --keep {name} -o json".split())
        assert (code, f"kept as {name}" in err) == (0, True), err
        assert infer.get(f"/v1/reports/{name}/content").json()["document"] == json.loads(out), "nothing else is printed"
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(out)
    for line in (
        f"experiment what-if no-mtp {small} --keep what-if",
        f"experiment compare {files[0]} {files[1]} --keep compare",
        "experiment sweep --generate 40 --over nodes=4,6 --workers 1 --keep sweep",
        "experiment capacity --generate 40 --least 4 --most 6 --keep capacity --attained 0.01",
        f"experiment autoscale -f {policy} --generate 200 --keep autoscale",
    ):
        code, text = run_line(capsys, line)
        assert code == 0, text
    code, text = run_line(capsys, "get reports")
    assert [line.split()[0] for line in text.splitlines()[1:]] == [
        "before", "after", "what-if", "compare", "sweep", "capacity", "autoscale",
    ]  # fmt: skip
    for name in ("before", "what-if", "compare", "sweep", "capacity", "autoscale"):
        content = infer.get(f"/v1/reports/{name}/content").json()
        assert content["experiment"] == {"before": "run"}.get(name, name)
        assert content["command"].startswith(f"matrixctl experiment {content['experiment']} ")
        assert content["html"].startswith("<!doctype html>")
        assert content["plots"], f"the console draws a report of {content['experiment']}"
        assert all(line for plot in content["plots"] for line in plot["lines"].values())
    assert {plot["title"] for plot in infer.get("/v1/reports/before/content").json()["plots"]} >= {"In flight"}


def test_kept_reports_are_shown_compared_and_deleted(
    infer: TestClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, more in (("before", ""), ("after", "--no-mtp")):
        assert run_line(capsys, f"experiment run --generate 40 --nodes 6 {more} --keep {name}")[0] == 0
    kept, pages = tmp_path / "before.json", [tmp_path / "first.html", tmp_path / "second.html"]
    code, out, _ = run_matrixctl(capsys, "report", "show", "before", "-o", "json", "--html", str(pages[0]))
    kept.write_text(out)
    assert run_line(capsys, f"report keep copied {kept} --html {pages[0]} --title again")[0] == 0
    assert run_line(capsys, f"report show copied --html {pages[1]}")[0] == 0
    assert pages[1].read_text() == pages[0].read_text()
    before, copied = (infer.get(f"/v1/reports/{name}/content").json() for name in ("before", "copied"))
    assert (copied["document"], copied["command"]) == (before["document"], before["command"])
    code, text = run_line(capsys, "report compare before after")
    assert (code, "tpot.p50" in text, "worse" in text) == (0, True, True), text
    code, text = run_line(capsys, "report compare before copied")
    assert (code, "nothing differs" in text) == (0, True), text
    assert run_line(capsys, "report delete copied") == (0, "copied is gone\n")
    code, text = run_line(capsys, "report show copied")
    assert (code, "there is no report named 'copied'" in text) == (1, True), text
    code, text = run_line(capsys, f"report keep bad {pages[0]}")
    assert (code, "is not JSON" in text) == (2, True), text


@pytest.mark.parametrize(
    "document", ['{"rows": [{"ms": 1}]}', '{"made_by": {"command": "matrixctl experiment validate"}}']
)
def test_what_is_no_report_of_an_experiment_that_is_kept_is_refused(
    infer: TestClient, capsys: pytest.CaptureFixture[str], tmp_path: Path, document: str
) -> None:
    file = tmp_path / "operators.json"
    file.write_text(document)
    code, text = run_line(capsys, f"report keep operators {file}")
    assert (code, "is not a report of `matrixctl experiment` run, what-if, " in text) == (2, True), text
    assert infer.get("/v1/reports").json()["items"] == []


def test_a_name_that_may_not_be_is_refused_before_anything_runs(
    infer: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run_line(capsys, "experiment run --generate 40 --keep Bad_Name")
    assert (code, "is not a valid name" in text, "TTFT" in text) == (2, True, False), text


def test_what_is_kept_of_a_plot_is_bounded_and_keeps_its_ends() -> None:
    points = [(float(x), float(x)) for x in range(10_000)]
    found = thin_points(points)
    assert (len(found), found[0], found[-1]) == (POINTS_MAX, [0.0, 0.0], [9999.0, 9999.0])
    assert thin_points([(0.0, 1.0), (1.0, float("nan"))]) == [[0.0, 1.0]]
