"""The files of the project, as git knows them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.golden import ROOT


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]
