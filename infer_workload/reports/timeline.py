"""An experiment over time: every request as a CSV row, and the load in equal time steps."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from infer_workload.reports.served import Requests, ServedRequest

STEPS = 60
COLUMNS = (
    "number", "arrived_at_s", "input_tokens", "output_tokens", "cached_tokens", "attempts", "ttft_s", "tpot_s",
    "latency_s",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One time step of the experiment. Rates are requests or tokens per second, `in_flight` is a mean."""

    at_s: float
    arrivals_per_s: float
    finished_per_s: float
    output_tokens_per_s: float
    in_flight: float


def requests_csv(requests: Iterable[ServedRequest]) -> str:
    """A row for each request, in order of arrival; times in seconds, lengths in tokens."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in requests:
        times = each.ttft_s, each.tpot_s, each.latency_s
        tokens = each.input_tokens, each.output_tokens, each.cached_tokens
        writer.writerow([each.number, round(each.arrived_at, 6), *tokens, each.attempts, *(round(s, 6) for s in times)])
    return text.getvalue()


def timeline(requests: Requests, steps: int = STEPS) -> list[Step]:
    """The experiment in that many steps of equal length, from the first arrival to the last token. The tokens of an
    answer are spread evenly over the time in which it was generated."""
    if not requests:
        return []
    start = min(each.arrived_at for each in requests)
    width = max((max(each.finished_at for each in requests) - start) / steps, 1e-9)
    arrivals, finished, tokens, busy = ([0.0] * steps for _ in range(4))
    for each in requests:
        arrivals[min(steps - 1, int((each.arrived_at - start) / width))] += 1
        finished[min(steps - 1, int((each.finished_at - start) / width))] += 1
        _spread(busy, each.arrived_at - start, each.finished_at - start, width, each.latency_s)
        _spread(tokens, each.first_token_at - start, each.finished_at - start, width, each.output_tokens)
    return [
        Step(start + at * width, arrivals[at] / width, finished[at] / width, tokens[at] / width, busy[at] / width)
        for at in range(steps)
    ]


def _spread(sums: list[float], begin: float, end: float, width: float, amount: float) -> None:
    """Spread `amount` evenly over the steps from `begin` to `end`; all in one step if the interval is empty."""
    last = len(sums) - 1
    first, final = min(last, int(begin / width)), min(last, int(end / width))
    if first == final or end <= begin:
        sums[final] += amount
        return
    for at in range(first, final + 1):
        within = min(end, (at + 1) * width if at < last else end) - max(begin, at * width)
        sums[at] += amount * within / (end - begin)
