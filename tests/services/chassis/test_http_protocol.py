"""What a client may send before it is known: the limits of the server that all REST services share."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from uvicorn.server import ServerState

from services.chassis.http_server import http_protocol, warning_limit
from services.chassis.http_server.http_protocol import (
    DISCARDED_BYTES_MAX,
    HEAD_BYTES_MAX,
    PIPELINED_MAX,
    BoundedHttpProtocol,
)
from services.chassis.http_server.serving import server_config
from services.chassis.settings import Settings

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n"


async def application(scope, receive, send):
    """Answers with what it was asked, once `scope["state"]["go"]` is set."""
    await scope["state"]["go"].wait()
    body = scope["raw_path"]
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(go=True):
    """A connection to a server of its own, the event that lets it answer, and the connections that it has."""
    config, state, event = server_config(application, Settings()), ServerState(), asyncio.Event()
    config.load()
    if go:
        event.set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttpProtocol(config, state, {"go": event}, loop), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer, event, state.connections
    finally:
        event.set()
        writer.transport.abort()
        server.close()
        await server.wait_closed()


async def everything(reader):
    """All that comes until the connection is closed; what came before it was reset is lost."""
    got = b""
    try:
        while piece := await reader.read(1 << 16):
            got += piece
    except ConnectionResetError:
        pass
    return got


async def test_a_usual_request_is_answered_and_the_connection_kept():
    async with connected() as (reader, writer, _, connections):
        for _ in range(3):
            writer.write(GET + b"padding: " + b"v" * (HEAD_BYTES_MAX - 100) + b"\r\n\r\n")
            assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200")
        assert len(connections) == 1


@pytest.mark.parametrize(
    "head",
    [
        GET + b"".join(b"h%d: %s\r\n" % (number, b"v" * 100) for number in range(1000)) + b"\r\n",
        GET + b"h: " + b"v" * 10 * HEAD_BYTES_MAX,
        b"GET /" + b"a" * 10 * HEAD_BYTES_MAX,
    ],
    ids=["many headers", "a header without end", "a path without end"],
)
async def test_a_head_that_is_too_large_is_refused_and_nobody_waits_for_its_end(head):
    async with connected() as (reader, writer, _, connections):
        for start in range(0, len(head), 8192):
            writer.write(head[start : start + 8192])
            await asyncio.sleep(0)
        got = await everything(reader)
        assert got == b"" or got.startswith(b"HTTP/1.1 431 "), got[:100]
        assert not connections


async def test_a_refusal_is_not_written_into_another_requests_answer():
    async with connected(go=False) as (reader, writer, event, _):
        writer.write(GET + b"\r\n" + GET + b"h: " + b"v" * 2 * HEAD_BYTES_MAX + b"\r\n\r\n")
        assert await everything(reader) == b""
        event.set()


async def test_a_few_pipelined_requests_are_answered_in_order():
    async with connected() as (reader, writer, _, _):
        writer.write(b"".join(b"GET /%02d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(50)))
        for number in range(50):
            await reader.readuntil(b"\r\n\r\n/%02d" % number)


async def test_a_pipeline_without_end_is_cut_off():
    async with connected(go=False) as (reader, writer, _, connections):
        writer.write((GET + b"\r\n") * (PIPELINED_MAX + 2))
        assert await everything(reader) == b""
        assert not connections


@pytest.mark.parametrize(
    "sent", [b"", b"GET /a HT", b"\r\n", GET + b"\r\n" + GET], ids=["nothing", "a part", "a line", "one and a part"]
)
async def test_a_head_that_never_ends_is_given_up(monkeypatch, sent):
    monkeypatch.setattr(http_protocol, "HEAD_WALL_S", 0.1)
    async with connected() as (reader, writer, _, connections):
        writer.write(sent)
        got = await asyncio.wait_for(everything(reader), 10)
        assert got.count(b"200 OK") == sent.count(GET + b"\r\n")
        assert not connections


@pytest.mark.parametrize(("sent", "kept"), [(DISCARDED_BYTES_MAX // 2, True), (4 * DISCARDED_BYTES_MAX, False)])
async def test_a_body_that_goes_on_after_the_answer_is_cut_off(sent, kept):
    async with connected() as (reader, writer, _, connections):
        writer.write(b"PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % sent)
        assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200")
        for _ in range(sent // 65_536):
            writer.write(b"v" * 65_536)
            await asyncio.sleep(0)
        if kept:
            writer.write(GET + b"\r\n")
            assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200")
        else:
            assert await everything(reader) == b""
            assert not connections


async def test_a_long_answer_is_not_given_up(monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_WALL_S", 0.05)
    async with connected(go=False) as (reader, writer, event, _):
        writer.write(GET + b"\r\n")
        asyncio.get_running_loop().call_later(0.3, event.set)
        assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200")


async def test_connections_beyond_the_limit_are_closed(monkeypatch):
    monkeypatch.setattr(BoundedHttpProtocol, "connections_max", 1)
    async with connected() as (reader, writer, _, connections):
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"/a")
        other, _ = await asyncio.open_connection(*writer.get_extra_info("peername"))
        assert await everything(other) == b""
        assert len(connections) == 1
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"/a")


async def test_who_asks_for_another_protocol_is_answered_in_this_one(caplog):
    async with connected() as (reader, writer, _, _):
        writer.write(GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n")
        got = await everything(reader)
        assert got.startswith(b"HTTP/1.1 200")
        assert got.endswith(b"/a")
        assert not caplog.records


async def test_invalid_requests_are_logged_once_in_a_while_with_their_number(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(warning_limit.SERVER_WARNINGS, "_wall", lambda: now[0])
    monkeypatch.setattr(warning_limit.SERVER_WARNINGS, "_known", {})

    async def send_invalid(times):
        for _ in range(times):
            async with connected() as (reader, writer, _, _):
                writer.write(b"\0 nonsense\r\n\r\n")
                assert (await everything(reader)).startswith(b"HTTP/1.1 400")

    await send_invalid(20)
    now[0] += warning_limit.PERIOD_WALL_S
    await send_invalid(3)
    logged = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [(each.message, getattr(each, "repeated", 0)) for each in logged] == [
        ("Invalid HTTP request received.", 0),
        ("Invalid HTTP request received.", 19),
    ]


def test_only_equal_warnings_are_left_out():
    known = warning_limit.RepeatedWarnings(lambda: 0.0)

    def passes(text, level=logging.WARNING, failed=False):
        trace = (ValueError, ValueError(), None) if failed else None
        return known.filter(logging.LogRecord("uvicorn.error", level, "", 1, text, (), trace))

    assert [passes("a"), passes("a"), passes("b"), passes("b")] == [True, False, True, False]
    assert all(passes("a", logging.ERROR) for _ in range(3))
    assert all(passes("a", failed=True) for _ in range(3))
    assert all(passes(str(at)) for at in range(3 * warning_limit.TEXTS_MAX))
    assert len(known._known) <= warning_limit.TEXTS_MAX
