"""What processes keep: memory of each, and each file of a state folder, looked at again and again."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import combinations

from services.matrixctl.supervisor.process_memory import process_memory
from services.matrixctl.supervisor.state_folder import StateFolder

MIB = float(1 << 20)
SETTLING_SHARE = 0.5
"""Of a run: caches fill, allocators find their size, and services keep what happened in the last hour. Slopes are of
what comes after."""


@dataclass
class Series:
    """Values in MiB over seconds of the wall."""

    at_s: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)

    def add(self, at_s: float, mib: float) -> None:
        self.at_s.append(at_s)
        self.mib.append(mib)

    def settled(self) -> tuple[list[float], list[float]]:
        begin = self.at_s[0] + SETTLING_SHARE * (self.at_s[-1] - self.at_s[0])
        kept = [(at, value) for at, value in zip(self.at_s, self.mib, strict=True) if at >= begin]
        return [at for at, _ in kept], [value for _, value in kept]

    def slope_mib_per_h(self) -> float:
        """Theil and Sen's: the median of the slopes between all pairs, which single spikes do not bend."""
        at, value = self.settled()
        slopes = [
            (value[right] - value[left]) / (at[right] - at[left])
            for left, right in combinations(range(len(at)), 2)
            if at[right] > at[left]
        ]
        return 3600.0 * statistics.median(slopes) if slopes else 0.0

    def most_by_half(self) -> tuple[float, float]:
        """The most of the first and of the second half after settling."""
        _, value = self.settled()
        middle = max(1, len(value) // 2)
        return max(value[:middle]), max(value[middle:] or value)


class Gauges:
    """Every process of a stack, and every file of its folder."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.processes: dict[str, Series] = {}
        self.files: dict[str, Series] = {}
        self.pids: dict[str, set[int]] = {}

    def sample(self, at_s: float) -> None:
        for name, holder in self.folder.holders().items():
            self.pids.setdefault(name, set()).add(holder.pid)
            resident = process_memory(holder.pid).rss
            if resident is not None:
                self.processes.setdefault(name, Series()).add(at_s, resident / MIB)
        for file in self.folder.path.rglob("*"):
            try:
                size = file.stat().st_size if file.is_file() else 0
            except FileNotFoundError:
                continue
            if size:
                self.files.setdefault(str(file.relative_to(self.folder.path)), Series()).add(at_s, size / MIB)

    def report(self) -> list[str]:
        lines = ["memory of each process, MiB: first look, after settling, at the end; slope per hour"]
        for name, series in sorted(self.processes.items()):
            lines.append(
                f"  {name:<12} {series.mib[0]:8.1f} {series.settled()[1][0]:8.1f} {series.mib[-1]:8.1f}"
                f" {series.slope_mib_per_h():+8.2f}/h"
            )
        lines.append("files, MiB: the most in the first and in the second half after settling (those over 0.5)")
        for name, series in sorted(self.files.items()):
            first, second = series.most_by_half()
            if max(first, second) >= 0.5:
                lines.append(f"  {name:<36} {first:8.2f} {second:8.2f}")
        return lines

    def growing(self, slope_mib_per_h: float, file_slack_mib: float) -> list[str]:
        """A sentence for each process and file that is not flat."""
        found = [
            f"{name} grows by {slope:.1f} MiB an hour"
            for name, series in sorted(self.processes.items())
            if (slope := series.slope_mib_per_h()) > slope_mib_per_h
        ]
        for name, series in sorted(self.files.items()):
            first, second = series.most_by_half()
            if second > first * 1.25 + file_slack_mib:
                found.append(f"{name} grew from {first:.1f} to {second:.1f} MiB")
        return found
