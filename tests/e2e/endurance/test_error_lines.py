"""What the endurance soak reads of the logs: each error once, whatever is rotated meanwhile."""

from __future__ import annotations

from pathlib import Path

from services.matrixctl.supervisor.log_rotation import rotate
from tests.e2e.endurance.error_lines import ErrorLines

FINE = '{"level": "WARNING", "event": "watcher refused"}\n'
WRONG = '{"level": "ERROR", "event": "step failed"}\n'


def test_errors_are_found_once_and_across_rotation(tmp_path: Path) -> None:
    log = tmp_path / "compute.log"
    lines = ErrorLines(tmp_path)
    log.write_text(FINE + WRONG + FINE + WRONG[:10])
    lines.look()
    lines.look()
    assert lines.found == [f"compute.log: {WRONG.strip()}"]
    with log.open("a") as writer:
        writer.write(WRONG[10:] + FINE)
    assert rotate(log, bytes_max=1)
    log.write_text("Traceback (most recent call last):\n")
    lines.look()
    assert lines.found[1:] == [
        f"compute.log.1: {WRONG.strip()}",
        "compute.log: Traceback (most recent call last):",
    ]
