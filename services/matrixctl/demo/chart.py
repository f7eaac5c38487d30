"""A small text chart of a figure over time, with events marked below it."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"


def chart(
    samples: Sequence[tuple[float, float | None]],
    marks: Sequence[tuple[float, str]],
    *,
    width: int = 72,
    height: int = 5,
    unit: str = "",
) -> list[str]:
    """Lines of a chart of (time, value) samples, in time order, with a letter under the column of each mark.

    A column shows the mean of its samples; a column without known values repeats the one before.
    """
    if not samples:
        return ["(nothing measured)"]
    first, last = samples[0][0], samples[-1][0]
    columns = _columns(samples, width, first, last)
    top = max(columns) or 1.0
    eighths = [round(value / top * height * 8) for value in columns]
    lines = []
    for row in range(height - 1, -1, -1):
        label = f"{top:>10,.0f} " if row == height - 1 else " " * 11
        lines.append(label + "".join(BLOCKS[max(0, min(8, count - row * 8))] for count in eighths))
    below = [" "] * width
    for at, label in marks:
        below[_column(at, width, first, last)] = label[0]
    lines.append(" " * 10 + "0" + "".join(below).rstrip() + (f"   {unit}" if unit else ""))
    return lines


def _column(at: float, width: int, first: float, last: float) -> int:
    share = (at - first) / (last - first) if last > first else 0.0
    return max(0, min(width - 1, int(share * width)))


def _columns(samples: Sequence[tuple[float, float | None]], width: int, first: float, last: float) -> list[float]:
    current: list[list[float]] = [[] for _ in range(width)]
    for at, value in samples:
        if value is not None:
            current[_column(at, width, first, last)].append(value)
    columns: list[float] = []
    for values in current:
        columns.append(sum(values) / len(values) if values else columns[-1] if columns else 0.0)
    return columns
