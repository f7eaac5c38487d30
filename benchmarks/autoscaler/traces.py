"""The load on the pools: recorded traces where available, otherwise seeded traces of the same shape.

A recorded trace is in the folder that CLOUDMATRIX_TRACES names, else in ../shared/data/llm beside the project; it is
read there and never copied. Each arrival stands for `copies` requests within a second, so that bursts stay bursts while
the pools are large enough for their size to matter. The contents of the context cache are computed once, with unlimited
room: a block counts from one second after its first request arrived. AUTOSCALING_SEED generates other seeded traces of
the same kinds, to show that settings are not fitted to one seed.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from random import Random

import numpy as np

from infer_workload.traffic.generator import Arrival, generate, read_trace

FOLDER = Path(os.environ.get("CLOUDMATRIX_TRACES", "../shared/data/llm"))
CACHED_AFTER_S = 1.0
HOUR_S = 3600.0
SEED = os.environ.get("AUTOSCALING_SEED", "")

Rows = Iterator[tuple[float, int, int, int]]
"""Arrival (s), prompt tokens, those of them in the cache, and answer tokens."""


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival."""

    name: str
    at: np.ndarray
    prompt: np.ndarray
    cached: np.ndarray
    answer: np.ndarray

    @property
    def seconds(self) -> float:
        return float(self.at[-1])


def _trace(name: str, rows: Rows, copies: int = 1) -> Trace:
    rng = Random(name)
    found = [(at + rng.random() * (copies > 1), *rest) for at, *rest in rows for _ in range(copies)]
    table = np.array(sorted(found), dtype=float)
    return Trace(name, *(table[:, column] for column in range(4)))


def _with_cache(arrivals: Iterator[Arrival] | list[Arrival], block_tokens: int = 512) -> Rows:
    since: dict[int, float] = {}
    for arrival in arrivals:
        hits = 0
        for block in arrival.blocks:
            if since.setdefault(block, arrival.at_s) + CACHED_AFTER_S > arrival.at_s:
                break
            hits += 1
        for block in arrival.blocks:
            since.setdefault(block, arrival.at_s)
        cached = min(hits * block_tokens, arrival.input_tokens - 1)
        yield arrival.at_s, arrival.input_tokens, cached, arrival.output_tokens


def _azure(file: str) -> Rows:
    with gzip.open(FOLDER / file, "rt") as lines:
        for row in csv.DictReader(lines):
            yield float(row["t_ms"]) / 1e3, max(1, int(row["input_tokens"])), 0, max(1, int(row["output_tokens"]))


def _servegen(name: str, begin_s: float, end_s: float, faster: float, share: float) -> Rows:
    """A ServeGen trace: clients with rates by window and lengths by quantile. Time runs `faster` times as fast, and
    rates are multiplied by `share`."""
    lengths: dict[tuple[str, str], list[tuple[float, list[float]]]] = defaultdict(list)
    stem, days = name, ""
    if name == "m-large":
        days = "_days1-7"
    with gzip.open(FOLDER / f"servegen_{stem}{days}_lengths.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            quantiles = [float(row[column]) for column in row if column.startswith("q") and row[column]]
            lengths[row["client"], row["field"]].append((float(row["t_s"]), quantiles))
    some = next(client for client, field in lengths if field == "output_tokens")
    rng = Random(name)

    def tokens(client: str, field: str, t_s: float) -> int:
        found = lengths.get((client, field)) or lengths[some, field]
        quantiles = next((each for at, each in reversed(found) if at <= t_s), found[0][1])
        place = rng.random() * (len(quantiles) - 1)
        low = int(place)
        high = min(low + 1, len(quantiles) - 1)
        return max(1, round(quantiles[low] + (place - low) * (quantiles[high] - quantiles[low])))

    with gzip.open(FOLDER / f"servegen_{stem}{days}_rates.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            t_s, rate, client = float(row["t_s"]), float(row["rate_rps"]) * share, row["client"]
            if not begin_s <= t_s < end_s or rate <= 0:
                continue
            mean, cv = 1 / rate, max(0.3, float(row["cv"]))
            shape = 1 / (cv * cv)
            at, end = (t_s - begin_s) / faster, (t_s - begin_s + 600) / faster
            while (at := at + rng.gammavariate(shape, mean / shape)) < end:
                yield at, tokens(client, "input_tokens", t_s), 0, tokens(client, "output_tokens", t_s)


def poisson_arrivals(rate: Callable[[float], float], seconds: float, prompt: float, answer: float, seed: str) -> Rows:
    """Poisson arrivals at that rate; lengths are log-normal with these means."""
    rng, at = Random(seed + SEED), 0.0
    spread = 0.5
    while (at := at + rng.expovariate(max(rate(at), 0.01))) < seconds:
        tokens = [mean * math.exp(rng.gauss(-spread * spread / 2, spread)) for mean in (prompt, answer)]
        yield at, max(1, round(tokens[0])), 0, max(2, round(tokens[1]))


def alternating_mix(seconds: float, half_s: float = 900.0) -> Rows:
    """A constant request rate whose mix alternates every `half_s`, by default a quarter of an hour: long prompts
    (documents), then long answers (reasoning)."""
    halves = int(seconds // half_s)
    for half in range(halves):
        for at, prompt, cached, answer in poisson_arrivals(lambda _: 8.0, half_s, *MIXES[half % 2], f"mix {half}"):
            yield at + half * half_s, prompt, cached, answer


def _bursts(at: float) -> float:
    """The rate of a code assistant: bursts of half a minute, each of a different height."""
    place = Random(f"{int(at // 30)}{SEED}" if SEED else int(at // 30)).random()
    return 30.0 if place > 0.85 else 4.0 if place > 0.4 else 0.5


def _jumping_rate(seconds: float) -> Callable[[float], float]:
    """A rate that is constant for minutes and then jumps without warning, typically to twice or half."""
    rng, since, ends, rates = Random("jumps" + SEED), 0.0, [], []
    while since < seconds:
        since += 60.0 + rng.expovariate(1 / 300)
        ends.append(since)
        rates.append(min(20.0, 6.0 * math.exp(rng.gauss(0.0, 0.5))))
    return lambda at: rates[bisect_right(ends, at)]


def _clients(seconds: float, clients: int = 16) -> Rows:
    """Several clients, each with its own rate every few minutes, bursts and lengths, as ServeGen describes them. A few
    cause most of the load, and a daily cycle rises and falls once."""
    rows: list[tuple[float, int, int, int]] = []
    for client in range(clients):
        rng = Random(f"client {client}{SEED}")
        mean, cv = 1.2 * math.exp(rng.gauss(0.0, 1.0)), rng.uniform(1.0, 3.0)
        prompt, answer = (size * math.exp(rng.gauss(0.0, 0.5)) for size in (3000.0, 600.0))
        for window in range(int(seconds // 300)):
            rate = mean * math.exp(rng.gauss(0.0, 0.4)) * (1.0 - 0.6 * math.cos(2 * math.pi * window * 300 / seconds))
            at, end = window * 300.0, (window + 1) * 300.0
            while (at := at + rng.gammavariate(1 / cv**2, cv**2 / rate)) < end:
                read, written = (size * math.exp(rng.gauss(-0.32, 0.8)) for size in (prompt, answer))
                rows.append((at, max(1, round(read)), 0, max(2, round(written))))
    return iter(sorted(rows))


def _steps() -> tuple[float, ...]:
    return tuple(Random(SEED).sample(STEPS, len(STEPS))) if SEED else STEPS


def _seeded_conversation(rate: float, seconds: float) -> list[Arrival]:
    return list(takewhile(lambda each: each.at_s < seconds, generate(11 + sum(SEED.encode()), rate)))


def sine(at: float, period_s: float = 600.0) -> float:
    """Between 1 and 24 requests/s, as in Dynamo's open issue 10528."""
    return 12.5 - 11.5 * math.cos(2 * math.pi * at / period_s)


STEPS = (15.0, 2.0, 10.0, 15.0, 5.0, 2.0)
"""Requests/s, each for five minutes: llm-d-autoscaling PR 1118."""
MIXES = ((12_000.0, 150.0), (1500.0, 1800.0))
"""Mean prompt and answer tokens of the two halves of `alternating_mix`."""
R1 = (6000.0, 1500.0)
"""Mean prompt and answer tokens of a reasoning model."""


def _define_traces() -> dict[str, Callable[[], Trace]]:
    def there(file: str) -> bool:
        return (FOLDER / file).exists()

    mooncake, code, conv = (
        "mooncake_conversation_00-40min.jsonl.gz", "azure2023_code_00-35min.csv.gz", "azure2023_conv_00-35min.csv.gz",
    )  # fmt: skip
    found: dict[str, Callable[[], Trace]] = {
        "sine 1-24": lambda: _trace("sine 1-24", poisson_arrivals(sine, HOUR_S, *R1, "sine"), 6),
        "steps": lambda: _trace("steps", poisson_arrivals(lambda at: _steps()[int(at // 300)], 1800, *R1, "steps"), 8),
        "constant": lambda: _trace("constant", poisson_arrivals(lambda _: 12.0, HOUR_S, *R1, "constant"), 6),
        "constant 7": lambda: _trace(
            "constant 7", poisson_arrivals(lambda _: 7.0, HOUR_S, 3000, 400, "constant 7"), 16
        ),
        "sine 15 min": lambda: _trace(
            "sine 15 min", poisson_arrivals(lambda at: sine(at, 900), HOUR_S, *R1, "sine 15"), 6
        ),
        "mix shifts": lambda: _trace("mix shifts", alternating_mix(HOUR_S), 8),
        "conversation": lambda: _trace("conversation", _with_cache(_seeded_conversation(3.25, 2400)), 16),
        "toolagent": lambda: _trace("toolagent", poisson_arrivals(lambda _: 6.67, 3540, 5000, 182, "toolagent"), 16),
        "bursts": lambda: _trace("bursts", poisson_arrivals(_bursts, 2100, 2048, 28, "code"), 64),
        "jumps": lambda: _trace("jumps", poisson_arrivals(_jumping_rate(HOUR_S), HOUR_S, 3000, 600, "jumps"), 8),
        "clients": lambda: _trace("clients", _clients(HOUR_S), 5),
    }
    if there(mooncake):
        found["mooncake"] = lambda: _trace("mooncake", _with_cache(read_trace(FOLDER / mooncake)), 16)
    if there(code):
        found["azure code"] = lambda: _trace("azure code", _azure(code), 64)
        found["azure conv"] = lambda: _trace("azure conv", _azure(conv), 48)
    if there("servegen_deepseek-r1_rates.csv.gz"):
        found["r1 day /24"] = lambda: _trace("r1 day /24", _servegen("deepseek-r1", 0, 86_400, 24, 1.0), 5)
        found["m-large day /24"] = lambda: _trace("m-large day /24", _servegen("m-large", 0, 86_400, 24, 1.0), 1)
        found["m-large day 5 /24"] = lambda: _trace(
            "m-large day 5 /24", _servegen("m-large", 4 * 86_400, 5 * 86_400, 24, 1.0), 1
        )
    return found


TRACES = _define_traces()
"""Traces by name, generated on demand."""
SEEDED = tuple(name for name in TRACES if not name.startswith(("mooncake", "azure", "r1", "m-large")))
"""The generated traces, on which settings are chosen; the recorded ones are the check."""
