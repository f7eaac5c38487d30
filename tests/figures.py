"""What a test of load, kills or attacks has measured, shown in the summary that ends a run of pytest.

A test that takes the fixture `figures` fills one in; it is printed whether the test passes or not, and nothing is
asserted on it: how fast a machine is fails no test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

PROPERTY = "figures"


@dataclass
class Figures:
    """`errors` are answers that should not have been; what a kill cuts off has no answer and is none. `worst_ms` is the
    longest that a client waited which does nothing out of order."""

    requests: int = 0
    errors: int = 0
    worst_ms: float = 0.0
    memory_before_mb: float = 0.0
    memory_after_mb: float = 0.0
    more: str = ""

    def answered(self, took_s: float) -> None:
        """One more request had its answer, after that long."""
        self.requests += 1
        self.worst_ms = max(self.worst_ms, 1000 * took_s)

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests, {self.errors} errors, worst delay {self.worst_ms:,.0f} ms, "
            f"memory {self.memory_before_mb:.0f} to {self.memory_after_mb:.0f} MB{self.more and '; '}{self.more}"
        )


def printed(reports: Iterable[Any]) -> Iterator[str]:
    """A line for each test that measured."""
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == PROPERTY and report.when == "teardown":
                yield f"{report.nodeid.removeprefix('tests/')}: {value}"
