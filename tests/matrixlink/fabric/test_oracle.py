"""Every oracle case, by both methods, through the same door as the command line."""

import json
from pathlib import Path

import pytest

from benchmarks import fabric_oracle
from benchmarks.fabric_oracle import expected, main, matches, solve

CASES = sorted((Path(__file__).parent / "oracle").glob("D*.json"))


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "arrays"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, exact):
    case = json.loads(path.read_text())
    assert matches(expected(case), solve(case, exact))


FLUID = [path for path in CASES if json.loads(path.read_text())["rule"] == "fluid"]


@pytest.mark.parametrize("path", FLUID, ids=lambda path: path.stem)
def test_large_cases_are_computed_with_arrays(path, monkeypatch):
    monkeypatch.setattr(fabric_oracle, "EXACT_FLOWS_MAX", 0)
    case = json.loads(path.read_text())
    found = solve(case)
    assert all(isinstance(end, float) for end in found["finish_ns"])
    assert matches(case["expect"]["finish_ns"], found["finish_ns"])


def test_all_cases_of_the_index_exist():
    index = json.loads((Path(__file__).parent / "oracle" / "index.json").read_text())
    assert [entry["file"] for entry in index] == [path.name for path in CASES]


def test_a_case_without_expected_values_is_computed(tmp_path):
    case = json.loads(CASES[0].read_text())
    right = case.pop("expect")
    (tmp_path / "case.json").write_text(json.dumps(case))
    assert main([str(tmp_path / "case.json"), "--answer", str(tmp_path / "out.json")]) == 0
    assert matches(right, json.loads((tmp_path / "out.json").read_text()))


def test_a_wrong_expected_value_is_detected(tmp_path):
    case = json.loads(CASES[0].read_text())
    case["expect"]["rate"][0] = "1"
    (tmp_path / "case.json").write_text(json.dumps(case))
    assert main([str(tmp_path / "case.json")]) == 1


@pytest.mark.parametrize("text", ["{}", "[1", '{"format": "fabric-oracle/2", "rule": "fluid"}'])
def test_invalid_cases_are_refused(tmp_path, text, capsys):
    (tmp_path / "case.json").write_text(text)
    assert main([str(tmp_path / "case.json")]) == 2
    assert "case.json" in capsys.readouterr().err
