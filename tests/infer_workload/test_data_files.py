"""Models and machines are files; one with an error is refused with the field's name."""

import pytest
import yaml

from infer_workload.timing.calibration import entries, load_calibration
from infer_workload.timing.data_files import BadDataFile, UnknownDataFile, located, names
from infer_workload.timing.model import read_model


@pytest.mark.parametrize("name", names("models"))
def test_models_that_are_carried_along_can_be_read(name):
    assert read_model(name).name == name


@pytest.mark.parametrize("name", names("machines"))
def test_machines_that_are_carried_along_can_be_read(name):
    assert load_calibration(name).hbm_gbps > 0


def changed(folder, base, tmp_path, **fields):
    document = yaml.safe_load(located(folder, base).read_text())
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
        ({"layers": {"value": 61}}, "layers", "the source not empty"),
        ({"layer": {"value": 61, "source": "x"}}, "layer", "no such field"),
        ({"attention": {"value": "sparse", "source": "x"}}, "attention", "latent or grouped"),
        ({"kv_heads": {"value": 7, "source": "x"}}, "kv_heads", "a divisor of the 128 heads"),
        ({"experts_per_token": {"value": 257, "source": "x"}}, "experts_per_token", "at most the 256"),
        ({"dense_layers": {"value": 61, "source": "x"}}, "dense_layers", "fewer than the 61"),
        ({"parameters_active": {"value": 1e12, "source": "x"}}, "parameters_active", "at most parameters_total"),
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
        ({"hbm": {"value": 1, "unit": "x", "kind": "assumed", "source": "x"}}, "hbm", "no such constant"),
    ],
)
def test_a_machine_with_an_error_is_refused_with_the_field(tmp_path, fields, named, accepted):
    with pytest.raises(BadDataFile, match=accepted) as refused:
        entries(changed("machines", "cloudmatrix384", tmp_path, **fields))
    assert refused.value.field == named


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(UnknownDataFile, match="there are deepseek-r1"):
        read_model("gpt")
    with pytest.raises(UnknownDataFile, match="atlas-800i-a2, atlas-950, cloudmatrix384"):
        entries("abacus")


def test_text_that_is_not_a_mapping_is_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    for wrong in ("- 1\n", "a: [\n"):
        path.write_text(wrong)
        with pytest.raises(BadDataFile):
            read_model(str(path))
