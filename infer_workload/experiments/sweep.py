"""Sweeps: one trial over ranges of its parameters, on as many processes as are given, here or on a Ray cluster.

The points are independent and each is a pure function of its trial, so where they run and in which order they end does
not matter: the outcome is the same to the byte. A point that cannot be laid out is an answer too, and says why.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import product
from math import inf
from typing import Any

from infer_workload.experiments import experiment
from infer_workload.experiments.trial import PARAMETERS, Trial, trial_of
from infer_workload.layout.deployment import DoesNotFit
from infer_workload.reports.report import Report, flat
from matrixcommon.model.errors import InternalError, InvalidField, NotFound

POINTS_MAX = 10_000


@dataclass(frozen=True)
class Axis:
    """A parameter of a trial, and the values it takes, as text."""

    parameter: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One trial of a sweep: what was varied, and what was found or why there is nothing to find."""

    varied: dict[str, Any]
    report: Report | None
    why_not: str = ""

    def row(self) -> dict[str, Any]:
        """Flat, with a column for each number: what a table, CSV or a DataFrame wants."""
        report = asdict(self.report) if self.report else {}
        figures = {name: value for name, value in report.items() if name not in ("notes", "objectives")}
        return self.varied | flat(figures, "_") | {"why_not": self.why_not}


def axis(text: str) -> Axis:
    """From `nodes=8,16,32` or `rate=2:10:2`, where the last number is the step and both ends count. Raises
    InvalidField."""
    name, values = named_values(text)
    parameter = name.replace("-", "_")
    if parameter not in PARAMETERS:
        raise InvalidField(f"{name!r} is no parameter; there are {', '.join(PARAMETERS)}", field="--over")
    return Axis(parameter, values)


def named_values(text: str) -> tuple[str, tuple[str, ...]]:
    """A name and its values, of whatever is varied. Raises InvalidField."""
    name, equals, values = text.partition("=")
    if not equals or not values or not name.strip():
        raise InvalidField(f"{text!r} is not of the form nodes=8,16,32 or rate=2:10:2", field="--over")
    return name.strip(), tuple(_range(text, values) if ":" in values else _listed(text, values))


def _listed(text: str, values: str) -> list[str]:
    found = [value.strip() for value in values.split(",")]
    if not all(found):
        raise InvalidField(f"{text!r} has a value that is empty", field="--over")
    return found


def _range(text: str, values: str) -> Iterator[str]:
    try:
        first, last, *rest = (Decimal(number) for number in values.split(":"))
        step = rest[0] if rest else Decimal(1)
        steps = (last - first) / step if step > 0 and len(rest) < 2 else Decimal(-1)
        count = int(min(steps, Decimal(POINTS_MAX))) + 1 if steps >= 0 and step.is_finite() else 0
    except (ValueError, ArithmeticError) as wrong:
        raise InvalidField(f"{text!r} is not of the form FIRST:LAST:STEP", field="--over") from wrong
    if not 0 < count <= POINTS_MAX:
        raise InvalidField(f"{text!r} has no value, or more than {POINTS_MAX:,}", field="--over")
    return (format((first + step * number).normalize(), "f") for number in range(count))


def points_of(base: dict[str, Any], axes: Sequence[Axis]) -> list[tuple[dict[str, Any], Trial]]:
    """Every combination, the last axis running fastest, with its trial. Raises InvalidField."""
    count = 1
    for each in axes:
        count *= len(each.values)
    names = [each.parameter for each in axes]
    if not names:
        raise InvalidField("nothing is varied; say for example nodes=8,16,32", field="--over")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidField(f"{twice} is varied twice", field="--over")
    if count > POINTS_MAX:
        raise InvalidField(f"{count:,} points are more than {POINTS_MAX:,}", field="--over")
    start = trial_of(base)
    found = []
    for values in product(*(each.values for each in axes)):
        trial = start.varied(dict(zip(names, values, strict=True)))
        found.append(({name: getattr(trial, name) for name in names}, trial))
    return found


def measured(trial: Trial) -> ReportOrReason:
    """What a trial finds, or why it cannot be."""
    try:
        return experiment.run(trial).report, ""
    except DoesNotFit as wrong:
        return None, str(wrong)


Done = Callable[[int, int], None]
"""Called with points done and points in all."""

ReportOrReason = tuple[Report | None, str]
"""What a trial found, or why it could not be."""

Runner = Callable[[Sequence[Trial]], Iterator[tuple[int, ReportOrReason]]]
"""Measures trials; yields the number and the outcome of each, in whatever order."""


def sweep(
    points: Sequence[tuple[dict[str, Any], Trial]], runner: Runner, done: Done = lambda count, total: None
) -> list[Point]:
    """Measure all of them; the answer is in the order of the points."""
    found: dict[int, ReportOrReason] = {}
    done(0, len(points))
    for number, outcome in runner([trial for _, trial in points]):
        found[number] = outcome
        done(len(found), len(points))
    return [Point(varied, *found[number]) for number, (varied, _) in enumerate(points)]


def longest_first(trials: Sequence[Trial]) -> list[tuple[int, Trial]]:
    """Trials with their numbers, in the order in which several workers end soonest: none begins a long one last. What
    one takes goes by its requests, and hardly by anything else; how many a trace has is seen when it is read."""
    return sorted(enumerate(trials), key=lambda each: -inf if each[1].trace else -(each[1].generate or 0))


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes that begin in here never hear of Ctrl-C; this one does once it is over. Their parent ends them: by
    themselves they would print a traceback and begin the next point."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def here(workers: int) -> Runner:
    """So many processes of this machine; one: this process."""

    def run(trials: Sequence[Trial]) -> Iterator[tuple[int, ReportOrReason]]:
        if workers <= 1 or len(trials) <= 1:
            yield from enumerate(map(measured, trials))
            return
        fresh = multiprocessing.get_context("spawn")  # a process with threads is not forked
        others = set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(workers, len(trials)), mp_context=fresh) as pool:
            try:
                with _without_interrupts():
                    asked = {pool.submit(measured, trial): number for number, trial in longest_first(trials)}
                for one in as_completed(asked):
                    yield asked[one], one.result()
            except BrokenProcessPool as gone:
                raise InternalError(
                    "a process ended while it measured a point: killed, perhaps, as memory ran out; "
                    "fewer workers need less of it"
                ) from gone
            except BaseException:  # a trace that cannot be read, Ctrl-C, a caller that wants no more: nobody waits
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise

    return run


# ---- what is shown ---------------------------------------------------------------------------------------------------

SHOWN = ("TTFT P90 s", "TPOT P90 ms", "goodput", "req/s in time", "tok/s/NPU", "prefill busy", "cache hits")


WHY_NOT = "why not"
"""The column of points that could not be, where there are any."""


def shown(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """For a person: the columns, and of each point what is in them."""
    if not any(point.why_not for point in points):
        return [*SHOWN], [_shown(point.report) for point in points]
    return [*SHOWN, WHY_NOT], [[*_shown(point.report), point.why_not] for point in points]


def _shown(report: Report | None) -> list[str]:
    if report is None:
        return ["-"] * len(SHOWN)
    ttft, tpot = report.ttft.p90, report.tpot.p90
    return [
        "-" if ttft is None else f"{ttft:.3f}",
        "-" if tpot is None else f"{tpot * 1e3:.1f}",
        f"{report.goodput_share:.1%}",
        f"{report.goodput_requests_per_s:.3f}",
        f"{report.tokens_per_s_per_npu:,.1f}",
        f"{report.prefill_busy:.1%}",
        f"{report.cache_hit_rate_tokens:.1%}",
    ]


def as_csv(points: Iterable[Point]) -> str:
    """A line for each point, and the columns' names before them."""
    rows = [point.row() for point in points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_frame(points: Iterable[Point]) -> Any:
    """A pandas DataFrame of the same. Raises NotFound without pandas."""
    try:
        import pandas
    except ImportError as absent:
        raise NotFound("pandas is not installed here: pip install pandas") from absent
    return pandas.DataFrame([point.row() for point in points])
