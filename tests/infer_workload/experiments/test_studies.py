"""Sweeps, capacity, what-ifs, comparisons and reports: what a trial found is found again, however it is run."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_workload.experiments.capacity import min_nodes
from infer_workload.experiments.comparison import compare
from infer_workload.experiments.experiment import run
from infer_workload.experiments.sweep import (
    Axis,
    expand_points,
    local_runner,
    longest_first,
    parse_axis,
    run_trial,
    sweep,
    to_csv,
)
from infer_workload.experiments.trial import PARAMETERS, Trial, trial_of
from infer_workload.experiments.what_ifs import WHAT_IFS, what_if
from infer_workload.reports.served import ServedRequest
from infer_workload.reports.timeline import COLUMNS, requests_csv, timeline
from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.experiments.parameters import TrialOptions
from tests.services.matrixctl.inprocess import run_matrixctl

ROOT = Path(__file__).parents[3]
SMALL = Trial(generate=80, nodes=8, rate=4.0, seed=3)
A2 = "atlas-800i-a2"


# ---- trials


def test_a_trial_is_written_as_the_options_that_make_it_again(capsys):
    trial = Trial(generate=40, nodes=6, cache=False, ub_share=0.5, lose_node_at=5.0)
    words = trial.options()
    assert {*words} == {"--generate=40", "--nodes=6", "--no-cache", "--ub-share=0.5", "--lose-node-at=5.0"}
    code, out, _ = run_matrixctl(capsys, "experiment", "run", *words, "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["made_by"]["command"] == "matrixctl experiment run " + " ".join(words)
    assert found["ttft"]["p50"] == run(trial).report.ttft.p50


@pytest.mark.parametrize(
    ("parameters", "field", "says"),
    [
        ({}, "--trace", "trace or a number of requests"),
        ({"generate": "5", "trace": "x"}, "--trace", "either a trace or a number of requests"),
        ({"generate": "0"}, "--generate", "greater than or equal to 1"),
        ({"generate": "5", "nodes": "49"}, "--nodes", "less than or equal to 48"),
        ({"generate": "5", "prefill": "5"}, "--prefill", "multiple of 8"),
        ({"generate": "5", "ub_share": "0"}, "--ub-share", "greater than 0"),
        ({"generate": "5", "cache_plane": "rdma"}, "--cache-plane", "'ub' or 'vpc'"),
        ({"generate": "5", "colour": "red"}, "colour", "unknown parameter .*; the parameters are generate, rate"),
        ({"generate": "5", "model": "gpt"}, "--model", "no model named 'gpt'; available: deepseek-r1, .*kimi-k2"),
        ({"generate": "5", "machine": "abacus"}, "--machine", "available: atlas-800i-a2, atlas-950, cloudmatrix384"),
        (
            {"generate": "5", "machine": A2, "cache_plane": "ub"},
            "--cache-plane",
            "not connected by ub; they have rdma",
        ),
        ({"generate": "5", "machine": A2, "ub_share": "0.5"}, "--ub-share", "not connected by ub"),
        ({"generate": "5", "machine": A2, "neighbour_load": "0.5"}, "--neighbour-load", "not connected by ub"),
        ({"generate": "5", "machine": A2, "lost_l2_chips": "1"}, "--lost-l2-chips", "not connected by ub"),
        ({"generate": "5", "tpot_target": "0"}, "--tpot-target", "greater than 0"),
        ({"generate": "5", "ttft": "inf"}, "--ttft", "finite number"),
        ({"generate": "5", "tpot": "inf"}, "--tpot", "finite number"),
    ],
)
def test_what_no_trial_may_have_is_refused_with_its_field(parameters, field, says):
    with pytest.raises(InvalidField, match=says) as refused:
        trial_of(parameters)
    assert refused.value.field == field


def test_a_trial_names_its_model_and_machine_and_files_of_ones_own_have_digests(tmp_path, capsys):
    model, machine = tmp_path / "mine.yaml", tmp_path / "faster.yaml"
    packaged = files("infer_workload.timing")
    text = packaged.joinpath("models", "qwen3-235b.yaml").read_text()
    model.write_text(text.replace("name: qwen3-235b", "name: mine"))
    text = packaged.joinpath("machines", "cloudmatrix384.yaml").read_text()
    machine.write_text(text.replace("bf16_tflops: {value: 376.0", "bf16_tflops: {value: 752.0"))
    base = Trial(generate=40, nodes=8, rate=4.0)
    mine = base.with_changes({"model": str(model)})
    assert run(mine).report == run(base.with_changes({"model": "qwen3-235b"})).report != run(base).report
    faster = base.with_changes({"machine": str(machine)})
    assert run(faster).report.ttft.p50 < run(base).report.ttft.p50
    code, out, _ = run_matrixctl(capsys, "experiment", "run", *mine.options(), "-o", "json")
    made = json.loads(out)["made_by"]
    assert code == 0
    assert f"--model={model}" in shlex.split(made["command"])
    assert re.fullmatch("[0-9a-f]{12}", made["model_sha256"])
    assert "machine_sha256" not in made
    found = sweep(
        expand_points({"generate": 20, "nodes": 8}, [parse_axis("model=deepseek-r1,kimi-k2")]), local_runner(1)
    )
    assert found[0].report != found[1].report


def test_a_machine_without_ub_between_its_nodes_serves_over_roce():
    base = Trial(generate=60, nodes=6, rate=0.2, machine=A2)
    found = run(base).report
    assert (found.finished, found.npus) == (60, 48)
    assert found.tpot.mean > run(base.with_changes({"machine": "cloudmatrix384"})).report.tpot.mean
    halved = run(base.with_changes({"rdma_share": 0.5})).report
    assert halved.tpot.p50 > found.tpot.p50
    assert halved.ttft.p50 > found.ttft.p50
    beside = run(base.with_changes({"neighbour_plane": "rdma", "neighbour_load": 1.0, "neighbour_weight": 3.0})).report
    assert beside.tpot.p50 > found.tpot.p50
    assert run(base.with_changes({"vpc_share": 0.05})).report.ttft.mean > found.ttft.mean  # cached blocks come over VPC


def test_a_loss_on_a_machine_without_ub_is_recovered_from():
    found = run(Trial(generate=60, nodes=7, rate=0.2, machine=A2, lose_node_at=60.0)).report
    assert found.finished == 60
    assert any("was lost" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("heads: {value: 3, source: x}", "mine.yaml: name: missing"),
        ("{", "mine.yaml: not YAML"),
        ("colour: {value: 3, source: x}", "mine.yaml: colour: no such field"),
    ],
)
def test_a_model_file_with_an_error_is_refused_with_its_field(tmp_path, text, says, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    code, _, wrong = run_matrixctl(capsys, "experiment", "run", "--generate", "5", "--model", str(path))
    assert (code, says in wrong, "--model" in wrong) == (2, True, True), wrong


# ---- sweeps


def test_an_axis_is_a_list_or_a_range_with_both_ends():
    assert parse_axis("nodes=8, 16") == Axis("nodes", ("8", "16"))
    assert parse_axis("rate=0.5:1.5:0.25").values == ("0.5", "0.75", "1", "1.25", "1.5")
    assert parse_axis("cache-gb=100:300:100").parameter == "cache_gb"
    assert parse_axis("mtp=true,false").values == ("true", "false")


@pytest.mark.parametrize(
    "text",
    [
        "nodes",
        "nodes=",
        "nodes=,",
        "trace=a",
        "foo=1",
        "rate=1:2:0",
        "rate=2:1",
        "rate=a:b",
        "rate=1:2:3:4",
        "rate=1:1000000",
    ],
)
def test_an_axis_that_is_none_is_refused(text):
    with pytest.raises(InvalidField):
        parse_axis(text)


def test_every_combination_is_a_point_and_values_are_judged_before_anything_runs():
    points = expand_points({"generate": 5}, [parse_axis("nodes=4,8"), parse_axis("mtp=true,false")])
    assert [varied for varied, _ in points] == [
        {"nodes": 4, "mtp": True}, {"nodes": 4, "mtp": False}, {"nodes": 8, "mtp": True}, {"nodes": 8, "mtp": False},
    ]  # fmt: skip
    for wrong in ([], [parse_axis("nodes=8,99")], [parse_axis("nodes=8"), parse_axis("nodes=4")]):
        with pytest.raises(InvalidField):
            expand_points({"generate": 5}, wrong)


def test_how_many_processes_run_a_sweep_does_not_show():
    points = expand_points({"generate": 60, "nodes": 8}, [parse_axis("rate=2:4:1"), parse_axis("seed=1,2")])
    alone, together = (to_csv(sweep(points, local_runner(workers))) for workers in (1, 2))
    assert alone == together
    rows = list(csv.DictReader(io.StringIO(alone)))
    assert [(row["rate"], row["seed"]) for row in rows] == [(f"{r}.0", s) for r in (2, 3, 4) for s in ("1", "2")]
    assert all(float(row["ttft_p90"]) > 0 for row in rows)


def test_no_worker_begins_a_long_point_last(tmp_path):
    points = expand_points({"generate": 1, "nodes": 8}, [parse_axis("generate=5,9,7"), parse_axis("seed=1,2")])
    trials = [trial for _, trial in points] + [Trial(trace=tmp_path / "trace.jsonl")]
    assert [number for number, _ in longest_first(trials)] == [6, 2, 3, 4, 5, 0, 1]
    alone, together = (sweep(points, local_runner(workers)) for workers in (1, 2))
    assert alone == together, "in the order of the points"


def test_a_point_that_cannot_be_laid_out_says_why_and_the_others_are_measured():
    done: list[tuple[int, int]] = []
    found = sweep(
        expand_points({"generate": 20}, [parse_axis("nodes=1,8")]), local_runner(1), lambda *step: done.append(step)
    )
    assert found[0].report is None
    assert found[0].why_not
    assert found[1].report is not None
    assert found[1].report.finished == 20
    assert done == [(0, 2), (1, 2), (2, 2)]


@settings(max_examples=6, deadline=None)
@given(st.permutations(list(range(3))))
def test_the_order_in_which_points_end_does_not_show(order):
    points = expand_points({"generate": 20, "nodes": 8}, [parse_axis("seed=1,2,3")])
    assert sweep(points, lambda trials: ((at, run_trial(trials[at])) for at in order)) == sweep(points, local_runner(1))


# ---- capacity, what-ifs, comparisons


def test_capacity_is_the_fewest_nodes_that_are_enough():
    trial = SMALL.with_changes({"rate": 8.0, "ttft": 4.0})
    found = min_nodes(trial, 0.9, 4, 24)
    assert found.nodes is not None
    tried = {point.varied["nodes"]: point.report for point in found.tried}
    assert tried[found.nodes].goodput_share >= 0.9
    below = tried[found.nodes - 1]
    assert below is None or below.goodput_share < 0.9
    assert min_nodes(trial.with_changes({"ttft": 0.001}), 0.9, 4, 6).nodes is None


@pytest.mark.parametrize("name", WHAT_IFS)
def test_each_what_if_changes_what_it_says_and_nothing_else(name):
    base = Trial(generate=10, nodes=16)
    changed = what_if(name, base)
    differ = {each for each in PARAMETERS if getattr(base, each) != getattr(changed, each)}
    pools, greedy = {"prefill", "decode"}, {"neighbour_load", "neighbour_weight"}
    expected = {
        "more-prefill": pools, "more-decode": pools, "greedy-neighbour": greedy,
        "greedy-neighbour-and-a-floor": greedy | {"floor_share"}, "busy-rdma": {"neighbour_load", "neighbour_plane"},
    }.get(name)  # fmt: skip
    assert differ == expected if expected else len(differ) == 1
    assert run(changed).report.finished == 10


def test_a_smaller_share_of_the_fabric_slows_requests():
    before, after = (run(trial).report for trial in (SMALL, what_if("half-the-ub-floor", SMALL)))
    assert after.ttft.mean > before.ttft.mean
    without = run(what_if("no-cache", SMALL)).report
    assert (without.cache_hit_rate_blocks, before.cache_hit_rate_blocks > 0) == (0.0, True)


def test_a_what_if_that_there_is_not_names_those_there_are():
    with pytest.raises(InvalidField, match="lose-a-node") as refused:
        what_if("win-the-lottery", SMALL)
    assert refused.value.field == "NAME"


def test_a_comparison_says_what_is_better():
    report = run(SMALL).report
    slower = replace(
        report, ttft=replace(report.ttft, p50=report.ttft.p50 * 2), goodput_share=report.goodput_share + 0.01
    )
    changes = {change.name: change for change in compare(report, slower)}
    assert (changes["ttft.p50"].better, changes["ttft.p50"].part) == (False, pytest.approx(1.0))
    assert changes["goodput_share"].better is True
    assert changes["ttft.p90"].better is None


def test_reports_are_compared_from_files(capsys, tmp_path):
    for name, more in (("a.json", []), ("b.json", ["--no-cache"])):
        code, out, _ = run_matrixctl(
            capsys, "experiment", "run", "--generate", "40", "--nodes", "8", *more, "-o", "json"
        )
        assert code == 0
        (tmp_path / name).write_text(out)
    code, out, _ = run_matrixctl(capsys, "experiment", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert code == 0
    assert "cache_hit_rate_blocks" in out
    assert "matrixctl experiment run --generate=40 --nodes=8 --no-cache" in out
    (tmp_path / "c.json").write_text("{}")
    for wrong in ("c.json", "none.json"):
        code, _, text = run_matrixctl(capsys, "experiment", "compare", str(tmp_path / "a.json"), str(tmp_path / wrong))
        assert (code, "AFTER" in text) == (2, True)


# ---- reports


def test_a_request_is_a_line_and_the_timeline_adds_up():
    outcome = run(SMALL)
    rows = list(csv.reader(io.StringIO(requests_csv(outcome.requests))))
    assert tuple(rows[0]) == COLUMNS
    assert [int(row[0]) for row in rows[1:]] == list(range(80))
    steps = timeline(outcome.requests, 20)
    width = steps[1].at_s - steps[0].at_s
    assert sum(step.arrivals_per_s for step in steps) * width == pytest.approx(80)
    assert sum(step.finished_per_s for step in steps) * width == pytest.approx(80)
    assert sum(step.output_tokens_per_s for step in steps) * width == pytest.approx(outcome.report.output_tokens)
    lived = sum(each.latency_s for each in outcome.requests)
    assert sum(step.in_flight for step in steps) * width == pytest.approx(lived)
    assert timeline([]) == []
    one = ServedRequest(0, 1.0, 5, 1, 0, 1, 1.0, 1.0)
    assert sum(step.arrivals_per_s for step in timeline([one], 3)) > 0


def test_a_page_is_the_same_every_time_and_needs_nothing_else(capsys, tmp_path):
    pages = []
    for name in ("a.html", "b.html"):
        asked = ("experiment", "run", "--generate", "60", "--nodes", "8", "--html", str(tmp_path / name))
        assert run_matrixctl(capsys, *asked)[0] == 0
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]
    assert not re.search(r"<script|https?://(?!www\.w3\.org|pygal\.org|github\.com/Kozea)", pages[0])
    plots = re.findall(r"<svg.*?</svg>", pages[0], re.DOTALL)
    assert len(plots) == 5
    for plot in plots:
        ElementTree.fromstring(plot)
    assert "matrixctl experiment run --generate=60 --nodes=8" in pages[0]


def test_a_sweep_prints_a_table_writes_its_files_and_says_how_it_was_made(capsys, tmp_path):
    words = (
        "experiment",
        "sweep",
        "--generate",
        "30",
        "--over",
        "nodes=4,8",
        "--over",
        "mtp=true,false",
        "--workers",
        "1",
    )
    code, out, _ = run_matrixctl(capsys, *words, "--csv", str(tmp_path / "s.csv"), "--html", str(tmp_path / "s.html"))
    assert code == 0
    assert out.splitlines()[0].split()[:2] == ["NODES", "MTP"]
    assert len(out.splitlines()) == 5
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 5
    assert "--over=nodes=4,8 --over=mtp=true,false --generate=30" in (tmp_path / "s.html").read_text()
    code, _, text = run_matrixctl(capsys, *words, "--csv", str(tmp_path / "no" / "s.csv"))
    assert (code, "--csv" in text) == (1, True)


def test_capacity_says_when_nothing_is_enough(capsys):
    asked = ("experiment", "capacity", "--generate", "20", "--least", "6", "--most", "8")
    code, out, _ = run_matrixctl(capsys, *asked, "--ttft", "20", "--attained", "0.5")
    assert (code, ": 6 nodes (48 NPUs)" in out) == (0, True)
    code, out, _ = run_matrixctl(capsys, *asked, "--ttft", "0.0001")
    assert (code, "not enough for" in out) == (1, True)
    assert run_matrixctl(capsys, "experiment", "capacity", "--generate", "5", "--least", "9", "--most", "8")[0] == 2


def test_the_commands_of_the_page_do_what_it_says(tmp_path):
    page = (
        (ROOT / "docs" / "how-to" / "experiments.md").read_text().partition("--keep")[0]
    )  # what follows needs a stack
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    script = (
        "set -e\nmatrixctl() { " + shlex.quote(sys.executable) + ' -m services.matrixctl "$@"; }\n' + "".join(blocks)
    )
    asked = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stdout[-500:] + asked.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.html", "requests.csv", "sweep.html", "sweep.csv", "before.json", "after.json",
    }  # fmt: skip


def test_the_options_of_the_command_line_are_the_parameters_of_a_trial():
    options = {field.name: field.default for field in fields(TrialOptions)}
    assert options == {name: field.default for name, field in Trial.model_fields.items()}
