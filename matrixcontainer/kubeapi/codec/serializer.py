"""Parsing of request bodies in JSON, YAML or protobuf, with detection of duplicate keys for field validation."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.codec.yaml_decode import read_yaml
from matrixcontainer.kubeapi.meta.errors import bad_request, unsupported_media_type

JSON_TYPES = ("application/json", "text/json", "")
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
APPLY = "application/apply-patch+yaml"
LARGE_BODY_BYTES = 32 * 1024
PROTOBUF = "application/vnd.kubernetes.protobuf"

INT64 = 2**63


def parse_body(body: bytes, media_type: str, duplicates: list[str]) -> Any:
    """Parse a body and append the paths of duplicate keys. Raises 400 if malformed, 415 for another media type."""
    if media_type in JSON_TYPES:
        return parse_json(body, duplicates)
    if media_type in YAML_TYPES:
        return parse_yaml(body, duplicates)
    if media_type == PROTOBUF:
        from matrixcontainer.kubeapi.codec.protobuf_decode import decode_body

        return decode_body(body)
    raise unsupported_media_type(["application/json", "application/yaml", PROTOBUF])


def _integer(text: str) -> int | float:
    """An integer; one that does not fit into int64 becomes a float, as in upstream's decoder."""
    value = int(text) if len(text) < 40 else _finite(text)
    return value if -INT64 <= value < INT64 else float(text)


def _number(text: str) -> int | float:
    """A number with a point or exponent; integral ones become integers, as they would be serialised."""
    value = _finite(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text[:40]} is out of range")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"invalid character in {text!r} looking for beginning of value")


class _DuplicateKey(Exception):
    """An object has a duplicate key."""


def _unique_keys(found: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(found)
    if len(result) < len(found):
        raise _DuplicateKey
    return result


def _decoder(pairs: Callable[[list[tuple[str, Any]]], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=pairs, parse_int=_integer, parse_float=_number, parse_constant=_constant)


class _Pairs(list[tuple[str, Any]]):
    pass


WITHOUT_REPETITION, WITH_REPETITION, AS_PAIRS = _decoder(_unique_keys), _decoder(dict), _decoder(_Pairs)


def parse_json(body: bytes, duplicates: list[str]) -> Any:
    repeated = False
    try:
        text = body.decode()
        if text.startswith("\ufeff"):
            raise ValueError("it starts with a byte order mark")
        try:
            value = WITHOUT_REPETITION.decode(text)
        except _DuplicateKey:
            repeated, value = True, WITH_REPETITION.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as failure:
        raise bad_request(f"couldn't parse the body as JSON: {failure}") from failure
    if repeated:
        _find_repeated(AS_PAIRS.decode(text), "", duplicates)
    return value


def _find_repeated(node: Any, path: str, repeated: list[str]) -> None:
    if isinstance(node, _Pairs):
        seen = set()
        for key, value in node:
            inner = f"{path}.{key}" if path else key
            if key in seen:
                repeated.append(inner)
            seen.add(key)
            _find_repeated(value, inner, repeated)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            _find_repeated(item, f"{path}[{index}]", repeated)


def parse_yaml(body: bytes, duplicates: list[str]) -> Any:
    """Parse YAML; a body that looks like JSON is parsed as JSON."""
    if body.lstrip()[:1] in (b"{", b"["):
        return parse_json(body, duplicates)
    try:
        return read_yaml(body, duplicates)
    except ValueError as failure:
        raise bad_request(f"error parsing YAML: {failure}") from failure


async def parse_large(body: bytes, media_type: str, duplicates: list[str]) -> Any:
    """As `parse_body`, but parse a large YAML body in a thread: it takes seconds and must not block other requests."""
    if len(body) > LARGE_BODY_BYTES and (media_type in YAML_TYPES or media_type == APPLY):
        return await asyncio.to_thread(parse_yaml, body, duplicates)
    return parse_yaml(body, duplicates) if media_type == APPLY else parse_body(body, media_type, duplicates)
