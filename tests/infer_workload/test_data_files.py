"""Models and machines are files; one with an error is refused with the field's name."""

from dataclasses import fields

import pytest
import yaml

from infer_workload.experiments.experiment import run
from infer_workload.experiments.trial import trial_of
from infer_workload.timing.calibration import ABOVE_ZERO, AT_LEAST, Calibration, entries, load_calibration
from infer_workload.timing.data_files import BadDataFile, UnknownDataFile, list_packaged, locate
from infer_workload.timing.model import read_model


@pytest.mark.parametrize("name", list_packaged("models"))
def test_models_that_are_carried_along_can_be_read(name):
    assert read_model(name).name == name


@pytest.mark.parametrize("name", list_packaged("machines"))
def test_machines_that_are_carried_along_can_be_read(name):
    assert load_calibration(name).hbm_gbps > 0


def changed(folder, base, tmp_path, **fields):
    document = yaml.safe_load(locate(folder, base).read_text())
    for field, value in fields.items():
        if value is None:
            del document[field]
        else:
            document[field] = value
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize(
    ("fields", "named", "accepted"),
    [
        ({"layers": None}, "layers", "missing"),
        ({"layers": {"value": 0, "source": "x"}}, "layers", "a whole number of at least 1"),
        ({"layers": {"value": 6.5, "source": "x"}}, "layers", "a whole number"),
        ({"layers": {"value": "many", "source": "x"}}, "layers", "a whole number"),
        ({"layers": {"value": 61}}, "layers", "a source that is not empty"),
        ({"layer": {"value": 61, "source": "x"}}, "layer", "no such field"),
        ({"attention": {"value": "sparse", "source": "x"}}, "attention", "latent or grouped"),
        ({"kv_heads": {"value": 7, "source": "x"}}, "kv_heads", "a divisor of the 128 heads"),
        ({"experts_per_token": {"value": 257, "source": "x"}}, "experts_per_token", "at most the 256"),
        ({"dense_layers": {"value": 61, "source": "x"}}, "dense_layers", "fewer than the 61"),
        ({"parameters_active": {"value": 1e12, "source": "x"}}, "parameters_active", "at most parameters_total"),
        ({"layers": {"value": float("inf"), "source": "x"}}, "layers", "a whole number"),
        ({"layers": {"value": float("nan"), "source": "x"}}, "layers", "a whole number"),
        ({"parameters_total": {"value": 10**400, "source": "x"}}, "parameters_total", "a number"),
        ({"name": ["deepseek-r1"]}, "name", "must be a string that is not empty"),
        ({"name": 7}, "name", "must be a string that is not empty"),
    ],
)
def test_a_model_with_an_error_is_refused_with_the_field(tmp_path, fields, named, accepted):
    with pytest.raises(BadDataFile, match=accepted) as refused:
        read_model(changed("models", "deepseek-r1", tmp_path, **fields))
    assert refused.value.field == named


@pytest.mark.parametrize(
    ("fields", "named", "accepted"),
    [
        ({"hbm_gbps": None}, "hbm_gbps", "missing"),
        ({"hbm_gbps": {"value": -1, "unit": "x", "kind": "assumed", "source": "x"}}, "hbm_gbps", "at least 0"),
        ({"hbm_gbps": {"value": 1, "kind": "assumed", "source": "x"}}, "hbm_gbps", "unit"),
        ({"hbm_gbps": {"value": 1, "unit": "x", "kind": "guess", "source": "x"}}, "hbm_gbps", "published, derived"),
        (
            {"hbm_gbps": {"value": 1, "unit": "x", "kind": "assumed", "source": "x", "range": [2, 3]}},
            "hbm_gbps",
            "outside its range",
        ),
        (
            {"hbm_gbps": {"value": 1, "unit": "x", "kind": "assumed", "source": "x", "range": 5}},
            "hbm_gbps",
            "two numbers",
        ),
        (
            {"hbm_gbps": {"value": 1, "unit": "x", "kind": "assumed", "source": "x", "range": ["low", 5]}},
            "hbm_gbps",
            "two numbers",
        ),
        (
            {"hbm_gbps": {"value": "fast", "unit": "x", "kind": "assumed", "source": "x", "range": [1, 5]}},
            "hbm_gbps",
            "a number of at least",
        ),
        (
            {"hbm_gbps": {"value": float("inf"), "unit": "x", "kind": "assumed", "source": "x"}},
            "hbm_gbps",
            "a number of at least",
        ),
        (
            {"paper_nodes": {"value": 12, "unit": "x", "kind": "assumed", "source": "x"}},
            "paper_prefill_nodes",
            "fewer than the 12",
        ),
        (
            {"prefill_tokens_per_npu": {"value": 1, "unit": "x", "kind": "assumed", "source": "x"}},
            "prefill_tokens_per_npu",
            "at least the 2",
        ),
        ({"hbm": {"value": 1, "unit": "x", "kind": "assumed", "source": "x"}}, "hbm", "no such constant"),
    ],
)
def test_a_machine_with_an_error_is_refused_with_the_field(tmp_path, fields, named, accepted):
    with pytest.raises(BadDataFile, match=accepted) as refused:
        entries(changed("machines", "cloudmatrix384", tmp_path, **fields))
    assert refused.value.field == named


def assumed(value):
    return {"value": value, "unit": "x", "kind": "assumed", "source": "x"}


NO_PLANE = {"rdma_node_gbps", "ub_uplink_gbps", "vpc_node_gbps"}
"""Of a machine that lacks one, what it takes to serve is refused elsewhere."""


@pytest.mark.parametrize("field", sorted(field.name for field in fields(Calibration)))
def test_a_constant_of_nothing_is_refused_or_served_with(tmp_path, field):
    """What a machine cannot do without is refused with its field; with the least of all else everybody is served."""
    least = AT_LEAST.get(field, 0)
    if field in AT_LEAST or field in ABOVE_ZERO:
        wrong = changed("machines", "cloudmatrix384", tmp_path, **{field: assumed(max(0, least - 1))})
        with pytest.raises(BadDataFile, match=r"above 0|of at least") as refused:
            entries(wrong)
        assert refused.value.field == field
    if field in ABOVE_ZERO | NO_PLANE or field == "nodes_per_prefill_instance":
        return
    more = {"paper_nodes": "paper_prefill_nodes", "prefill_tokens_per_npu": "dies_per_npu"}
    fewest = {more[field]: assumed(1)} if field in more else {}
    path = changed("machines", "cloudmatrix384", tmp_path, **{field: assumed(least)}, **fewest)
    report = run(trial_of({"generate": 3, "nodes": 8, "machine": path})).report
    assert report.finished == 3


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(UnknownDataFile, match="available: deepseek-r1"):
        read_model("gpt")
    with pytest.raises(UnknownDataFile, match="atlas-800i-a2, atlas-950, cloudmatrix384"):
        entries("abacus")


def test_text_that_is_not_a_mapping_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    for wrong in ("- 1\n", "a: [\n"):
        path.write_text(wrong)
        with pytest.raises(BadDataFile):
            read_model(str(path))


@pytest.mark.parametrize(
    ("text", "why"), [("[" * 300_000, "not YAML"), ("a: [", "not YAML"), ("- layers", "a mapping of fields")]
)
def test_a_file_that_is_no_mapping_is_refused_however_deep_it_nests(tmp_path, text, why):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    for read in (read_model, load_calibration):
        with pytest.raises(BadDataFile, match=why):
            read(str(file))
