"""Load generators as their users have them: installed from the index into an environment of their own, once a machine.

The environments lie in the cache folder that git ignores, named for what is in them, and are kept. Where one cannot be
made (no index, no room, no Python that is new enough) the test is skipped and says why.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CACHE = Path(__file__).parents[3] / ".cache" / "load-generators"
INSTALL_WALL_S = 900.0
PIP = (sys.executable, "-m", "pip")
INSTALL = ("install", "--quiet", "--no-input", "--no-compile")
"""Most of its thousands of modules are never imported; those that are, Python compiles when they are."""


def installed(tool: str, *, python: str = sys.executable) -> Path:
    """The `bin` folder of the environment that `requirements-<tool>.txt` asks for."""
    requirements = HERE / f"requirements-{tool}.txt"
    digest = hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()[:12]
    place = CACHE / f"{tool}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{tool}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _install(tool, place, requirements, python)
    return place / "bin"


def _install(tool: str, place: Path, requirements: Path, python: str) -> None:
    shutil.rmtree(place, ignore_errors=True)
    if shutil.which(python) is None:
        pytest.skip(f"{tool} needs {Path(python).name}, which is not here")
    for command in (
        [python, "-m", "venv", "--without-pip", str(place)],
        [*PIP, "--python", str(place / "bin/python"), *INSTALL, "-r", str(requirements)],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WALL_S)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{tool} was not installed within {INSTALL_WALL_S:g} s")
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            pytest.skip(f"{tool} cannot be installed here: {(done.stderr or done.stdout).strip()[-300:]}")
    (place / "ready").touch()
