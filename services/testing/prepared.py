"""Prepared: a stack that has been started before, to be copied by those that come after it.

The real code makes it: every service migrates its own database, every node proves what it is and enrols, then all of
it is ended as a process is. A copy is thus a stack that starts again on what it had written, with its clock going on
from there. Within a session it is kept in memory, and in a folder where the workers of a parallel run share one: the
first of them makes it for all. What the pytest plugin starts with is kept in the user's cache as well, as a snapshot
under a digest of the code that made it, so that a first test need not wait for an enrolment either.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import pickle
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import MatrixError
from services.chassis.version import version
from services.snapshots import archive
from services.snapshots.archive import Manifest
from services.testing.clocks import EPOCH_S
from services.testing.virtual_time import virtual_time

PACKAGES = (
    "services",
    "matrixcommon",
    "matrixresource",
    "matrixlink",
    "matrixcompute",
    "matrixcontainer",
    "infer_workload",
)
Startable = AbstractAsyncContextManager[Any]
"""A stack that is not started yet."""
CACHED_MAX = 8
"""Older ones go: each change of the code makes a new one."""


@dataclass(frozen=True)
class Prepared:
    """What a stack had written when it was ended: its databases by file name, and how many seconds its clock had run
    since the epoch of stacks in one process. `names`: what was made up in it, where starting it gives that."""

    files: dict[str, bytes]
    seconds: float
    names: Mapping[str, str] = field(default_factory=dict)

    def lay_down(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


_made: dict[str, Prepared] = {}
_shared: Path | None = None


def share(folder: Path | None) -> None:
    """From now on look there first, and leave there what is made here: for processes of one run."""
    global _shared
    _shared = folder


def prepared(
    kind: str,
    make: Callable[[Path], Startable],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,
    *,
    cached: bool = False,
) -> Prepared:
    """The one of this kind, made by starting and ending a stack of `make` the first time it is asked for. `loop` makes
    an event loop, whose time is made virtual where it is asyncio's own. `cached`: look for it in the user's cache
    first, and leave it there."""
    if kind not in _made and not cached and _shared is not None:
        with _locked(_shared / hashlib.sha256(kind.encode()).hexdigest()[:24]) as file:
            if not file.exists():
                part = file.with_suffix(".part")
                part.write_bytes(pickle.dumps(_make(make, loop)))
                part.rename(file)
            _made[kind] = pickle.loads(file.read_bytes())
    if kind not in _made:
        file = _cache() / f"{hashlib.sha256(f'{kind} {code_digest()}'.encode()).hexdigest()[:24]}.snapshot"
        found = read(file) if cached else None
        if found is None:
            found = _make(make, loop)
            if cached:
                _keep(file, found)
        _made[kind] = found
    return _made[kind]


@contextmanager
def _locked(file: Path) -> Iterator[Path]:
    """The file, while no other process has it; the end of a process lets go of it."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file


def read(file: Path) -> Prepared | None:
    """A snapshot as a state to start from; None where there is no sound one."""
    if not file.is_file():
        return None
    with suppress(MatrixError, OSError), tempfile.TemporaryDirectory() as folder:
        manifest = archive.extract(file, Path(folder))
        return Prepared(databases_in(Path(folder)), manifest.emulated_s - EPOCH_S)
    return None


def write(file: Path, state: Prepared, seed: int | None) -> Manifest:
    """That state as a snapshot, by which a stack of real processes can be restored too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state.lay_down(folder)
        names = list(archive.names_in(folder))
        manifest = Manifest(
            version=version(),
            taken_wall_s=time.time(),
            emulated_s=EPOCH_S + state.seconds,
            time_scale=1.0,
            seed=seed,
            processes=tuple(names),
            topology="",
        )
        return archive.write(file, manifest, {each: folder / f"{each}.db" for each in names})


def databases_in(folder: Path) -> dict[str, bytes]:
    """Every database there as one file, as of now, also while services of this process write into them."""
    found = {}
    for file in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            found[file.name] = copy.serialize()
    return found


def code_digest() -> str:
    """Changes with every file of the packages: names, sizes and times of change, which is quick to read."""
    root, digest = Path(__file__).resolve().parents[2], hashlib.sha256()
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*")):
            if file.suffix in (".py", ".yaml", ".json"):
                stat = file.stat()
                digest.update(f"{file.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudmatrix" / "prepared"


def _keep(file: Path, state: Prepared) -> None:
    """A cache that cannot be written is none."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(file, state, None)
        for old in sorted(file.parent.glob("*.snapshot"), key=lambda each: each.stat().st_mtime)[:-CACHED_MAX]:
            old.unlink(missing_ok=True)


def _make(make: Callable[[Path], Startable], loop: Callable[[], asyncio.AbstractEventLoop]) -> Prepared:
    """In a loop of its own, whose time is virtual whatever the asking test's is: it needs a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_start_and_end, make, loop).result()


def _start_and_end(make: Callable[[Path], Startable], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Prepared:
    folder = Path(tempfile.mkdtemp())
    try:
        with closing(new_loop()) as loop:
            stack = make(folder)
            if isinstance(loop, asyncio.SelectorEventLoop) and type(loop).time is asyncio.SelectorEventLoop.time:
                with virtual_time(loop):
                    seconds, names = loop.run_until_complete(_started(stack))
            else:
                seconds, names = loop.run_until_complete(_started(stack))
        return Prepared(databases_in(folder), seconds, names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _started(stack: Startable) -> tuple[float, Mapping[str, str]]:
    async with stack as given:
        names = given if isinstance(given, Mapping) else {}
    return asyncio.get_running_loop().time(), names
