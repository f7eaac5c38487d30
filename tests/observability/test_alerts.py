"""Alert rules on what was recorded while something failed: they fire in time, and say nothing while all is well."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from services.observability.alerts import ALERTS
from services.observability.catalogue import by_sample
from tests.golden import ROOT
from tests.observability import kube_record, record
from tests.observability.record import RECORDED

RULES = ROOT / "docs" / "reference" / "alerts.rules.yaml"
STORIES = {**record.STORIES, **kube_record.STORIES}
NOT_RECORDED = {
    "CloudMatrixKubeSlow": "a processor that is too slow is no failure, and a webhook that is belongs to somebody else",
    "CloudMatrixKubeWatchLags": "it takes a client that does not read for minutes",
    "CloudMatrixInstanceStuck": "a workflow that does not get on is a fault of ours, which no story can bring about",
    "CloudMatrixNobodyLeads": "replicas that all live and none of which leads, likewise",
    "CloudMatrixErrors": "a service that errs, likewise",
}
"""Alerts that no recorded failure fires; they are run on series written by hand."""


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed here (Debian: prometheus): NO ALERT RULE WAS RUN")
    return found


def run(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_well_formed(promtool: str) -> None:
    run(promtool, "check", "rules", str(RULES))


@pytest.mark.parametrize("story", STORIES)
def test_alerts_fire_in_time_and_no_other_does(promtool: str, story: str) -> None:
    run(promtool, "test", "rules", str(RECORDED / f"{story}.yaml"))


@pytest.mark.parametrize("story", STORIES)
def test_what_is_recorded_is_what_the_story_says(story: str) -> None:
    """The alerts that a story names are expected in its file; series are of metrics there are."""
    recorded = yaml.safe_load((RECORDED / f"{story}.yaml").read_text())["tests"][0]
    expected = {sample["labels"] for test in recorded["promql_expr_test"] for sample in test["exp_samples"]}
    assert expected == {f'{{alertname="{fires.alert}"}}' for fires in STORIES[story].fires}
    names = {series["series"].partition("{")[0] for series in recorded["input_series"]}
    assert names <= set(by_sample()) | {"up"}


def test_every_alert_is_run() -> None:
    fired = {fires.alert for story in STORIES.values() for fires in story.fires}
    assert fired | set(NOT_RECORDED) == {alert.name for alert in ALERTS}
    assert not fired & set(NOT_RECORDED)


def test_alerts_of_our_own_faults_fire_on_series_written_by_hand(promtool: str, tmp_path: Path) -> None:
    """None in the first five minutes, all of them ten minutes later."""
    latency = 'apiserver_request_duration_seconds_bucket{verb="LIST",pod="kube",le="%s"}'
    series = {
        latency % "0.5": "0+30x10 300+0x20",
        latency % "2.5": "0+30x30",
        latency % "+Inf": "0+30x30",
        'cloudmatrix_kube_watch_lag_seconds{pod="kube",resource="pods"}': "0+0x10 0+30x20",
        'matrixcompute_instances_stuck{service="compute"}': "0+0x10 1+0x20",
        'cloudmatrix_leads{service="compute",pod="a"}': "1+0x10 0+0x20",
        'cloudmatrix_leads{service="compute",pod="b"}': "0+0x30",
        'cloudmatrix_http_requests_total{pod="a",status="200",method="GET"}': "0+100x30",
        'cloudmatrix_http_requests_total{pod="a",status="500",method="GET"}': "0+0x10 0+20x20",
    }
    fired = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(NOT_RECORDED)]
    expr = 'group by (alertname) (ALERTS{alertstate="firing"})'
    tests = {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": "5m", "exp_samples": []},
            {"expr": expr, "eval_time": "15m", "exp_samples": fired},
        ],
    }
    file = tmp_path / "by-hand.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": [tests]}))
    run(promtool, "test", "rules", str(file))
