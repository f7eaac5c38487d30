"""Compiles a package with mypyc.

mypyc (part of mypy) translates the annotated modules to C, and setuptools has a C compiler build a library from them,
in about a minute. The build happens in a temporary folder, is tested in a separate process, and is then renamed into
place atomically, so that a kill at any moment leaves nothing incomplete that could be loaded.
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
from collections.abc import Callable, Iterator
from pathlib import Path

from matrixcommon.native.loader import OPTIONS, Package, build_folder, cache_folder, find_compiler

BUILDS_KEPT = 8  # how many of a package's newest builds are kept
CHECK_SCRIPT = """
import importlib, sys
from pathlib import Path
from matrixcommon.native.loader import CompiledFinder, Package
package = Package(sys.argv[1], Path(sys.argv[2]), frozenset(), "")
sys.meta_path.insert(0, CompiledFinder(package, Path(sys.argv[3])))
for name in sys.argv[4:]:
    module = importlib.import_module(f"{package.name}.{name}")
    if not module.__file__.startswith(sys.argv[3]):
        sys.exit(f"{name} was loaded from {module.__file__}")
"""

Compiler = Callable[[Package, Path, Path], None]


class BuildFailed(Exception):
    """The output of a failed compilation, or of a failed test of its result."""


def missing_requirements() -> str:
    """What is missing for a build, "" for nothing."""
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        return "mypyc is not installed (pip install mypy setuptools)"
    if find_compiler() is None:
        return "there is no C compiler (on Debian and Ubuntu: apt-get install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of Python are missing (on Debian and Ubuntu: apt-get install python3-dev)"
    return ""


def build(package: Package, make: Compiler | None = None) -> Path:
    """Return the folder with the compiled modules, building it if it does not exist. `make(package, made, between)`
    compiles into the folder `made` and may use `between` for intermediate files; the default is
    `compile_with_mypyc`."""
    target = build_folder(package)
    cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with build_lock(package):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=f"{package.name}.building-", dir=cache_folder()) as folder:
                made, between = Path(folder, "made"), Path(folder, "between")
                made.mkdir()
                between.mkdir()
                (make or compile_with_mypyc)(package, made, between)
                check_loadable(package, made)
                made.rename(target)
        for old in sorted(cache_folder().glob(f"{package.name}-*"), key=lambda path: path.stat().st_mtime)[
            :-BUILDS_KEPT
        ]:
            shutil.rmtree(old, ignore_errors=True)
    return target


@contextlib.contextmanager
def build_lock(package: Package) -> Iterator[None]:
    """Hold the lock that allows one build at a time, and delete what killed builds left behind."""
    with Path(cache_folder(), f"{package.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache_folder().glob(f"{package.name}.building-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def check_loadable(package: Package, made: Path) -> None:
    """Import all modules in a separate process, so that a build that cannot be loaded is never put in place."""
    names = [package.entry_point, *(package.module(source) for source in package.sources())]
    here = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", CHECK_SCRIPT, package.name, str(package.folder), str(made), *names],
        env=os.environ | {"CLOUDMATRIX_KERNEL": "off", "PYTHONPATH": os.pathsep.join([str(package.root), str(here)])},
        capture_output=True,
        text=True,
    )
    if ran.returncode:
        raise BuildFailed(f"what was compiled cannot be loaded (exit code {ran.returncode}): {ran.stderr}")


def compile_with_mypyc(package: Package, made: Path, between: Path) -> None:
    """Translate the modules to C and compile them with setuptools, one extension after another. Imports from outside
    the package are not analysed."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CompileError

    output = io.StringIO()
    sources = [str(source.relative_to(package.root)) for source in package.sources()]
    options = ["--config-file=", "--follow-imports=skip", f"--cache-dir={between / 'types'}"]
    with contextlib.chdir(package.root), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            extensions = mypycify(
                [*options, *sources],
                multi_file=True,
                target_dir=str(between),
                group_name=package.library.removesuffix("__mypyc"),
            )
            for extension in extensions:
                extension.extra_compile_args = [*OPTIONS, "-w"]
                extension.include_dirs.append(str(between / package.name.replace(".", "/")))
                extension.name = extension.name.removeprefix(f"{package.name}.")
            command = build_ext(Distribution({"name": package.name, "ext_modules": extensions}))
            command.build_lib, command.build_temp = str(made), str(between / "objects")
            command.ensure_finalized()
            command.run()
        except (SystemExit, OSError, BaseError, CompileError) as refused:
            raise BuildFailed(f"{output.getvalue()}{refused}") from refused
