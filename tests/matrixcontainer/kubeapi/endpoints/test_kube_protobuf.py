"""Protobuf bodies that hold what no object may: refused, never a mistake of the server."""

import pytest

from matrixcontainer.kubeapi.codec.protobuf_decode import MAGIC, decode_body
from matrixcontainer.kubeapi.meta.errors import ApiError


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def a_pod_created_at(seconds: int) -> bytes:
    created = message(8, varint(1 << 3) + varint(seconds))
    kind = message(1, b"v1") + message(2, b"Pod")
    return MAGIC + message(1, kind) + message(2, message(1, message(1, b"p") + created))


def test_a_time_is_read() -> None:
    assert decode_body(a_pod_created_at(86_400))["metadata"]["creationTimestamp"] == "1970-01-02T00:00:00Z"
    assert decode_body(a_pod_created_at(-1))["metadata"]["creationTimestamp"] == "1969-12-31T23:59:59Z"


@pytest.mark.parametrize("seconds", [2**62, 2**63 - 1, -(2**63), 253_402_300_800, -62_135_596_801])
def test_a_time_beyond_all_years_is_refused(seconds: int) -> None:
    with pytest.raises(ApiError) as refused:
        decode_body(a_pod_created_at(seconds))
    assert (refused.value.code, "unable to decode the protobuf body" in refused.value.message) == (400, True)
