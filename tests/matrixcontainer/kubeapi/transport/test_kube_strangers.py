"""What strangers send is not kept: whatever is looked up by it is bounded."""

from __future__ import annotations

import tracemalloc

from matrixcontainer.kubeapi.registry.core import FAILURE_CHARS_MAX, FAILURES_MAX
from tests.matrixcontainer.kubeapi.api_session import ApiSession


async def test_unauthenticated_input_is_not_cached(session: ApiSession) -> None:
    """Paths, names of headers, tokens: whatever is looked up by them is bounded, and none of it is large."""
    await session.post("/api/v1/namespaces", {"metadata": {"name": "warm"}})
    stranger = ApiSession(session.api, session.clock, "")
    for number in range(100):
        await _ask_at_length(stranger, f"w{number:06}")
    tracemalloc.start()
    try:
        for number in range(1000):
            await _ask_at_length(stranger, f"x{number:06}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2**20


async def test_recorded_failures_are_bounded(session: ApiSession) -> None:
    core = session.api.core
    for number in range(3 * FAILURES_MAX):
        core.record_failure(ValueError(f"{number} " + "x" * 100_000), "/long" * 10_000)
    kept = list(core.failures)
    core.failures.clear()
    assert len(kept) == FAILURES_MAX
    assert max(map(len, kept)) <= FAILURE_CHARS_MAX


async def _ask_at_length(stranger: ApiSession, word: str) -> None:
    long = word * 3000
    for path in (f"/{long}", f"/apis/{long}/v1/things/x", f"/api/v1/namespaces/{long}/pods", f"/{word}"):
        assert (await stranger.get(path)).code == 403
    stranger.headers = [(f"x-{long}".encode(), b"x"), (b"authorization", f"Bearer {long}".encode())]
    assert (await stranger.get("/version", **{word: long})).code == 401
    stranger.headers = []
