"""HTTP as it arrives on a socket: several requests at once, pieces, nonsense, and clients that read slowly or leave."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.factory import open_database
from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.kube.bind import listen
from services.kube.server import Server
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables
from tests.matrixcontainer.kubeapi.transport.attacks import DATA, HEADERS, PREFACE, SETTINGS, frame, request_frame

MAPS = "/api/v1/namespaces/default/configmaps"
HEAD = "host: x\r\nauthorization: Bearer admin\r\naccept: application/json\r\n"


class Client:
    """One connection, spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)
        await self.writer.drain()

    async def ask(self, method: str, path: str, body: bytes = b"", more: str = "") -> tuple[int, Any]:
        length = f"content-length: {len(body)}\r\ncontent-type: application/json\r\n" if body else ""
        await self.send(f"{method} {path} HTTP/1.1\r\n{HEAD}{length}{more}\r\n".encode() + body)
        return await self.answer(method)

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(5):
            text = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = text.decode().strip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split(" ")[1]), {name: value.strip() for name, _, value in pairs}

    async def answer(self, method: str = "GET") -> tuple[int, Any]:
        code, headers = await self.head()
        if code == 100:
            return code, b""
        size = 0 if method == "HEAD" else int(headers["content-length"])
        text = await self.reader.readexactly(size)
        return code, json.loads(text) if text and "json" in headers["content-type"] else text

    async def chunk(self) -> bytes:
        async with asyncio.timeout(5):
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        return data

    async def ended(self) -> bool:
        async with asyncio.timeout(5):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


Connect = Callable[[], Any]


@asynccontextmanager
async def served(folder: Path | None) -> AsyncIterator[tuple[KubeApi, Connect]]:
    """A server, with TLS if it is given a folder for certificates; and how to connect to it."""
    database = open_database("sqlite://")
    create_tables(database)
    api = build_api(
        database,
        lambda: 1_790_000_000.0,
        random.Random(1),
        {"admin": User("admin", ("system:masters", "system:authenticated"))},
    )
    listener = listen("127.0.0.1", 0)
    files: list[Path] = []
    trust = None
    if folder is not None:
        ensure_certificates(folder, [])
        ca, *files = certificate_files(folder)
        trust = ssl.create_default_context(cafile=str(ca))
    server = Server(api, listener, *files)
    ready = asyncio.Event()
    task = asyncio.create_task(server.serve(ready.set))
    await ready.wait()
    clients: list[Client] = []

    async def connect(protocol: str = "http/1.1") -> Client:
        if trust is not None:
            trust.set_alpn_protocols([protocol])
        client = Client(*await asyncio.open_connection(*listener.getsockname(), ssl=trust))
        clients.append(client)
        return client

    try:
        yield api, connect
    finally:
        server.stop()
        await task
        for client in clients:
            client.writer.transport.abort()
        assert not api.core.failures, api.core.failures


@pytest.fixture(params=["plain", "tls"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[KubeApi, Connect]]:
    async with served(tmp_path if request.param == "tls" else None) as found:
        yield found


async def test_requests_follow_each_other(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    for number in range(3):
        body = json.dumps({"metadata": {"name": f"m{number}"}}).encode()
        assert (await client.ask("POST", MAPS, body))[0] == 201
    code, found = await client.ask("GET", MAPS)
    assert (code, len(found["items"])) == (200, 3)
    assert (await client.ask("HEAD", MAPS)) == (200, b"")
    assert (await client.ask("GET", f"{MAPS}/none"))[0] == 404
    assert (await client.ask("DELETE", f"{MAPS}/m0"))[0] == 200


async def test_pipelined_requests_are_answered_in_order(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    create = f"POST {MAPS} HTTP/1.1\r\n{HEAD}content-length: {len(body)}\r\n\r\n".encode() + body
    read = f"GET {MAPS}/a HTTP/1.1\r\n{HEAD}\r\n".encode()
    await client.send(create + read * 40 + f"GET /version HTTP/1.1\r\n{HEAD}\r\n".encode())
    answers = [await client.answer() for _ in range(42)]
    assert [code for code, _ in answers] == [201] + [200] * 41
    assert answers[-1][1]["major"] == "1"


async def test_bytes_one_by_one_and_bodies_in_chunks(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    text = f"POST {MAPS} HTTP/1.1\r\n{HEAD}transfer-encoding: chunked\r\n\r\n".encode()
    text += b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body))) + b"0\r\n\r\n"
    for at in range(len(text)):
        await client.send(text[at : at + 1])
    assert (await client.answer())[0] == 201


async def test_large_bodies_both_ways(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    big = json.dumps({"metadata": {"name": "big"}, "data": {"k": "x" * 900_000}}).encode()
    assert (await client.ask("POST", MAPS, big))[0] == 201
    for number in range(8):
        big = json.dumps({"metadata": {"name": f"b{number}"}, "data": {"k": "y" * 900_000}}).encode()
        assert (await client.ask("POST", MAPS, big))[0] == 201
    _, found = await client.ask("GET", MAPS)
    assert {len(item["data"]["k"]) for item in found["items"]} == {900_000}


async def test_oversized_requests_are_refused(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    code, reported = await client.ask("POST", MAPS, b"", f"content-length: {4 * 2**20}\r\nexpect: 100-continue\r\n")
    assert (code, reported["reason"]) == (413, "RequestEntityTooLarge")
    client = await place[1]()
    text = f"POST {MAPS} HTTP/1.1\r\n{HEAD}transfer-encoding: chunked\r\n\r\n".encode()
    await client.send(text + b"".join(b"10000\r\n%b\r\n" % (b"x" * 65536) for _ in range(52)) + b"0\r\n\r\n")
    assert (await client.answer())[0] == 413
    for text, code in ((f"GET {MAPS} HTTP/1.1\r\nx: {'x' * 66_000}\r\n\r\n", 431), (f"GET /{'x' * 65_600}", 431)):
        client = await place[1]()
        await client.send(text)
        assert (await client.head())[0] == code
        assert await client.ended()


async def test_encoded_bodies_are_refused_with_what_is_accepted(place: tuple[KubeApi, Connect]) -> None:
    body = gzip.compress(b"{}")
    for encoding in ("gzip", "identity, br"):
        client = await place[1]()
        asked = f"POST {MAPS} HTTP/1.1\r\n{HEAD}content-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"
        await client.send(asked.encode() + body)
        code, headers = await client.head()
        assert (code, headers["accept-encoding"]) == (415, "identity")
    client, plain = await place[1](), json.dumps({"metadata": {"name": "plain"}}).encode()
    assert (await client.ask("POST", MAPS, plain, "content-encoding: identity\r\n"))[0] == 201


async def test_unread_body_closes_the_connection(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    stated = f"POST {MAPS} HTTP/1.1\r\n{HEAD}content-length: {4 << 20}\r\n\r\n".encode()
    await client.send(stated + b"x" * 300_000)  # somewhat more than is taken in of what nobody wants
    code, headers = await client.head()
    assert (code, headers["connection"]) == (413, "close")
    await client.reader.readexactly(int(headers["content-length"]))
    assert await client.ended()


async def test_a_refused_request_leaves_the_connection_to_the_next(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    body = json.dumps({"metadata": {"name": "a"}, "data": {"k": "x" * 100_000}}).encode()
    for _ in range(3):
        assert (await client.ask("POST", "/apis/none.test/v1/things", body))[0] == 404
    assert (await client.ask("POST", MAPS, body))[0] == 201


async def test_truncated_body_is_refused(place: tuple[KubeApi, Connect]) -> None:
    client, other = await place[1](), await place[1]()
    await client.send(f"POST {MAPS} HTTP/1.1\r\n{HEAD}content-type: application/yaml\r\ncontent-length: 99\r\n\r\n")
    await client.send("metadata: {name: half}\n")
    client.writer.transport.abort()
    await asyncio.sleep(0.1)
    assert (await other.ask("GET", MAPS))[1]["items"] == []


async def test_warnings_are_escaped_in_headers(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    body = json.dumps({"metadata": {"name": "a"}, "odd\x7f\n\u2028": 1}).encode()
    assert (await client.ask("POST", MAPS, body))[0] == 201


async def test_http_2_is_negotiated(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, connect):
        client = await connect("h2")
        await client.send(PREFACE + frame(SETTINGS, 0, 0) + request_frame(1, "/version") + request_frame(3, MAPS))
        found: dict[int, bytes] = {}
        while not all(found.get(stream, b"").endswith(b"}") for stream in (1, 3)):
            length, kind, _, stream = struct.unpack(">xHBBI", await client.reader.readexactly(9))
            payload = await client.reader.readexactly(length)
            if kind in (HEADERS, DATA):
                found[stream] = found.get(stream, b"") + payload
        assert found[1][0] == 0x88, "HPACK for :status 200"
        assert b'"major":"1"' in found[1]
        assert b'"code":403' in found[3]


async def test_expect_100_continue(place: tuple[KubeApi, Connect]) -> None:
    client = await place[1]()
    body = json.dumps({"metadata": {"name": "a"}}).encode()
    await client.send(f"POST {MAPS} HTTP/1.1\r\n{HEAD}expect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n")
    assert (await client.answer())[0] == 100
    await client.send(body)
    assert (await client.answer())[0] == 201


@pytest.mark.parametrize(
    "text", ["nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x00\x00", "GET  \r\n\r\n"]
)
async def test_malformed_input_closes_the_connection(place: tuple[KubeApi, Connect], text: str) -> None:
    client = await place[1]()
    await client.send(text + "\r\n" * 4)
    assert (await client.head())[0] == 400
    assert await client.ended()
    assert (await (await place[1]()).ask("GET", "/version"))[0] == 200


async def test_http_1_0_and_connection_close(place: tuple[KubeApi, Connect]) -> None:
    for text in ("GET /version HTTP/1.0\r\n", "GET /version HTTP/1.1\r\nconnection: close\r\n"):
        client = await place[1]()
        await client.send(f"{text}{HEAD}\r\n")
        assert (await client.answer())[0] == 200
        assert await client.ended()


async def test_a_watch_streams_and_ends(place: tuple[KubeApi, Connect]) -> None:
    watcher, writer = await place[1](), await place[1]()
    await watcher.send(f"GET {MAPS}?watch=true&timeoutSeconds=1 HTTP/1.1\r\n{HEAD}\r\n")
    assert (await watcher.head())[1]["transfer-encoding"] == "chunked"
    await writer.ask("POST", MAPS, json.dumps({"metadata": {"name": "a"}}).encode())
    assert json.loads(await watcher.chunk())["type"] == "ADDED"
    assert await watcher.chunk() == b""
    assert (await watcher.ask("GET", "/version"))[0] == 200, "the connection serves on"


async def test_slow_watcher_delays_nobody_and_misses_nothing(
    place: tuple[KubeApi, Connect],
) -> None:
    watcher, writer = await place[1](), await place[1]()
    await watcher.send(f"GET {MAPS}?watch=true HTTP/1.1\r\n{HEAD}\r\n")
    await watcher.head()
    for number in range(40):
        body = json.dumps({"metadata": {"name": f"m{number:02}"}, "data": {"k": "x" * 400_000}}).encode()
        assert (await writer.ask("POST", MAPS, body))[0] == 201
    text = b""
    while text.count(b"\n") < 40:
        text += await watcher.chunk()
    names = [json.loads(line)["object"]["metadata"]["name"] for line in text.splitlines()]
    assert names == [f"m{number:02}" for number in range(40)]


async def test_disconnected_clients_are_cleaned_up(place: tuple[KubeApi, Connect]) -> None:
    api, connect = place
    log = api.store.log("configmaps")
    before = len(log.waiters)
    watchers = [await connect() for _ in range(5)]
    for watcher in watchers:
        await watcher.send(f"GET {MAPS}?watch=true HTTP/1.1\r\n{HEAD}\r\n")
        await watcher.head()
    assert len(log.waiters) == before + 5
    for watcher in watchers:
        watcher.writer.transport.abort()
    async with asyncio.timeout(5):
        while len(log.waiters) > before:
            await asyncio.sleep(0.01)
