"""Wrong input to experiments is refused by name before anything runs, and what cannot come to pass is said."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

import pytest

from infer_workload.experiments import autoscale, experiment, sweep
from infer_workload.experiments.comparison import compare, is_comparable, parse_report
from infer_workload.experiments.experiment import run
from infer_workload.experiments.sweep import expand_points, parse_axis
from infer_workload.experiments.trial import Trial, trial_of
from infer_workload.layout.deployment import DoesNotFit
from infer_workload.reports.report import Spread, flatten
from infer_workload.reports.study_plots import capacity_plots
from infer_workload.traffic.generator import BadTrace, read_trace
from matrixcommon.model.errors import InternalError, InvalidField
from tests.services.matrixctl.inprocess import run_matrixctl


@pytest.mark.parametrize(
    "text", ["rate=1:inf", "rate=1:1e9999999", "rate=1:1e999999", "rate=1:2:1e-9999999", "rate=1:10:inf", "rate=1:nan"]
)
def test_a_range_without_an_end_or_a_step_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse_axis(text)
    assert refused.value.field == "--over"


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("nodes=8,x", "nodes=x: Input should be a valid integer, unable to parse string as an integer"),
        ("cache-plane=ub,rdma", "cache_plane=rdma: Input should be 'ub' or 'vpc'"),
        ("model=kimi-k2,nope", "model=nope: no model named 'nope'; available: "),
    ],
)
def test_a_wrong_value_of_a_sweep_is_refused_with_the_value(axis: str, message: str) -> None:
    with pytest.raises(InvalidField) as refused:
        expand_points({"generate": 20}, [parse_axis(axis)])
    assert refused.value.field == f"--{axis.partition('=')[0]}"
    assert refused.value.message.startswith(message)


def test_a_trace_that_is_not_there_is_refused_with_its_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    code, out, err = run_matrixctl(capsys, "experiment", "run", "--trace", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"InvalidField: {file}: No such file or directory [field --trace]")


def test_figures_have_no_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "run", lambda *_, **__: pytest.fail("it ran"))
    code, out, err = run_matrixctl(capsys, *["experiment", "what-if", "no-mtp", "--generate", "9", "-o", "name"])
    assert (code, out) == (2, "")
    assert "use table, wide, json or yaml [field --output]" in err
    code, out, _ = run_matrixctl(capsys, *["experiment", "what-if", "-o", "name"])
    assert code == 0
    assert "no-mtp" in out.splitlines()


def test_a_node_is_lost_after_the_last_request_came_as_long_as_one_runs() -> None:
    trial = Trial(generate=20, nodes=8, rate=10.0, seed=3)
    whole = run(trial)
    ends = max(request.finished_at for request in whole.requests)
    late = run(trial.with_changes({"lose_node_at": ends - 1.0}))
    assert "was lost at " in late.report.notes[0]
    assert late.report.finished == 20
    assert max(request.finished_at for request in late.requests) > ends
    never = run(trial.with_changes({"lose_node_at": ends + 1.0}))
    assert never.report.notes == [f"no node was lost at {ends + 1:g} s: all requests had finished by then"]
    assert list(never.requests) == list(whole.requests)


def test_a_loss_that_leaves_too_few_nodes_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "replay", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(DoesNotFit):
        run(Trial(generate=20, nodes=2, lose_node_at=1000.0))
    with pytest.raises(InvalidField, match="finite"):
        trial_of({"generate": "5", "lose_node_at": "inf"})


def test_a_rate_of_requests_that_a_trace_has_the_times_of_is_refused() -> None:
    """It would change nothing, and a sweep over it would find the same at every point."""
    with pytest.raises(InvalidField, match="applies to generated requests only") as refused:
        expand_points({"trace": "requests.jsonl"}, [parse_axis("rate=1:5:1")])
    assert refused.value.field == "--rate"


@pytest.mark.parametrize(
    ("over", "field", "says"),
    [
        (("maxReplicas=8,99",), "maxReplicas", "must be at most 48"),
        (("objective.utilization=0.7,high",), "objective.utilization", "valid number"),
        (("maxReplicas=8", "maxReplicas=9"), "--over", "varied twice"),
    ],
)
def test_every_policy_is_judged_before_one_is_played(
    over: tuple[str, ...], field: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(autoscale, "simulate", lambda *_, **__: pytest.fail("one was played"))
    file = tmp_path / "policy.yaml"
    file.write_text("{scaleTargetRef: {name: served}, minReplicas: 3, maxReplicas: 8}")
    words = [f"--over={each}" for each in over]
    code, _, wrong = run_matrixctl(capsys, "experiment", "autoscale", "-f", str(file), "--generate", "20", *words)
    assert (code != 0, field in wrong, says in wrong) == (True, True, True), wrong


@pytest.mark.parametrize("text", ["a: [", "[" * 5_000, "a: 2026-02-31"])
def test_a_policy_that_is_no_yaml_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    code, _, wrong = run_matrixctl(capsys, "experiment", "autoscale", "-f", str(file), "--generate", "20")
    assert (code != 0, "is not a YAML file" in wrong, "--filename" in wrong) == (True, True, True), wrong


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("run",), "--html"),
        (("run",), "--csv"),
        (("what-if", "no-mtp"), "--html"),
        (("sweep", "--over=nodes=8,16", "--workers=1"), "--html"),
        (("sweep", "--over=nodes=8,16", "--workers=1"), "--csv"),
        (("capacity", "--least=7"), "--html"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    command: tuple[str, ...], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(experiment, "run", lambda *_, **__: pytest.fail("it ran"))
    for path, why in ((tmp_path / "nowhere" / "found", "No such file or directory"), (tmp_path, "Is a directory")):
        code, _, wrong = run_matrixctl(capsys, "experiment", *command, "--generate", "20", option, str(path))
        assert (code != 0, option in wrong, why in wrong) == (True, True, True), wrong


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('"made_by": "me"', "not a report"),
        ('"made_by": {"seed": 1}', "not a report"),
        ('"made_by": {"command": 5}', "not a report"),
        ('"tpot": {"p50": NaN}', "tpot.p50 is not a finite number"),
        ('"tpot": {"p50": 1e999}', "tpot.p50 is not a finite number"),
        ('"notes": ' + "[" * 100_000, "not JSON"),
    ],
    ids=range(6),
)
def test_a_report_that_cannot_be_compared_is_refused(more: str, says: str) -> None:
    with pytest.raises(InvalidField, match=says) as refused:
        parse_report('{"ttft": {"p50": 1}, "finished": 2, ' + more + "}", "AFTER")
    assert refused.value.field == "AFTER"


def test_a_request_of_a_time_too_late_to_be_told_from_the_next_is_refused(tmp_path: Path) -> None:
    """Of seconds that many, a float has no fractions: every latency would be none."""
    file = tmp_path / "late.jsonl"
    file.write_text('{"timestamp": 1e18, "input_length": 5, "output_length": 5, "hash_ids": []}')
    with pytest.raises(BadTrace, match="timestamp from 0 to"):
        read_trace(file)
    file.write_text('{"timestamp": 1767571200000, "input_length": 5, "output_length": 5, "hash_ids": []}')
    assert read_trace(file)[0].at_s == 1_767_571_200.0, "the clock of its recorder"


def test_where_one_point_cannot_be_measured_the_others_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    released, tried = Event(), list[Trial]()

    class Threads(ThreadPoolExecutor):
        """In place of processes; what runs ends once nothing more is to be begun."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(False, cancel_futures=cancel_futures)
            released.set()
            super().shutdown(wait)

    def measured(trial: Trial) -> None:
        tried.append(trial)
        if trial.seed == 0:
            raise BadTrace("line 5 is no request")
        released.wait()

    monkeypatch.setattr(sweep, "ProcessPoolExecutor", lambda workers, mp_context: Threads(workers))
    monkeypatch.setattr(sweep, "run_trial", measured)
    with pytest.raises(BadTrace):
        list(sweep.local_runner(2)([Trial(generate=5, seed=seed) for seed in range(100)]))
    assert len(tried) <= 3


def test_a_sweep_that_is_given_up_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Ctrl-C would wait for points that nobody wants any more, for as long as each of them takes."""
    before = set(multiprocessing.active_children())
    endless = tmp_path / "trace.jsonl"
    os.mkfifo(endless)  # who reads it waits for somebody to write
    measuring = sweep.local_runner(2)([Trial(trace=endless), Trial(generate=5)])
    assert next(measuring)[0] == 1
    workers = set(multiprocessing.active_children()) - before
    measuring.close()  # type: ignore[attr-defined]
    try:
        for worker in workers:
            worker.join(10)
        assert workers
        assert not any(worker.is_alive() for worker in workers)
    finally:
        for worker in workers:
            worker.kill()


def test_a_sweep_whose_process_is_killed_says_so(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    endless = tmp_path / "trace.jsonl"
    os.mkfifo(endless)
    measuring = sweep.local_runner(2)([Trial(trace=endless), Trial(generate=5)])
    assert next(measuring)[0] == 1
    for worker in set(multiprocessing.active_children()) - before:
        worker.kill()
    with pytest.raises(InternalError, match="a worker process died while it ran a point"):
        next(measuring)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "it must be a JSON object"),
        ('{"timestamp": "0", "input_length": 5, "output_length": 5}', "timestamp is not a number"),
        ('{"timestamp": 0, "input_length": 5.5, "output_length": 5}', "input_length is not an integer"),
        ('{"timestamp": 0, "input_length": 5, "output_length": true}', "output_length is not a number"),
        ('{"timestamp": 0, "input_length": 5, "output_length": null}', "output_length is not a number"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": "a"}', "hash_ids is not a list"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [0.5]}', "hash_ids is not a list"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 5, "priority": "p"}', "priority is not a number"),
        ('{"timestamp": 0, "input_length": 5}', "'output_length' is missing"),
    ],
)
def test_a_line_that_is_no_request_says_in_its_own_words_what_is_wrong(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(BadTrace, match=f"line 1 is not a trace request: {says}"):
        read_trace(file)


@pytest.mark.parametrize(
    ("words", "says", "field"),
    [
        ("what-if nothing --generate 5", "unknown what-if 'nothing'; choose from lose-a-node", "NAME"),
        ("run --generate 5 --model gone.yaml", "no file gone.yaml; available: deepseek-r1", "--model"),
        ("run --generate 5 --nodes 1", "the instance has 1 usable node, the pools need 2", "--nodes"),
        ("run --generate 5 --html same --csv ./same", "--html writes to same too", "--csv"),
        ("sweep --generate 5 --over rate=nan", "finite number", "--rate"),
        ("autoscale -f policy.yaml --trace late.jsonl", "must span at most 90 days, not 1,041,667", "--trace"),
        ("autoscale -f policy.yaml --generate 5 --over more=1", "unknown field of a ScalingPolicy", "more"),
    ],
)
def test_what_is_refused_names_what_is_wrong_and_what_is_accepted(
    words: str, says: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text("{scaleTargetRef: {name: served}, minReplicas: 3, maxReplicas: 8}")
    line = '{"timestamp": %d, "input_length": 5, "output_length": 5}\n'
    Path("late.jsonl").write_text(line % 0 + line % 90_000_000_000_000)
    code, _, wrong = run_matrixctl(capsys, "experiment", *words.split())
    assert (code != 0, says in wrong, f"[field {field}]" in wrong) == (True, True, True), wrong


def test_requests_that_were_refused_kept_no_objective_and_have_no_latencies() -> None:
    """Half of them turned away would else look like all of them served in time."""
    few = run(Trial(generate=60, nodes=2, rate=0.2, ttft=1e6, tpot=1e6))
    assert 0 < few.report.refused < few.report.requests
    (why,) = few.report.notes
    assert why.startswith(f"{few.report.refused} requests refused: prompt and answer exceed 9,767 tokens")
    assert few.report.goodput_share == pytest.approx(few.report.finished / few.report.requests, abs=1e-6)
    nobody = Spread.of([])
    none = replace(few.report, finished=0, ttft=nobody, tpot=nobody, latency=nobody)
    assert "TTFT           not measured: no request finished" in none.text()
    _, (figures,) = sweep.table_rows([sweep.Point({}, none)])
    assert figures[:2] == ["-", "-"]
    figures = flatten(asdict(none), ".")
    assert {figures[f"{name}.{at}"] for name in ("ttft", "tpot", "latency") for at in ("mean", "p50", "p99")} == {None}
    assert json.loads(json.dumps(asdict(none)))["ttft"]["p90"] is None
    assert sweep.to_csv([sweep.Point({}, none)]).splitlines()[1].count(",,") > 3
    assert is_comparable(json.loads(json.dumps(asdict(none)))), "two such runs can be compared"
    assert "ttft.p50" not in {change.name for change in compare(few.report, none)}
    (found, _, _) = capacity_plots(
        {"tried": [{"nodes": 2, "report": asdict(none)}], "objectives": {"ttft_s": 1.0, "tpot_s": 0.1, "attained": 0.9}}
    )
    assert found.lines["found"] == [(2.0, none.goodput_share)]


def test_more_nodes_with_half_of_their_lanes_than_decode_are_refused(capsys) -> None:
    _, _, wrong = run_matrixctl(capsys, "experiment", *["run", "--generate", "5", "--nodes", "4", "--half-lanes", "3"])
    assert "3 decode nodes cannot lose half of their lanes: the layout has 2" in wrong
    assert "[field --half-lanes]" in wrong
    assert run(Trial(generate=5, nodes=4, half_lanes=2)).report.finished == 5


def test_a_point_that_cannot_be_says_why_in_a_column_of_its_own() -> None:
    points = sweep.sweep(sweep.expand_points({"generate": 5}, [sweep.parse_axis("nodes=1,4")]), sweep.local_runner(1))
    columns, rows = sweep.table_rows(points)
    assert columns == [*sweep.TABLE_COLUMNS, sweep.REASON_COLUMN]
    assert rows[0] == ["-"] * len(sweep.TABLE_COLUMNS) + ["the instance has 1 usable node, the pools need 2"]
    assert rows[1][-1] == ""
    assert sweep.table_rows(points[1:])[0] == [*sweep.TABLE_COLUMNS]
