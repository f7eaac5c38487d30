"""`matrixctl experiment operators` and `validate`: tables for people, documents for programs, refusals with the field."""

import json
from importlib.resources import files

import pytest

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.experiments.operator_table import decode_table, prefill_table
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.data_files import list_packaged
from infer_workload.timing.model import load_model
from tests.services.matrixctl.inprocess import run_matrixctl


def test_operators_of_a_decode_step_in_one_stream_add_up_to_it(capsys):
    code, out, _ = run_matrixctl(capsys, "experiment", "operators", "--batch", "8", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["microbatches"] == 1
    assert sum(row["ms"] for row in found["rows"]) == pytest.approx(found["step_ms"])
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1.0)
    assert all(row["bound"] in {"cube", "vector", "hbm", "wire", "issue", "launch"} for row in found["rows"])
    assert all(": " in row["source"] for row in found["rows"])


def test_two_streams_take_less_than_their_operators_together(capsys):
    code, out, _ = run_matrixctl(capsys, "experiment", "operators", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert found["summed_ms"] > found["step_ms"] > found["summed_ms"] / 2
    assert 1 <= found["attention_cores"] <= 23


@pytest.mark.parametrize("machine", list_packaged("machines"))
@pytest.mark.parametrize("model", list_packaged("models"))
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_each_model_has_a_table_for_both_phases_on_each_machine(capsys, machine, model, phase):
    words = ("--machine", machine, "--model", model, "--phase", phase)
    code, out, err = run_matrixctl(capsys, "experiment", "operators", *words, "-o", "wide")
    if (machine, model, phase) == ("atlas-800i-a2", "kimi-k2", "prefill"):
        assert (code, "on 16 dies the weights need 77 GB" in err) == (2, True)
        code, out, _ = run_matrixctl(capsys, "experiment", "operators", *words, "--ep", "32", "-o", "wide")
    assert code == 0
    assert "attention core" in out
    assert f"{phase} of {model} on" in out
    assert f" dies of {machine}: " in out


@pytest.mark.parametrize("machine", list_packaged("machines"))
def test_a_table_is_of_the_step_that_a_deployment_on_that_machine_takes(machine):
    current = load_calibration(machine)
    served = lay_out(healthy_fabric(32, current), load_model(), current, DeploymentShape(context_cache=False))
    decode = decode_table(None, 4096, None, machine=machine)
    requests = current.decode_batch_per_npu / current.dies_per_npu
    step_s = served.decode_timing().exact_step_s(requests, 4096 * requests)
    assert (decode.dies, decode.step_ms) == (served.decode_dies, pytest.approx(step_s * 1e3))
    prefill = prefill_table(None, 4096, None, machine=machine)
    prompts = prefill.dies * current.prefill_tokens_per_npu // current.dies_per_npu // 4096
    chunk_s = served.prefill_timing(0).exact_chunk_s([(4096, 0)] * prompts)
    assert (prefill.dies, prefill.step_ms) == (served.prefill_layouts[0].dies, pytest.approx(chunk_s * 1e3))


def test_sources_are_those_of_the_machines_own_file():
    def source_of(name, machine):
        rows = decode_table(None, 4096, None, machine=machine).rows
        return next(row.source for row in rows if row.name == name)

    assert source_of("attention core", "cloudmatrix384").startswith("attention_compute_efficiency (published): P")
    assert source_of("attention core", "atlas-800i-a2") == (
        "attention_compute_efficiency (assumed): as on the 910C (P)"
    )
    assert source_of("reduce-scatter", "atlas-800i-a2") == "ub_efficiency (assumed): as UB"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--model", "gpt"), "available: deepseek-r1, deepseek-v3, kimi-k2, llama-3.1-70b, qwen3-235b [field --model]"),
        (("--machine", "abacus"), "available: atlas-800i-a2, atlas-950, cloudmatrix384 [field --machine]"),
        (("--ep", "1"), "HBM per die, which has 64 GB [field --ep]"),
        (("--phase", "prefill", "--batch", "8"), "applies to --phase decode only [field --batch]"),
        (("--phase", "prefill", "--microbatch", "off"), "applies to --phase decode only [field --microbatch]"),
        (("--tokens", "4096"), "applies to --phase prefill only [field --tokens]"),
    ],
)
def test_what_cannot_be_is_refused_with_the_field(capsys, words, named):
    code, _, err = run_matrixctl(capsys, "experiment", "operators", *words)
    assert code == 2
    assert named in err


def test_a_model_file_of_ones_own_is_refused_with_its_field(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nlayers: {value: 0, source: x}\n")
    code, _, err = run_matrixctl(capsys, "experiment", "operators", "--model", str(path))
    assert code == 2
    assert "mine.yaml: attention: missing" in err


def test_a_machine_file_of_ones_own_is_used_or_refused_with_its_field(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    theirs = files("infer_workload.timing").joinpath("machines", "cloudmatrix384.yaml").read_text()
    path.write_text(theirs.replace("hbm_gbps: {value: 1600.0", "hbm_gbps: {value: 3200.0"))
    mine, usual = (decode_table(None, 4096, None, machine=each).step_ms for each in (str(path), "cloudmatrix384"))
    assert mine < usual
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(theirs.replace("hbm_gb: {value: 64.0", "hbm_gb: {value: none"))
    code, _, err = run_matrixctl(capsys, "experiment", "operators", "--machine", str(wrong))
    assert (code, "wrong.yaml: hbm_gb: must be a number" in err, "[field --machine]" in err) == (2, True, True)


def test_validate_prints_each_figure_with_its_interval(capsys):
    code, out, _ = run_matrixctl(capsys, "experiment", "validate")
    assert code == 0
    assert "TPOT, 4096/256, batch 24" in out
    assert "90 % interval" in out
    assert "published efficiencies alone" in out


def test_validate_as_a_document(capsys):
    code, out, _ = run_matrixctl(capsys, "experiment", "validate", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert {figure["role"] for figure in found["figures"]} == {"fitted", "predicted", "recalled"}
    assert len(found["left_out"]) == found["rows"] > len(found["fit"])
