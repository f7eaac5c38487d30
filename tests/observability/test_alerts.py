"""Alert rules on what was recorded while something failed: they fire in time, and say nothing while all is well."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from services.observability.alerts import ALERTS
from services.observability.catalogue import by_sample
from tests.golden import ROOT
from tests.observability import kube_record, record
from tests.observability.record import RECORDED

RULES = ROOT / "docs" / "reference" / "alerts.rules.yaml"
STORIES = {**record.STORIES, **kube_record.STORIES}


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


def test_every_alert_is_run_on_a_recorded_failure() -> None:
    fired = {fires.alert for story in STORIES.values() for fires in story.fires}
    assert fired == {alert.name for alert in ALERTS}
    assert {f"{story}.yaml" for story in STORIES} == {file.name for file in RECORDED.iterdir()}
