"""Whether the openAPIV3Schema of a CRD is even shaped like one, as decoding it into its type would find out.

What a schema has no keyword for is dropped and reported; a keyword of a wrong type is a 400 in the words of Go's
decoder.
"""

import re
from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.schema.validation import type_of

SCHEMA, SCHEMAS, BY_NAME, RULES = "v1.JSONSchemaProps", "[]v1.JSONSchemaProps", "map[string]v1.JSONSchemaProps", "rules"
TEXT, TEXTS, FLAG, COUNT, NUMBER, LIST, ANYTHING = "string", "[]string", "bool", "int64", "float64", "[]v1.JSON", ""
DOCS = "v1.ExternalDocumentation"

KEYWORDS: dict[str, str] = {
    **dict.fromkeys(("items", "not", "additionalProperties", "additionalItems"), SCHEMA),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "definitions", "dependencies"), BY_NAME),
    **dict.fromkeys(
        (
            "id", "$schema", "$ref", "type", "format", "title", "description", "pattern", "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ),
        TEXT,
    ),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), TEXTS),
    **dict.fromkeys(
        (
            "nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum", "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
        ),
        FLAG,
    ),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNT),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), NUMBER),
    **dict.fromkeys(("default", "example"), ANYTHING),
    "enum": LIST,
    "externalDocs": DOCS,
    "x-kubernetes-validations": RULES,
}  # fmt: skip
NAMED = re.compile(r"\[([^\]\d][^\]]*)\]")  # entries of maps, which reported paths name as fields
RULE_WORDS = {"rule": TEXT, "message": TEXT, "messageExpression": TEXT, "reason": TEXT, "fieldPath": TEXT}
RULE_WORDS |= {"optionalOldSelf": FLAG}
PYTHON: dict[str, type] = {TEXT: str, FLAG: bool, LIST: list, SCHEMAS: list, BY_NAME: dict, TEXTS: list}


def demand_shape(node: Any, path: str, unknown: list[str]) -> None:
    """Raises ApiError 400 on a wrong type; drops nulls, and unknown keywords, whose paths are appended."""
    if not isinstance(node, dict):
        raise _misshapen(path, node, SCHEMA)
    for key, value in list(node.items()):
        where = f"{path}.{key}"
        if value is None:
            del node[key]
        elif key not in KEYWORDS:
            del node[key]
            unknown.append(NAMED.sub(r".\1", where))
        else:
            _demand_keyword(key, value, where, unknown)


def _demand_keyword(key: str, value: Any, where: str, unknown: list[str]) -> None:
    kind = KEYWORDS[key]
    if kind == SCHEMA:
        if key == "items" and isinstance(value, list):
            for index, part in enumerate(value):
                demand_shape(part, f"{where}[{index}]", unknown)
        elif key in ("items", "not") or not isinstance(value, bool):
            demand_shape(value, where, unknown)
    elif kind in (COUNT, NUMBER):
        if isinstance(value, bool) or not isinstance(value, int if kind == COUNT else (int, float)):
            raise _misshapen(where, value, kind)
    elif kind == RULES:
        for index, rule in enumerate(_demand(value, "[]v1.ValidationRule", list, where)):
            _demand_words(_demand(rule, "v1.ValidationRule", dict, where), RULE_WORDS, f"{where}[{index}]", unknown)
    elif kind == DOCS:
        words = {"description": TEXT, "url": TEXT}
        _demand_words(_demand(value, DOCS, dict, where), words, where, unknown)
    elif kind != ANYTHING:
        _demand(value, kind, PYTHON[kind], where)
        if kind == TEXTS:
            for word in value:
                _demand(word, TEXT, str, where)
        elif kind == SCHEMAS:
            for index, part in enumerate(value):
                demand_shape(part, f"{where}[{index}]", unknown)
        elif kind == BY_NAME:
            for name, part in value.items():
                if not (key == "dependencies" and isinstance(part, list)):
                    demand_shape(part, f"{where}[{name}]", unknown)


def _demand_words(current: dict[str, Any], words: dict[str, str], path: str, unknown: list[str]) -> None:
    for word, value in list(current.items()):
        if value is None:
            del current[word]
        elif word not in words:
            del current[word]
            unknown.append(NAMED.sub(r".\1", f"{path}.{word}"))
        else:
            _demand(value, words[word], PYTHON[words[word]], f"{path}.{word}")


def _demand(value: Any, kind: str, python: type, path: str) -> Any:
    if not isinstance(value, python):
        raise _misshapen(path, value, kind)
    return value


def _misshapen(path: str, value: Any, kind: str) -> errors.ApiError:
    text = {"boolean": "bool", "integer": "number"}.get(type_of(value), type_of(value))
    field = "".join(part.partition("]")[2] if place else part for place, part in enumerate(path.split("[")))
    owner = "ValidationRule" if "x-kubernetes-validations." in field else "JSONSchemaProps"
    return errors.bad_request(
        'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
        f"json: cannot unmarshal {text} into Go struct field {owner}.{field} of type {kind}"
    )
