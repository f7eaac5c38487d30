"""Requests over HTTP at twice the rate that a deployment serves in time, from clients that do not wait for answers.

`OVERLOAD_SECONDS` sets the emulated duration, an hour with the soak. A machine that cannot send at the rate offers less;
the printed figures say what was offered.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.e2e.load_generators.endpoint import Endpoint, endpoint
from tests.e2e.realkube.control_plane import resident_mb

SCALE = 5.0
SERVED_IN_TIME_PER_S = 3.0
"""What 16 decode NPUs with two requests each serve of these lengths (an engine in virtual time refuses 0.03 of it, 0.43 of
twice as many); few, so that two cores send, receive and answer them at this pace."""
PROMPT_TOKENS, ANSWER_TOKENS = (200, 1000), (200, 800)
TTFT_S, TPOT_S = 2.0, 0.05
SECONDS = float(os.environ.get("OVERLOAD_SECONDS", "150"))
SOAK_SECONDS = float(os.environ.get("OVERLOAD_SECONDS", "3600"))
WARM_UP_SECONDS = 600.0
GROWTH_MB_MAX = 16.0
"""Of an endpoint of 110 MB: an hour of 20,000 requests that leave 1 KB each would exceed it."""

pytestmark = [pytest.mark.e2e]


@dataclass
class Offered:
    """The responses to a load by status, and the usage that they report."""

    statuses: Counter[int] = field(default_factory=Counter)
    retry_after: list[str] = field(default_factory=list)
    usage: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def record(self, response: httpx.Response) -> None:
        self.statuses[response.status_code] += 1
        if response.status_code == 429:
            self.retry_after.append(response.headers.get("retry-after", ""))
        elif response.is_success:
            used = response.json()["usage"]
            self.usage.update({key: used[key] for key in ("prompt_tokens", "completion_tokens")})
        else:
            self.errors.append(response.text[:200])

    @property
    def sent(self) -> int:
        return self.statuses.total()


async def offer(url: str, per_second: float, seconds: float, seed: int, offered: Offered) -> None:
    """Send requests at `per_second` for `seconds`, both emulated, with lengths log-uniform between their bounds. The
    prompts begin alike, so that the context cache does not grow."""
    rng = Random(seed)
    words = [f"w{number}" for number in range(PROMPT_TOKENS[1])]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=120.0, limits=limits) as client,
        asyncio.TaskGroup() as sending,
    ):

        async def send() -> None:
            prompt, answer = (round(exp(rng.uniform(*map(log, bounds)))) for bounds in (PROMPT_TOKENS, ANSWER_TOKENS))
            body: dict[str, Any] = {"model": "r1", "max_tokens": answer, "ignore_eos": True}
            body["prompt"] = " ".join(words[:prompt])
            offered.record(await client.post("/v1/completions", json=body))

        begun, due_s = time.monotonic(), 0.0
        while (due_s := due_s + rng.expovariate(per_second * SCALE)) < seconds / SCALE:
            await asyncio.sleep(max(0.0, begun + due_s - time.monotonic()))
            sending.create_task(send())


def statistics(running: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = running.engine.http.get("/v1/deployments/r1/statistics", params={"windowS": 600}).json()
    return found


def overload(running: Endpoint, seconds: float, offered: Offered) -> None:
    """Offer twice the capacity, and check every promise but that of memory."""
    asyncio.run(offer(running.url, 2 * SERVED_IN_TIME_PER_S, seconds, offered.sent, offered))
    found = statistics(running)
    print(
        f"{offered.sent} requests in {seconds:g} emulated seconds: {dict(offered.statuses)};"
        f" TTFT P99 {found['ttft']['p99']:.2f} s, TPOT P99 {1000 * found['tpot']['p99']:.1f} ms"
    )
    assert set(offered.statuses) == {200, 429}, offered.errors[:3]
    assert all(int(each) >= 1 for each in offered.retry_after)
    assert (found["finished"], found["refused"]) == (offered.statuses[200], offered.statuses[429])
    assert (found["inFlight"], found["lost"], found["cancelled"]) == (0, 0, 0)
    (used,) = running.usage(groupBy="")
    assert (used["requests"], used["promptTokens"], used["completionTokens"]) == (
        offered.statuses[200],
        offered.usage["prompt_tokens"],
        offered.usage["completion_tokens"],
    )
    assert found["ttft"]["p99"] <= TTFT_S
    assert found["tpot"]["p99"] <= TPOT_S * 1.05, "steps with few accepted drafts"


@contextmanager
def overloadable(folder: Path) -> Iterator[Endpoint]:
    with endpoint(folder, nodes=4, scale=SCALE) as running:
        objective = {"ttftS": TTFT_S, "tpotS": TPOT_S}
        running.serve(prefillNpus=16, decodeNpus=16, batchPerNpu=2, objective=objective)
        yield running


@pytest.mark.timeout(600)
def test_at_twice_the_capacity_requests_are_in_time_or_refused(tmp_path: Path) -> None:
    with overloadable(tmp_path) as running:
        overload(running, SECONDS, Offered())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_an_hour_of_twice_the_capacity(tmp_path: Path) -> None:
    with overloadable(tmp_path) as running:
        offered = Offered()
        overload(running, WARM_UP_SECONDS, offered)
        before = resident_mb(running.engine.process.pid)
        overload(running, SOAK_SECONDS, offered)
        after = resident_mb(running.engine.process.pid)
        print(f"memory before and after: {before:.1f} and {after:.1f} MB")
        assert after - before < GROWTH_MB_MAX
