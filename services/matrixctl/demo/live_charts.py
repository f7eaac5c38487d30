"""The picture of the autoscaling demo: live charts on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrixcommon.model.quantities import format_duration
from services.matrixctl.demo.chart import chart
from services.matrixctl.demo.gauge import Gauge, Mark, Sample
from services.matrixctl.output.screen import console, echo

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_EVERY_S = 60.0
ROWS = (
    ("load, requests per second", lambda sample: sample.load_per_s),
    ("nodes active", lambda sample: float(sample.ready)),
    ("time to first token, p90 of a minute, ms", lambda sample: sample.ttft_s and 1e3 * sample.ttft_s),
    ("time per output token, p90 of a minute, ms", lambda sample: sample.tpot_s and 1e3 * sample.tpot_s),
)


def render_charts(samples: list[Sample], marks: list[Mark], *, width: int = 72, height: int = 3) -> list[str]:
    """Stack the charts over one time axis, with the letters of marks below, and a legend."""
    if not samples:
        return []
    first, last = samples[0].at, samples[-1].at
    lines: list[str] = []
    for title, value in ROWS:
        points = [(sample.at, value(sample)) for sample in samples]
        lines.append(f"{'':11}{title}")
        *rows, below = chart(points, [(mark.at, mark.letter) for mark in marks], width=width, height=height)
        lines += rows
    lines.append(f"{below}   {format_duration(last - first)} of emulated time")
    lines += [_legend(mark, first) for mark in marks]
    return lines


def _legend(mark: Mark, first: float) -> str:
    return f"{'':11}{mark.letter}  {clock_text(mark.at - first)}  {mark.text}"


def clock_text(seconds: float) -> str:
    """m:ss since the first sample."""
    whole = max(0, int(seconds))
    return f"{whole // 60:3d}:{whole % 60:02d}"


class LiveCharts:
    """Drawn while shown; `update` sets the line that says what it waits for."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._status = ""
        self._printed_at, self._printed_marks = 0.0, 0
        self._live: Live | None = None

    def show(self) -> None:
        if console().is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._rendered, console=console(), refresh_per_second=4, transient=True)
            self._live.start()

    def hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, status: str) -> None:
        self._status = status
        if not console().is_terminal:
            self._print_new()

    def _print_new(self) -> None:
        """Print a line per minute, and one for each mark."""
        samples, marks = self._gauge.samples(), self._gauge.marks()
        if not samples:
            return
        first, last = samples[0].at, samples[-1]
        for mark in marks[self._printed_marks :]:
            echo(f"   {clock_text(mark.at - first)}  [bold]{mark.letter}[/] {mark.text}")
        self._printed_marks = len(marks)
        if last.at - self._printed_at >= PLAIN_EVERY_S:
            self._printed_at = last.at
            echo(f"   {clock_text(last.at - first)}    [dim]{last.text()}[/]")

    def _rendered(self) -> Any:
        from rich.text import Text

        lines = render_charts(self._gauge.samples(), self._gauge.marks()[-12:], width=max(20, console().width - 40))
        return Text("\n".join([*lines, f"   {self._gauge.last.text()}"])) + Text.from_markup(f"\n   {self._status}")
