"""Decoding of protobuf request bodies of built-in kinds to the JSON form that the server uses.

Generated Go clients send built-in objects in protobuf and never fall back; as all of them accept JSON responses,
nothing is encoded in protobuf. A body is the magic `k8s\\0` and a runtime.Unknown message: TypeMeta{apiVersion, kind},
the raw message, two encodings. Field numbers come from the generated type table. What Go's JSON omits is omitted here:
absent pointers, and zero values of `omitempty` fields. Wire format: public Protocol Buffers encoding document;
messages: k8s.io/api (Apache-2.0).
"""

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from matrixcontainer.kubeapi.meta.errors import bad_request
from matrixcontainer.kubeapi.meta.timestamps import FIRST, LAST
from matrixcontainer.kubeapi.schema.types import Row, rows_of, table

MAGIC = b"k8s\0"


def type_name(api_version: str, kind: str) -> str:
    """Name of a kind in the type table, such as `apps.v1.Deployment` for apps/v1 Deployment; "" if unknown."""
    if kind == "DeleteOptions":
        return "meta.v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    ours = "." not in group or group.endswith(".k8s.io")
    name = f"{group.partition('.')[0] or 'core'}.{version}.{kind}"
    return name if ours and name in table() else ""


def decode_body(body: bytes) -> dict[str, Any]:
    """Decode a protobuf request body, including apiVersion and kind. Raises ApiError 400 if it is invalid."""
    if not body.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix k8s\\x00")
    try:
        envelope = dict(read_fields(body[len(MAGIC) :]))
        meta = dict(read_fields(envelope.get(1, b"")))
        api_version, kind = meta.get(1, b"").decode(), meta.get(2, b"").decode()
        name = type_name(api_version, kind)
        if not name:
            raise bad_request(f"protobuf is not supported for {api_version}, Kind={kind}")
        return {"kind": kind, "apiVersion": api_version} | decode_message(envelope.get(2, b""), name)
    except (IndexError, ValueError, struct.error, TypeError, AttributeError) as failure:
        raise bad_request(f"unable to decode the protobuf body: {failure}") from failure


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def read_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value): int for varints, otherwise bytes. Raises ValueError or IndexError if truncated."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = read_varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("message is truncated")
        yield number, data[at : at + size]
        at += size


def decode_message(data: bytes, name: str) -> dict[str, Any]:
    """Decode a message to a JSON object, with fields in the order of the table."""
    raw: dict[int, list[Any]] = {}
    for number, value in read_fields(data):
        raw.setdefault(number, []).append(value)
    fields_by_number: dict[str, Any] = {}
    for row in rows_of(name):
        values = raw.get(row[1])
        if values is None:
            continue
        if not row[0]:
            fields_by_number |= decode_message(values[-1], row[2])
            continue
        value = _decode_field(values, row)
        if value is not None:
            fields_by_number[row[0]] = value
    return fields_by_number


def _decode_field(values: list[Any], row: Row) -> Any:
    kind, flags = row[2], row[3]
    if kind.startswith("[]"):
        return [_decode_value(value, kind[2:]) for value in values]
    if kind.startswith("map:"):
        pairs = (dict(read_fields(value)) for value in values)
        inner = kind[4:]
        empty = 0 if inner in ("int32", "int64", "bool") else b""
        return {pair.get(1, b"").decode(): _decode_value(pair.get(2, empty), inner) for pair in pairs}
    value = _decode_value(values[-1], kind)
    if "p" not in flags and ("o" in flags or kind in ("time", "microtime") or "." in kind) and is_zero(value):
        return None
    return value


def is_zero(value: Any) -> bool:
    return value is None or value == "" or value == 0 or value is False or value == {} or value == []


def _decode_value(value: Any, kind: str) -> Any:
    if kind == "string":
        return value.decode()
    if kind == "bool":
        return bool(value)
    if kind in ("int32", "int64", "int"):
        return value - (1 << 64) if value >= 1 << 63 else value
    if kind == "uint32":
        return value
    if kind == "float64":
        return struct.unpack("<d", value)[0]
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in ("time", "microtime"):
        return _decode_time(value, kind)
    if kind == "duration":
        nanos = dict(read_fields(value)).get(1, 0)
        return f"{nanos / 1e9:g}s"
    if kind == "quantity":
        return dict(read_fields(value)).get(1, b"0").decode()
    if kind == "intorstring":
        parts = dict(read_fields(value))
        return parts.get(3, b"").decode() if parts.get(1) else _decode_value(parts.get(2, 0), "int32")
    if kind in ("fields", "raw", "json"):
        return _decode_json(dict(read_fields(value)).get(1, b"null"))
    if kind.startswith("wrapped:"):
        return [_decode_value(item, kind[8:]) for _, item in read_fields(value)]
    return decode_message(value, kind)


def _decode_time(value: bytes, kind: str) -> str | None:
    parts = dict(read_fields(value))
    seconds = _decode_value(parts.get(1, 0), "int64")
    nanos = _decode_value(parts.get(2, 0), "int64")
    if not seconds and not nanos:
        return None
    if not FIRST <= seconds <= LAST:
        raise ValueError(f"{seconds} seconds are outside of years 1 to 9999")
    moment = datetime.fromtimestamp(seconds, UTC)
    if kind == "time":
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{nanos // 1000:06d}Z"


def _decode_json(raw: bytes) -> Any:
    import json

    return json.loads(raw) if raw else None
