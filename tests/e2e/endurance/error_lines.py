"""The lines of a stack's logs that nobody should have to read: errors and tracebacks, read on as the logs grow."""

from __future__ import annotations

from pathlib import Path

WRONG = ('"level": "ERROR"', '"level": "CRITICAL"', "Traceback (most recent call last)")
LONG = 2000


class ErrorLines:
    """Of every log of a folder, also of what was rotated between two looks."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.found: list[str] = []
        self._read: dict[str, int] = {}

    def look(self) -> None:
        for file in sorted(self.logs.glob("*.log")):
            at = self._read.get(file.name, 0)
            if file.stat().st_size < at:  # begun anew: the rest of what was there lies in the newest of the older ones
                self._take(file.with_name(f"{file.name}.1"), at)
                at = 0
            self._read[file.name] = self._take(file, at)

    def _take(self, file: Path, at: int) -> int:
        """Look at the whole lines from there on; where the next one begins."""
        with file.open("rb") as log:
            log.seek(at)
            whole, newline, _ = log.read().rpartition(b"\n")
        for line in whole.decode(errors="replace").splitlines():
            if any(each in line for each in WRONG):
                self.found.append(f"{file.name}: {line[:LONG]}")
        return at + len(whole) + len(newline)
