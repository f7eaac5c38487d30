"""TypeScript's compiler, for the types of the console's modules: installed where it is missing, and run.

    python -m tests.services.console.typescript     # `make types`; exit code 3 where it cannot be installed here

The locked packages come by npm, once for each state of the lock. A machine without npm gets one for this alone, out of
a wheel, into the cache folder that git ignores. The compiler is machine code and needs no Node.js to run.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "types"
ROOT = HERE.parents[3]
CACHE = ROOT / ".cache" / "typescript"
PACKAGES = HERE / "node_modules"
INSTALL_WALL_S, CHECK_WALL_S = 600.0, 120.0
CANNOT_BE_HAD = 3


class NotInstalled(Exception):
    """It cannot be installed here; the message says why."""


def compiler() -> Path | None:
    """The one that is installed and as the lock has it."""
    names = ("tsc", "tsc.exe")
    found = next((each for name in names for each in PACKAGES.glob(f"@typescript/typescript-*/lib/{name}")), None)
    return found if found is not None and _stamp().exists() else None


def installed() -> Path:
    """The compiler, installed first where it is missing. Raises NotInstalled."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if compiler() is None:
            settings = ("--no-audit", "--no-fund", "--ignore-scripts")
            _run([shutil.which("npm") or str(_npm_of_a_wheel()), "--prefix", str(HERE), "ci", *settings])
            _stamp().touch()
    if (found := compiler()) is None:
        raise NotInstalled(f"TypeScript has no compiler for {sys.platform}")
    return found


def check(with_compiler: Path, project: Path = HERE / "tsconfig.json") -> subprocess.CompletedProcess[str]:
    """What is wrong is on standard output, and the exit code is not 0."""
    command = [str(with_compiler), "--project", str(project)]
    return subprocess.run(command, capture_output=True, text=True, timeout=CHECK_WALL_S, check=False)


def _stamp() -> Path:
    """A file that says that npm came to its end with this lock."""
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
    return PACKAGES / f".installed-{digest}"


def _npm_of_a_wheel() -> Path:
    requirements = HERE / "requirements-npm.txt"
    place = CACHE / f"npm-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    npm = place / "bin" / "npm"
    if not npm.exists():
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", "-r", str(requirements)])
    return npm


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_WALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as wrong:
        raise NotInstalled(f"{Path(command[0]).name}: {wrong}") from wrong
    if done.returncode:
        raise NotInstalled(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-300:]}")


def main() -> int:
    try:
        found = installed()
    except NotInstalled as why:
        print(f"NO TYPES CHECKED: TypeScript cannot be installed here ({why})", file=sys.stderr)
        return CANNOT_BE_HAD
    done = check(found)
    print(done.stdout, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
