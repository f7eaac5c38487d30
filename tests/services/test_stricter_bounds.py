"""A later release whose bounds nothing that is stored keeps to: all of it is still read, listed and worked with.

Every bound of every contract is made impossible after a stack has been furnished, as if a release with other bounds had
been started over its databases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import SchemaValidator

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.stored import BOUNDS, OPAQUE, stored_validator
from tests.services.every_route import every_request
from tests.services.furnished import MARK, furnished_stack
from tests.small_stack import SmallStack

PACKAGES = ("matrixcommon", "matrixresource", "matrixlink", "matrixcompute", "infer_workload")
NOTHING = {"str": {"max_length": 0}, "int": {"lt": -(10**12)}, "float": {"lt": -1e300}, "list": {"max_length": 0}}
"""What no value in the furnished stack keeps to, by the type of what has a bound."""


def models() -> list[type[ApiModel]]:
    """All of them."""
    for package in PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.rpartition(".")[2].startswith("__"):
                import_module(module.name)

    def below(model: type[ApiModel]) -> Iterator[type[ApiModel]]:
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    found = {each for each in below(ApiModel) if each.__module__.startswith(PACKAGES)}
    for each in found:
        each.model_rebuild()
    return sorted(found, key=lambda each: (each.__module__, each.__qualname__))


def impossible(schema: Any) -> Any:
    """The schema with bounds that nothing keeps to wherever there is one."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(impossible, schema))
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    bounded = isinstance(kind, str) and not BOUNDS.isdisjoint(schema)
    kept = {
        name: inner if isinstance(kind, str) and name in OPAQUE else impossible(inner)
        for name, inner in schema.items()
        if not (bounded and name in BOUNDS)
    }
    return kept | (NOTHING.get(str(kind), {}) if bounded else {})


MODELS = models()
READ_ONE_BY_ONE = {"NodeReports", "LinkReports"}
"""What agents send: a report that cannot be read is another thing, which is not read back."""


def beyond(document: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> Any:
    """A value of the structure that a JSON schema declares, at no place within its bounds."""
    if reference := schema.get("$ref"):
        schema = document["$defs"][reference.rpartition("/")[2]]
    if "const" in schema or "enum" in schema:
        return schema.get("const", *schema.get("enum", ())[:1])
    if choices := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        kinds = [each for each in choices if each.get("type") != "null"]
        return None if len(kinds) < len(choices) and depth > 8 else beyond(document, kinds[0], depth + 1)
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {})
        asked = fields if depth <= 8 else schema.get("required", ())
        made = {name: beyond(document, fields[name], depth + 1) for name in asked}
        more, keys = schema.get("additionalProperties"), schema.get("propertyNames", {})
        key = beyond(document, keys, depth + 1) if "enum" in keys or "$ref" in keys else "9" * 400  # may be a number
        return made | ({key: beyond(document, more, depth + 1)} if isinstance(more, dict) else {})
    if kind == "array":
        if prefix := schema.get("prefixItems"):
            return [beyond(document, each, depth + 1) for each in prefix]
        if schema.get("minItems"):
            return []
        item = beyond(document, schema["items"], depth + 1) if schema.get("items") else "~"
        return [item] * (schema.get("maxItems", 0) + 1 if schema.get("maxItems", 0) <= 16 and depth < 4 else 1)
    if kind in ("integer", "number"):
        return -(10**9) if {"minimum", "exclusiveMinimum"} & schema.keys() else 10**15
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    return "~" * (schema.get("maxLength", 300) + 1)


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.__qualname__)
def test_what_is_beyond_every_bound_is_read_as_it_was_stored(model: type[ApiModel]) -> None:
    schema = model.model_json_schema()
    document = beyond(schema, schema)
    found = model.from_stored(document)
    again = json.loads(found.text())
    if model.__qualname__ not in READ_ONE_BY_ONE:
        assert model.from_stored(again).wire() == again


def test_most_of_those_are_refused_when_they_are_asked_for() -> None:
    refused = []
    for model in MODELS:
        schema = model.model_json_schema()
        try:
            model.model_validate(beyond(schema, schema))
        except (ValidationError, MatrixError):
            refused.append(model)
    assert len(refused) > len(MODELS) / 3


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.__qualname__)
def test_another_structure_is_refused_all_the_same(model: type[ApiModel]) -> None:
    schema = model.model_json_schema()
    whole = beyond(schema, schema)
    with pytest.raises(ValidationError):
        model.from_stored([whole])
    if model.model_config.get("extra") == "forbid":
        with pytest.raises(ValidationError):
            model.from_stored({**whole, "noSuchField": 1})
    for name, inner in schema.get("properties", {}).items():
        if inner.get("type") in ("integer", "number", "boolean"):
            with pytest.raises(ValidationError):
                model.from_stored({**whole, name: "a text"})


@pytest.mark.timeout(600)
@pytest.mark.looptime
async def test_everything_stored_is_listed_and_read_and_services_start_with_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with furnished_stack(tmp_path, SmallStack) as (stack, names):
        headers = {"Authorization": f"Bearer {stack.token('admin', MARK)}"}
        gets = [each for each in every_request(stack, names) if each.rule.method == "GET"]

        async def read_everything() -> dict[str, Any]:
            found = {}
            for each in gets:
                params = {**each.query, **each.of(MARK)}
                answer = await stack.http[each.service].get(each.path, headers=headers, params=params)
                found[f"{each.service} {each.path}"] = answer.status_code
            return found

        before = await read_everything()
        with monkeypatch.context() as stricter:
            for model in MODELS:
                stored_validator(model)  # of the schema as it is
                validator = SchemaValidator(impossible(model.__pydantic_core_schema__), _use_prebuilt=False)
                stricter.setattr(model, "__pydantic_validator__", validator)
            assert await read_everything() == before
            for service in ("resource", "link", "compute", "infer"):
                if service in stack.services:
                    await stack.restart(service)
            assert await read_everything() == before
