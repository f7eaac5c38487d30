"""Bodies of requests that are relayed before anybody knows who sent them: bounded each and together, and given back at the end."""

import pytest
from starlette.requests import Request

from matrixcommon.model.errors import Malformed, TooLarge, Unavailable, UnsupportedEncoding
from services.chassis.http_server.request_bodies import BODY_LIMIT_BYTES, RelayedBodies


def request(*pieces, disconnects=False):
    """A request whose body comes in these pieces; its client is gone before the end if `disconnects`."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.disconnect"} if disconnects else {"type": "http.request", "body": b""})

    async def receive():
        return messages.pop(0)

    return Request(
        {"type": "http", "method": "POST", "path": "/", "headers": [(b"transfer-encoding", b"chunked")]}, receive
    )


async def test_a_body_is_kept_until_the_end_of_the_block():
    bodies = RelayedBodies()
    async with bodies.read(request(b"ab", b"c")) as body:
        assert (body, bodies.buffered_bytes) == (b"abc", 3)
    assert bodies.buffered_bytes == 0


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (request(b"x" * BODY_LIMIT_BYTES, b"x"), TooLarge),
        (request(b"ab", disconnects=True), Malformed),
    ],
    ids=["too large", "cut off"],
)
async def test_what_is_refused_leaves_nothing_behind(asked, refusal):
    bodies = RelayedBodies()
    with pytest.raises(refusal):
        async with bodies.read(asked):
            raise AssertionError("it has a body")
    assert bodies.buffered_bytes == 0


@pytest.mark.parametrize("encoding", ["gzip", "identity, br", "GZIP", "zstd"])
async def test_an_encoded_body_is_refused_unread(encoding):
    async def receive():
        raise AssertionError("it was read")

    headers = [(b"content-length", b"10"), (b"content-encoding", encoding.encode())]
    with pytest.raises(UnsupportedEncoding) as refused:
        async with RelayedBodies().read(Request({"type": "http", "method": "PUT", "headers": headers}, receive)):
            raise AssertionError("it has a body")
    assert (refused.value.field, refused.value.status) == ("Content-Encoding", 415)
    assert refused.value.headers == {"Accept-Encoding": "identity"}


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
async def test_a_body_that_says_it_is_not_encoded_is_read(encoding):
    asked = request(b"ab")
    asked.scope["headers"].append((b"content-encoding", encoding.encode()))
    async with RelayedBodies().read(asked) as body:
        assert body == b"ab"


async def test_all_bodies_together_have_a_limit():
    bodies = RelayedBodies(limit_bytes=10)
    async with bodies.read(request(b"x" * 8)):
        with pytest.raises(Unavailable) as refused:
            async with bodies.read(request(b"x" * 3)):
                raise AssertionError("there is room for it")
        assert refused.value.retry_after_s == 1.0
        async with bodies.read(request(b"x" * 2)) as body:
            assert body == b"xx"
    assert bodies.buffered_bytes == 0
