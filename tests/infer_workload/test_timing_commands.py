"""`matrixctl experiment operators` and `validate`: tables for people, documents for programs, refusals with the field."""

import json

import pytest

from tests.services.matrixctl.inprocess import ran


def test_operators_of_a_decode_step_in_one_stream_add_up_to_it(capsys):
    code, out, _ = ran(capsys, "experiment", "operators", "--batch", "8", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["microbatches"] == 1
    assert sum(row["ms"] for row in found["rows"]) == pytest.approx(found["step_ms"])
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1.0)
    assert all(row["bound"] in {"cube", "vector", "hbm", "wire", "issue", "launch"} for row in found["rows"])
    assert all(": " in row["source"] for row in found["rows"])


def test_two_streams_take_less_than_their_operators_together(capsys):
    code, out, _ = ran(capsys, "experiment", "operators", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["summed_ms"] > found["step_ms"] > found["summed_ms"] / 2
    assert 1 <= found["attention_cores"] <= 23


@pytest.mark.parametrize("model", ["deepseek-r1", "kimi-k2", "qwen3-235b"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_each_model_has_a_table_for_both_phases(capsys, model, phase):
    code, out, _ = ran(capsys, "experiment", "operators", "--model", model, "--phase", phase, "-o", "wide")
    assert code == 0
    assert "attention core" in out
    assert f"{phase} of {model} on" in out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--model", "gpt"), "there are deepseek-r1, deepseek-v3, kimi-k2, llama-3.1-70b, qwen3-235b [field --model]"),
        (("--ep", "1"), "a die has 64 [field --ep]"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(capsys, words, named):
    code, _, err = ran(capsys, "experiment", "operators", *words)
    assert code == 2
    assert named in err


def test_a_model_file_of_ones_own_is_refused_with_its_field(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nlayers: {value: 0, source: x}\n")
    code, _, err = ran(capsys, "experiment", "operators", "--model", str(path))
    assert code == 2
    assert "mine.yaml: attention: missing" in err


def test_validate_prints_each_figure_with_its_interval(capsys):
    code, out, _ = ran(capsys, "experiment", "validate")
    assert code == 0
    assert "TPOT, 4096/256, batch 24" in out
    assert "90 % interval" in out
    assert "published efficiencies alone" in out


def test_validate_as_a_document(capsys):
    code, out, _ = ran(capsys, "experiment", "validate", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert {figure["role"] for figure in found["figures"]} == {"fitted", "predicted", "recalled"}
    assert len(found["left_out"]) == found["rows"] > len(found["fit"])
