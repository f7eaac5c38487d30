"""Prepared: the state of a stack that was started once, from which later stacks are copied.

The real code creates it: every service migrates its database, every node attests and enrols, and then all of it is
stopped like a process. A copy is thus a stack restarted on that state, with its clock continuing from there. Within a
session the state is kept in memory, and if the workers of a parallel run share a folder, there too: the first worker
creates it for all. The state that the pytest plugin starts from is also kept in the user's cache, as a snapshot under a
digest of the code that made it, so that the first test need not wait for enrolment either.
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
"""A stack that has not been started yet."""
CACHED_MAX = 8
"""Maximum number of cached states; the oldest are deleted. Each change of the code adds one."""


@dataclass(frozen=True)
class Prepared:
    """The state of a stack when it was stopped: its databases by file name, and the seconds that its clock had run
    since the epoch of stacks in one process. `names`: the mapping that entering the stack returned, if it returned
    one."""

    files: dict[str, bytes]
    seconds: float
    names: Mapping[str, str] = field(default_factory=dict)

    def write_to(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


_made: dict[str, Prepared] = {}
_shared: Path | None = None


def share(folder: Path | None) -> None:
    """Share prepared states through that folder from now on, among the processes of one test run."""
    global _shared
    _shared = folder


def prepared(
    kind: str,
    make: Callable[[Path], Startable],
    loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.SelectorEventLoop,
    *,
    cached: bool = False,
) -> Prepared:
    """Return the prepared state of this kind, created on first use by starting and stopping the stack of `make`. `loop`
    creates the event loop, whose time is made virtual if it is asyncio's own. `cached`: use the user's cache too."""
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
    """Hold an exclusive lock on the file. The lock is released when the process ends."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file


def read(file: Path) -> Prepared | None:
    """Return a snapshot as a state to start from, or None if there is none or it is damaged."""
    if not file.is_file():
        return None
    with suppress(MatrixError, OSError), tempfile.TemporaryDirectory() as folder:
        manifest = archive.extract(file, Path(folder))
        return Prepared(databases_in(Path(folder)), manifest.emulated_s - EPOCH_S)
    return None


def write(file: Path, state: Prepared, seed: int | None) -> Manifest:
    """Write the state as a snapshot, from which a stack of real processes can be restored too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state.write_to(folder)
        names = list(archive.database_names(folder))
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
    """Return a consistent copy of every database in the folder, even while services of this process write to them."""
    found = {}
    for file in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            found[file.name] = copy.serialize()
    return found


def code_digest() -> str:
    """Return a digest of the names, sizes and modification times of the packages' files: it changes with the code and
    is quick to compute."""
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
    """Store the state in the cache. A cache that cannot be written is ignored."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(file, state, None)
        for old in sorted(file.parent.glob("*.snapshot"), key=lambda each: each.stat().st_mtime)[:-CACHED_MAX]:
            old.unlink(missing_ok=True)


def _make(make: Callable[[Path], Startable], loop: Callable[[], asyncio.AbstractEventLoop]) -> Prepared:
    """Create the state in a new event loop with virtual time, in its own thread since the caller's loop is running."""
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
