"""Compiles the allocator's choice with mypyc: `python -m matrixcommon.native.build`.

mypyc (of the package mypy) translates the annotated modules to C, a C compiler makes a library of them, one object per
module on all cores, in about a minute of one. All of it is made in a folder of its own, tried in a process of its own,
and then moved to its place at once, so that a kill at any moment leaves nothing that could be loaded.
Exit code 0: it is there (also when it was before); 3: it cannot be made here, with the reason; 1: it failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from matrixcommon.native.loader import ALLOCATOR, OPTIONS, Package, cache, compiler, folder_for

KEPT = 8  # builds of a package that are kept, the newest
CANNOT = 3
CHECK = """
import importlib, sys
package = importlib.import_module(sys.argv[1])
package.__path__.insert(0, sys.argv[2])
for name in sys.argv[3:]:
    module = importlib.import_module(f"{sys.argv[1]}.{name}")
    if not module.__file__.startswith(sys.argv[2]):
        sys.exit(f"{name} was loaded from {module.__file__}")
"""

Maker = Callable[[Package, Path, Path], None]


class Failed(Exception):
    """What the compiler, or the trial of what it made, said."""


def missing() -> str:
    """What is missing for a build, "" for nothing."""
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        return "mypyc is not installed (pip install mypy setuptools)"
    if compiler() is None:
        return "there is no C compiler (on Debian and Ubuntu: apt-get install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of Python are missing (on Debian and Ubuntu: apt-get install python3-dev)"
    return ""


def build(package: Package, make: Maker | None = None) -> Path:
    """The folder with the compiled modules, made now where it is not there. `make` puts them into a folder, and may
    use another for what it needs on the way; by default `with_mypyc`."""
    target = folder_for(package)
    cache().mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(package):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=f"{package.name}.building-", dir=cache()) as folder:
                made, between = Path(folder, "made"), Path(folder, "between")
                made.mkdir()
                between.mkdir()
                (make or with_mypyc)(package, made, between)
                tried(package, made)
                made.rename(target)
        for old in sorted(cache().glob(f"{package.name}-*"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return target


@contextlib.contextmanager
def alone(package: Package) -> Iterator[None]:
    """One build at a time; what a killed one left behind is taken away."""
    with Path(cache(), f"{package.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache().glob(f"{package.name}.building-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def tried(package: Package, made: Path) -> None:
    """Import all of it in a process of its own, so that what cannot be loaded never gets to its place."""
    names = [package.door, *(source.stem for source in package.sources())]
    root = package.folder.parents[package.name.count(".")]
    ran = subprocess.run(
        [sys.executable, "-c", CHECK, package.name, str(made), *names],
        env=os.environ | {"CLOUDMATRIX_KERNEL": "off", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        raise Failed(f"what was compiled cannot be loaded (exit code {ran.returncode}): {ran.stderr}")


def with_mypyc(package: Package, made: Path, between: Path) -> None:
    """Translate to C, compile every file of it, link the library and the module of each source."""
    library, *modules = translated(package, between)
    include = [*library.include_dirs, sysconfig.get_path("include"), str(between / package.name.replace(".", "/"))]
    options = [*OPTIONS, "-w", *(f"-I{folder}" for folder in include)]
    sources = sorted(library.sources, key=os.path.getsize, reverse=True) + [s for m in modules for s in m.sources]
    objects = {source: str(between / f"{number}.o") for number, source in enumerate(sources)}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    compiling = [[*options, "-c", source, "-o", objects[source]] for source in sources]
    linking = [
        [*shared, *(objects[s] for s in each.sources), "-o", str(made / f"{each.name.rpartition('.')[2]}{suffix}")]
        for each in (library, *modules)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, compiling))
        list(pool.map(run, linking))


def translated(package: Package, folder: Path) -> list[Any]:
    """The library with its C files, and then one small module for each source. What they import from outside the
    package is not looked into."""
    from mypyc.build import mypycify

    root = package.folder.parents[package.name.count(".")]
    said = io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            return mypycify(
                [
                    "--config-file=",
                    "--follow-imports=skip",
                    f"--cache-dir={folder / 'types'}",
                    *(str(source.relative_to(root)) for source in package.sources()),
                ],
                multi_file=True,
                target_dir=str(folder),
                group_name=package.library.removesuffix("__mypyc"),
            )
        except SystemExit as refused:
            raise Failed(said.getvalue()) from refused


def run(arguments: list[str]) -> None:
    ran = subprocess.run([compiler() or "cc", *arguments], capture_output=True, text=True)
    if ran.returncode:
        raise Failed(ran.stderr)


def main() -> int:
    if (what := missing()) and not folder_for(ALLOCATOR).exists():
        print(f"the allocator is not compiled: {what}; it works without, more slowly")
        return CANNOT
    begun, there = time.monotonic(), folder_for(ALLOCATOR).exists()
    try:
        target = build(ALLOCATOR)
    except (Failed, OSError) as error:
        print(f"the allocator could not be compiled: {error}", file=sys.stderr)
        return 1
    print(f"the allocator is compiled {'already' if there else f'in {time.monotonic() - begun:.0f} s'}: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
