"""Decoding checks of a CRD's openAPIV3Schema: what decoding into its Go type would detect.

Unknown keywords are dropped and reported; a keyword of the wrong type raises 400.
"""

from typing import Any

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.schema.validation import type_of

SCHEMA, SCHEMAS, BY_NAME, WORDS, RULES = (
    "a schema",
    "a list of schemas",
    "schemas by name",
    "a list of strings",
    "rules",
)

KEYWORDS: dict[str, type | tuple[type, ...] | str] = {
    **dict.fromkeys(("items", "not", "additionalProperties", "additionalItems"), SCHEMA),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "definitions", "dependencies"), BY_NAME),
    **dict.fromkeys(
        (
            "id", "$schema", "$ref", "type", "format", "title", "description", "pattern", "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ),
        str,
    ),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), WORDS),
    **dict.fromkeys(
        (
            "nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum", "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
        ),
        bool,
    ),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), int),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), (int, float)),
    **dict.fromkeys(("default", "example"), object),
    "enum": list,
    "externalDocs": dict,
    "x-kubernetes-validations": RULES,
}  # fmt: skip
RULE: dict[str, type | tuple[type, ...] | str] = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), str),
    "optionalOldSelf": bool,
}


def require_types(node: Any, path: str, unknown: list[str], keywords: dict[str, Any] = KEYWORDS) -> None:
    """Raise ApiError 400 on a wrong type. Drops nulls and unknown keywords; appends the latter's paths to `unknown`."""
    _require_type(node, dict, path)
    for key, value in list(node.items()):
        where = f"{path}.{key}"
        if value is None:
            del node[key]
        elif key not in keywords:
            del node[key]
            unknown.append(where)
        else:
            _check_keyword(key, keywords[key], value, where, unknown)


def _check_keyword(key: str, kind: Any, value: Any, where: str, unknown: list[str]) -> None:
    if kind == WORDS:
        for word in _require_type(value, list, where):
            _require_type(word, str, where)
    elif kind == BY_NAME:
        for name, part in _require_type(value, dict, where).items():
            if not (key == "dependencies" and isinstance(part, list)):
                require_types(part, f"{where}.{name}", unknown)
    elif kind in (SCHEMAS, RULES) or (key == "items" and isinstance(value, list)):
        for index, part in enumerate(_require_type(value, list, where)):
            require_types(part, f"{where}[{index}]", unknown, RULE if kind == RULES else KEYWORDS)
    elif kind == SCHEMA:
        if not (key.startswith("additional") and isinstance(value, bool)):
            require_types(value, where, unknown)
    else:
        _require_type(value, kind, where)


def _require_type(value: Any, kind: Any, where: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise errors.bad_request(
            'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition: '
            f"json: cannot unmarshal {type_of(value)} into field {where}"
        )
    return value
