"""What is no YAML is refused in one line, by whoever reads a file of its user's."""

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.yaml_text import InvalidYaml, packaged_yaml, parse_documents, parse_yaml
from matrixresource.agent.agent import node_stages
from matrixresource.topology.loading import InvalidSpec, load_spec

INVALID_TEXTS = {
    "nothing closes it": "a: [",
    "it nests without end": "[" * 300_000,
    "braces nest without end": "{a: " * 300_000,
    "blocks nest without end": "- " * 300_000,
    "a day that no month has": "a: 2026-02-31",
    "a tag of Python's": "!!python/object:os.system x",
    "a tab": "\ta: 1",
}


@pytest.mark.parametrize("text", INVALID_TEXTS.values(), ids=INVALID_TEXTS)
def test_invalid_yaml_is_refused_in_one_line(text, tmp_path):
    for read in (parse_yaml, parse_documents):
        with pytest.raises(InvalidYaml) as refused:
            read(text)
        assert 0 < len(str(refused.value)) <= 300
        assert "\n" not in str(refused.value)
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(InvalidField, match="is not valid YAML") as stages:
        node_stages(file)
    assert stages.value.field == "stages"
    with pytest.raises(InvalidSpec, match="is not valid YAML"):
        load_spec(file)


def test_realistic_nesting_is_parsed():
    value = parse_yaml("[" * 100 + "]" * 100)
    assert sum(1 for _ in _levels(value)) == 100


def _levels(value):
    while isinstance(value, list):
        yield value
        value = value[0] if value else None


def test_packaged_tables_are_read_by_name():
    assert packaged_yaml("matrixresource.topology", "cloudmatrix384.yaml")["supernode"]
    assert parse_documents("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
