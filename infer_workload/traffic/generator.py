"""Sources of requests: a recorded trace, or a seeded generator of the same shape.

A trace is JSON lines in the format published with Mooncake (plain or gzip): `timestamp` in ms, `input_length`,
`output_length`, and `hash_ids`, one number for each 512-token block of the prompt; prompts that begin with the same
numbers begin with the same text. `priority` is optional and vLLM's: lower values first. The recorder wrote arrivals in
batches about 3 s apart; they are spread evenly over the time to the next batch, so that queueing is not an artefact of
the recording.
"""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson

from matrixcommon.model.yaml_text import packaged_yaml

BATCH_S_MAX = 3.0
"""The longest time over which a batch of a trace is spread: the recorder's period."""

BLOCK_TOKENS = 512
"""Tokens per block of a trace's `hash_ids`."""

OPEN_CONVERSATIONS_MAX = 4096


LATEST_S = 1e11
"""The latest arrival, three thousand years: there a float resolves 15 microseconds, and later ever less."""


class BadTrace(ValueError):
    """A trace that cannot be read, or a line that is not a request; the message has its number."""


class Arrival(NamedTuple):
    """One request of a workload: seconds since its start, tokens in and out, prefix hashes of the prompt's blocks, and
    its priority, lower ones first."""

    at_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    priority: int = 0


def blocks_of(arrival: Arrival, block_tokens: int) -> tuple[int, ...]:
    """The prefix hashes of the prompt's blocks of that size. A block of another size than the trace's is identified by
    the trace block in which it ends, and the offset there: prompts that share that trace block share it."""
    if block_tokens == BLOCK_TOKENS:
        return arrival.blocks
    hashed = min(arrival.input_tokens, len(arrival.blocks) * BLOCK_TOKENS)
    last, found = len(arrival.blocks) - 1, list[int]()
    for start in range(0, hashed, block_tokens):
        end = start + block_tokens
        place = min((end - 1) // BLOCK_TOKENS, last)
        found.append(arrival.blocks[place] * 2 * BLOCK_TOKENS + end - place * BLOCK_TOKENS)
    return tuple(found)


def read_trace(path: Path) -> list[Arrival]:
    """All requests of a trace in order of arrival. Raises BadTrace for a line that is not a request or an unreadable
    file, OSError if it cannot be opened."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            entries = [_parsed(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    except (EOFError, zlib.error) as wrong:
        raise BadTrace(f"{path.name} cannot be read: {wrong}") from wrong
    if not entries:
        raise BadTrace(f"{path.name} has no requests")
    entries.sort(key=lambda entry: entry.at_s)
    return list(_spread(entries))


def _parsed(number: int, line: bytes) -> Arrival:
    try:
        entry = orjson.loads(line)
        if not isinstance(entry, dict):
            raise TypeError("it must be a JSON object")
        arrival = Arrival(
            _number(entry, "timestamp") / 1000.0,
            _whole_number(entry, "input_length"),
            _whole_number(entry, "output_length"),
            _hashes(entry.get("hash_ids", [])),
            _whole_number(entry, "priority") if "priority" in entry else 0,
        )
    except orjson.JSONDecodeError as wrong:
        raise BadTrace(f"line {number} is not JSON: {wrong}") from wrong
    except KeyError as lacks:
        raise BadTrace(f"line {number} is not a trace request: {lacks} is missing") from lacks
    except (ValueError, TypeError, RecursionError) as wrong:
        raise BadTrace(f"line {number} is not a trace request: {wrong}") from wrong
    if arrival.input_tokens < 1 or arrival.output_tokens < 1 or not 0 <= arrival.at_s <= LATEST_S:
        raise BadTrace(
            f"line {number}: lengths must be at least 1, and the timestamp from 0 to {LATEST_S * 1000:.0e} ms"
        )
    return arrival


def _number(entry: dict[str, Any], name: str) -> float:
    value = entry[name]
    if type(value) not in (int, float):
        raise ValueError(f"{name} is not a number: {str(value)[:40]!r}")
    return float(value)


def _whole_number(entry: dict[str, Any], name: str) -> int:
    value = _number(entry, name)
    if not value.is_integer():
        raise ValueError(f"{name} is not an integer")
    return int(entry[name])


def _hashes(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or not set(map(type, given)) <= {int}:
        raise ValueError("hash_ids is not a list of integers")
    return tuple(given)


def _spread(entries: Sequence[Arrival]) -> Iterator[Arrival]:
    start = 0
    while start < len(entries):
        end = start
        while end < len(entries) and entries[end].at_s == entries[start].at_s:
            end += 1
        at = entries[start].at_s
        window = min(BATCH_S_MAX, entries[end].at_s - at) if end < len(entries) else BATCH_S_MAX
        for place, entry in enumerate(entries[start:end]):
            moment = at + window * place / (end - start)
            yield Arrival(moment, entry.input_tokens, entry.output_tokens, entry.blocks, entry.priority)
        start = end


@dataclass(frozen=True)
class TrafficShape:
    """Parameters of generated traffic; see traffic.yaml for their source."""

    requests_per_second: float
    input_quantiles: tuple[tuple[float, float], ...]
    output_quantiles: tuple[tuple[float, float], ...]
    block_tokens: int
    system_blocks: int
    turn_gap_median_s: float
    turn_gap_p75_s: float
    continued_share: float


@lru_cache
def conversation_shape() -> TrafficShape:
    current: dict[str, Any] = packaged_yaml("infer_workload.traffic", "traffic.yaml")
    return TrafficShape(
        requests_per_second=current["requests_per_second"]["value"],
        input_quantiles=tuple(sorted(current["input_tokens"]["quantiles"].items())),
        output_quantiles=tuple(sorted(current["output_tokens"]["quantiles"].items())),
        block_tokens=current["block_tokens"]["value"],
        system_blocks=current["system_blocks"]["value"],
        turn_gap_median_s=current["turn_gap_s"]["median"],
        turn_gap_p75_s=current["turn_gap_s"]["p75"],
        continued_share=current["continued_share"]["value"],
    )


def generate(
    seed: int,
    requests_per_second: float | None = None,
    shape: TrafficShape | None = None,
    start_s: float = 0.0,
    input_tokens_max: int | None = None,
    first_block: int = 0,
) -> Iterator[Arrival]:
    """Endless traffic of that shape: Poisson arrivals, lengths by the quantiles, conversations of several turns.

    A conversation's next turn repeats the whole blocks of its last prompt and adds to them; every prompt starts with
    the system blocks. The same seed gives the same traffic. New blocks are numbered from `first_block` on; blocks below
    it belong to other traffic.
    """
    current, rng = shape or conversation_shape(), Random(seed)
    rate = requests_per_second or current.requests_per_second
    spread = log(current.turn_gap_p75_s / current.turn_gap_median_s) / 0.6745
    system = tuple(range(current.system_blocks))
    fresh, at = max(current.system_blocks, first_block), start_s
    open_turns: list[tuple[float, tuple[int, ...]]] = []
    while True:
        at += rng.expovariate(rate)
        tokens = round(quantile(current.input_quantiles, rng.random()))
        tokens = max(1, min(tokens, input_tokens_max or tokens))
        whole = tokens // current.block_tokens
        prefix = system
        if open_turns and open_turns[0][0] <= at and rng.random() < 2 * current.continued_share:
            last = _due_turn(open_turns, at, whole)
            prefix = last if last is not None else system
        count = -(-tokens // current.block_tokens)
        prefix = prefix[:count]
        blocks = prefix + tuple(range(fresh, fresh + count - len(prefix)))
        fresh += count - len(prefix)
        if rng.random() < current.continued_share and whole > len(system):
            comes_back = at + exp(rng.gauss(log(current.turn_gap_median_s), spread))
            _insert(open_turns, (comes_back, blocks[:whole]))
        yield Arrival(at, tokens, max(1, round(quantile(current.output_quantiles, rng.random()))), blocks)


def _due_turn(turns: list[tuple[float, tuple[int, ...]]], at: float, blocks: int) -> tuple[int, ...] | None:
    """Remove and return the longest-waiting conversation whose next turn is due and whose prompt fits that many
    blocks."""
    for place, (due, current) in enumerate(turns):
        if due > at:
            return None
        if len(current) <= blocks:
            del turns[place]
            return current
    return None


def _insert(turns: list[tuple[float, tuple[int, ...]]], turn: tuple[float, tuple[int, ...]]) -> None:
    turns.insert(bisect_left(turns, turn[0], key=lambda current: current[0]), turn)
    del turns[OPEN_CONVERSATIONS_MAX:]


def quantile(table: Sequence[tuple[float, float]], share: float) -> float:
    """The value at that share, interpolated between the table's points linearly in the logarithm."""
    for (low, small), (high, large) in pairwise(table):
        if share <= high:
            part = (share - low) / (high - low)
            return exp(log(small) + part * (log(large) - log(small)))
    return table[-1][1]
