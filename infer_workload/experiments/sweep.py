"""Sweeps: one trial over ranges of its parameters, on several processes here or on a Ray cluster.

Points are independent and each is a pure function of its trial, so the results are the same, byte for byte, wherever
they run and in whatever order they finish. A point that cannot be laid out is a result too, with its reason.
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
from infer_workload.reports.report import Report, flatten
from matrixcommon.model.errors import InternalError, InvalidField, NotFound

POINTS_MAX = 10_000


@dataclass(frozen=True)
class Axis:
    """A parameter of a trial and its values, as text."""

    parameter: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One trial of a sweep: the varied parameters, and the report, or why there is none."""

    varied: dict[str, Any]
    report: Report | None
    why_not: str = ""

    def row(self) -> dict[str, Any]:
        """A flat row with a column per number, for a table, CSV or a DataFrame."""
        report = asdict(self.report) if self.report else {}
        figures = {name: value for name, value in report.items() if name not in ("notes", "objectives")}
        return self.varied | flatten(figures, "_") | {"why_not": self.why_not}


def parse_axis(text: str) -> Axis:
    """Parse `nodes=8,16,32` or `rate=2:10:2` (FIRST:LAST:STEP, both ends included). Raises InvalidField."""
    name, values = parse_named_values(text)
    parameter = name.replace("-", "_")
    if parameter not in PARAMETERS:
        raise InvalidField(f"unknown parameter {name!r}; the parameters are {', '.join(PARAMETERS)}", field="--over")
    return Axis(parameter, values)


def parse_named_values(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse a name and its values. Raises InvalidField."""
    name, equals, values = text.partition("=")
    if not equals or not values or not name.strip():
        raise InvalidField(f"{text!r} must be of the form nodes=8,16,32 or rate=2:10:2", field="--over")
    return name.strip(), tuple(_parse_range(text, values) if ":" in values else _parse_list(text, values))


def _parse_list(text: str, values: str) -> list[str]:
    found = [value.strip() for value in values.split(",")]
    if not all(found):
        raise InvalidField(f"{text!r} has an empty value", field="--over")
    return found


def _parse_range(text: str, values: str) -> Iterator[str]:
    try:
        first, last, *rest = (Decimal(number) for number in values.split(":"))
        step = rest[0] if rest else Decimal(1)
        steps = (last - first) / step if step > 0 and len(rest) < 2 else Decimal(-1)
        count = int(min(steps, Decimal(POINTS_MAX))) + 1 if steps >= 0 and step.is_finite() else 0
    except (ValueError, ArithmeticError) as wrong:
        raise InvalidField(f"{text!r} must be of the form FIRST:LAST:STEP", field="--over") from wrong
    if not 0 < count <= POINTS_MAX:
        raise InvalidField(f"{text!r} must give from 1 to {POINTS_MAX:,} values", field="--over")
    return (format((first + step * number).normalize(), "f") for number in range(count))


def expand_points(base: dict[str, Any], axes: Sequence[Axis]) -> list[tuple[dict[str, Any], Trial]]:
    """Every combination of values with its trial, the last axis varying fastest. Raises InvalidField."""
    count = 1
    for each in axes:
        count *= len(each.values)
    names = [each.parameter for each in axes]
    if not names:
        raise InvalidField("no parameter is varied; give for example nodes=8,16,32", field="--over")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InvalidField(f"{twice} is varied twice", field="--over")
    if count > POINTS_MAX:
        raise InvalidField(f"{count:,} points exceed the maximum of {POINTS_MAX:,}", field="--over")
    start = trial_of(base)
    found = []
    for values in product(*(each.values for each in axes)):
        trial = _varied(start, dict(zip(names, values, strict=True)))
        found.append(({name: getattr(trial, name) for name in names}, trial))
    return found


def _varied(start: Trial, changes: dict[str, str]) -> Trial:
    """The trial with these changes. Raises InvalidField, naming the value if it is one of them that is wrong."""
    try:
        return start.with_changes(changes)
    except InvalidField as wrong:
        name = (wrong.field or "").removeprefix("--").replace("-", "_")
        if name not in changes:
            raise
        raise InvalidField(f"{name}={changes[name]}: {wrong.message}", field=wrong.field) from wrong


def run_trial(trial: Trial) -> ReportOrReason:
    """Run a trial: its report, or why it cannot be laid out."""
    try:
        return experiment.run(trial).report, ""
    except DoesNotFit as wrong:
        return None, str(wrong)


OnDone = Callable[[int, int], None]
"""Called with the points done and the total."""

ReportOrReason = tuple[Report | None, str]
"""The report of a trial, or why it has none."""

Runner = Callable[[Sequence[Trial]], Iterator[tuple[int, ReportOrReason]]]
"""Runs trials; yields the index and the result of each, in any order."""


def sweep(
    points: Sequence[tuple[dict[str, Any], Trial]], runner: Runner, done: OnDone = lambda count, total: None
) -> list[Point]:
    """Run all points; the results are in their order."""
    found: dict[int, ReportOrReason] = {}
    done(0, len(points))
    for number, outcome in runner([trial for _, trial in points]):
        found[number] = outcome
        done(len(found), len(points))
    return [Point(varied, *found[number]) for number, (varied, _) in enumerate(points)]


def longest_first(trials: Sequence[Trial]) -> list[tuple[int, Trial]]:
    """Trials with their indices, the longest first, so that no worker starts a long one last. The duration depends on
    the number of requests and little else; traces come first, as their length is not known until they are read."""
    return sorted(enumerate(trials), key=lambda each: -inf if each[1].trace else -(each[1].generate or 0))


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block SIGINT, also for the processes started inside; this process receives it afterwards. On Ctrl-C the parent
    terminates its workers: left to themselves, they would print a traceback and begin the next point."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def local_runner(workers: int) -> Runner:
    """A runner on that many processes of this host; with one, on this process."""

    def run(trials: Sequence[Trial]) -> Iterator[tuple[int, ReportOrReason]]:
        if workers <= 1 or len(trials) <= 1:
            yield from enumerate(map(run_trial, trials))
            return
        fresh = multiprocessing.get_context("spawn")  # forking a process with threads is unsafe
        others = set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(workers, len(trials)), mp_context=fresh) as pool:
            try:
                with _sigint_blocked():
                    asked = {pool.submit(run_trial, trial): number for number, trial in longest_first(trials)}
                for one in as_completed(asked):
                    yield asked[one], one.result()
            except BrokenProcessPool as gone:
                raise InternalError(
                    "a worker process died while it ran a point, perhaps killed for lack of memory; "
                    "fewer workers need less memory"
                ) from gone
            except BaseException:  # an unreadable trace, Ctrl-C, a caller that stopped iterating: do not wait
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
                raise

    return run


# ---- output ----------------------------------------------------------------------------------------------------------

TABLE_COLUMNS = ("TTFT P90 s", "TPOT P90 ms", "goodput", "req/s in time", "tok/s/NPU", "prefill busy", "cache hits")


REASON_COLUMN = "why not"
"""The column with the reasons of points that could not run; left out if all did."""


def table_rows(points: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """The columns, and their text for each point, for display."""
    if not any(point.why_not for point in points):
        return [*TABLE_COLUMNS], [_report_cells(point.report) for point in points]
    return [*TABLE_COLUMNS, REASON_COLUMN], [[*_report_cells(point.report), point.why_not] for point in points]


def _report_cells(report: Report | None) -> list[str]:
    if report is None:
        return ["-"] * len(TABLE_COLUMNS)
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


def to_csv(points: Iterable[Point]) -> str:
    """The points as CSV with a header line."""
    rows = [point.row() for point in points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_frame(points: Iterable[Point]) -> Any:
    """The points as a pandas DataFrame. Raises NotFound without pandas."""
    try:
        import pandas
    except ImportError as absent:
        raise NotFound("pandas is not installed; run: pip install pandas") from absent
    return pandas.DataFrame([point.row() for point in points])
