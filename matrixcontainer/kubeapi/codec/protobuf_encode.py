"""Answers in protobuf for clients that take nothing else: built-in kinds, their lists, Status, partial metadata.

The other direction of protobuf_decode.py, from the same generated table. Whoever also takes JSON gets JSON: it is
stored as text and needs no encoding.
"""

import base64
import struct
from typing import Any

import orjson

from matrixcontainer.kubeapi.codec.protobuf_decode import MAGIC, type_name
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp
from matrixcontainer.kubeapi.schema.types import Row, rows_of

META_GROUP = "meta.k8s.io/"
VARINTS = ("int32", "int64", "int", "uint32", "bool")

Obj = dict[str, Any]


class NoProtobufForm(Exception):
    """The kind is no built-in one."""


def encode_body(obj: Obj) -> bytes:
    """Magic, envelope and message; raises NoProtobufForm for a kind that has none."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    meta = _block(1, api_version.encode()) + _block(2, kind.encode())
    raw = _list_or_one(obj, api_version, kind)
    return MAGIC + _block(1, meta) + _block(2, raw) + _block(3, b"") + _block(4, b"")


def _list_or_one(obj: Obj, api_version: str, kind: str) -> bytes:
    items = obj.get("items")
    if not isinstance(items, list) or not kind.endswith("List"):
        return encode_message(obj, _message_name(api_version, kind))
    inner = _message_name(api_version, kind.removesuffix("List"))
    parts = [_block(1, encode_message(obj.get("metadata") or {}, "meta.v1.ListMeta"))]
    return b"".join(parts + [_block(2, encode_message(item, inner)) for item in items])


def _message_name(api_version: str, kind: str) -> str:
    if kind == "Status" and api_version == "v1":
        return "meta.v1.Status"
    if kind == "PartialObjectMetadata" and api_version.startswith(META_GROUP):
        return PARTIAL
    if name := type_name(api_version, kind):
        return name
    raise NoProtobufForm(kind)


PARTIAL = "partial"


def encode_message(obj: Obj, name: str) -> bytes:
    """One message; what the object does not say is left out."""
    if name == PARTIAL:
        return _block(1, encode_message(obj.get("metadata") or {}, "meta.v1.ObjectMeta"))
    parts = []
    for row in rows_of(name):
        if not row[0]:
            if inlined := encode_message(obj, row[2]):
                parts.append(_block(row[1], inlined))
        elif (value := obj.get(row[0])) is not None:
            parts.append(_encode_field(value, row))
    return b"".join(parts)


def _encode_field(value: Any, row: Row) -> bytes:
    number, kind = row[1], row[2]
    if kind.startswith("[]"):
        return b"".join(_encode_value(number, item, kind[2:]) for item in value)
    if kind.startswith("map:"):
        inner = kind[4:]
        pairs = ((_block(1, key.encode()) + _encode_value(2, current, inner)) for key, current in value.items())
        return b"".join(_block(number, pair) for pair in pairs)
    return _encode_value(number, value, kind)


def _encode_value(number: int, value: Any, kind: str) -> bytes:
    """Tag and value of one field."""
    if kind in VARINTS:
        return _varint(number << 3) + _varint(int(value) & (1 << 64) - 1)
    if kind == "float64":
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _block(number, _content(value, kind))


def _content(value: Any, kind: str) -> bytes:
    if kind == "string":
        return str(value).encode()
    if kind == "bytes":
        return base64.b64decode(value)
    if kind in ("time", "microtime"):
        return _time(value)
    if kind == "duration":
        return _encode_value(1, round(float(str(value).rstrip("s")) * 1e9), "int64")
    if kind == "quantity":
        return _block(1, str(value).encode())
    if kind == "intorstring":
        if isinstance(value, str):
            return _encode_value(1, 1, "int64") + _encode_value(2, 0, "int32") + _block(3, value.encode())
        return _encode_value(1, 0, "int64") + _encode_value(2, value, "int32") + _block(3, b"")
    if kind in ("fields", "raw", "json"):
        return _block(1, orjson.dumps(value))
    if kind.startswith("wrapped:"):
        return b"".join(_encode_value(1, item, kind[8:]) for item in value)
    return encode_message(value, kind)


def _time(text: str) -> bytes:
    moment = parse_timestamp(text)
    seconds = int(moment // 1)
    nanos = round((moment - seconds) * 1e6) * 1000
    return _encode_value(1, seconds, "int64") + _encode_value(2, nanos, "int32")


def _block(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
