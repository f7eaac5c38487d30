"""Memory of a process, as the system counts it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes. `rss` counts shared pages fully in every process; `pss` gives each its share, so it adds up."""

    pss: int | None
    rss: int | None


def process_memory(pid: int) -> ProcessMemory:
    """Memory of one process; None if the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return ProcessMemory(sizes["Pss"], sizes["Rss"])
    except (OSError, KeyError, IndexError, ValueError):
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        text = shown.stdout.strip()
        return ProcessMemory(None, int(text) * 1024 if text.isdigit() else None)
