"""Loads packages as machine code, if they have been compiled. It is optional: the interpreted sources behave the same,
a few times slower.

`build` compiles the modules of a package into a folder of the user's cache; `activate`, called in the package's
`__init__.py`, makes imports look there first. The folder's name identifies the sources, Python and mypyc that it was
built from, so that machine code of other sources is never loaded. CLOUDMATRIX_KERNEL=off disables it, as it does the
fabric's kernel.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

OPTIONS = ("-O1", "-g0", "-fwrapv", "-DNDEBUG", "-fPIC")  # -O2 takes nearly twice as long to compile and runs no faster
HINT = "`make compiled` compiles it"


@dataclass(frozen=True)
class Package:
    """A package whose modules, including those of sub-packages, are compiled together, except those in `excluded`
    (names relative to the package). `entry_point` is loaded first: while mypyc's data classes are created, they look up
    the types of their fields, even those imported for type checking only."""

    name: str
    folder: Path
    excluded: frozenset[str]
    entry_point: str

    @property
    def root(self) -> Path:
        """The folder that its dotted name is relative to."""
        return self.folder.parents[self.name.count(".")]

    @property
    def library(self) -> str:
        """The module with the machine code of all modules, which are only shims for it (the name is mypyc's)."""
        return f"{self.name}.native__mypyc"

    def module(self, source: Path) -> str:
        """The dotted name of a source file, relative to the package."""
        return ".".join(source.relative_to(self.folder).with_suffix("").parts)

    def sources(self) -> list[Path]:
        return sorted(
            path
            for path in self.folder.rglob("*.py")
            if path.stem != "__init__" and self.module(path) not in self.excluded
        )


class CompiledFinder(MetaPathFinder):
    """Finds the compiled modules of a package in a folder, by their names."""

    def __init__(self, package: Package, folder: Path) -> None:
        self.paths = {
            f"{package.name}.{'.'.join((*path.relative_to(folder).parts[:-1], path.name.partition('.')[0]))}": path
            for path in folder.rglob("*.*")
            if path.is_file()
        }

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        found = self.paths.get(fullname)
        return None if found is None else importlib.util.spec_from_file_location(fullname, found)


@dataclass(frozen=True)
class BuildForm:
    """Which form of a package is in use and, for the interpreted one, why."""

    compiled: bool
    why: str = ""

    @property
    def word(self) -> str:
        return "compiled" if self.compiled else "interpreted"

    def __str__(self) -> str:
        return self.word if self.compiled else f"{self.word} ({self.why})"


def activate(package: Package) -> BuildForm:
    """Import the compiled modules of a package in place of its sources, if there are any that load."""
    if is_disabled():
        return BuildForm(False, "CLOUDMATRIX_KERNEL=off")
    folder = find_compiled(package)
    if folder is None:
        return BuildForm(False, f"not compiled; {HINT}")
    finder = CompiledFinder(package, folder)
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(package.library)
    except ImportError as error:
        sys.meta_path.remove(finder)
        return BuildForm(False, f"what was compiled cannot be loaded: {error}")
    importlib.import_module(f"{package.name}.{package.entry_point}")
    return BuildForm(True)


def find_compiled(package: Package) -> Path | None:
    """The folder with the modules built from exactly these sources, by the installed mypyc or, if none is installed, by
    any; None if there is none."""
    try:
        made = sorted(cache_folder().glob(f"{package.name}-{source_hash(package)}-mypyc*"))
    except (OSError, RuntimeError):
        return None  # no home directory, or not readable
    version = mypyc_version() if made else ""
    fitting = [folder for folder in made if not version or folder.name.endswith(f"-mypyc{version}")]
    return fitting[-1] if fitting else None


def build_folder(package: Package) -> Path:
    """Where its modules are when compiled by the installed mypyc."""
    return cache_folder() / f"{package.name}-{source_hash(package)}-mypyc{mypyc_version()}"


def source_hash(package: Package) -> str:
    """A hash of the sources, of Python's binary interface and of the C compiler's options."""
    seen = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')} {sys.implementation.cache_tag} {OPTIONS}".encode())
    for source in package.sources():
        text = source.read_bytes()
        seen.update(f"\n{package.module(source)} {len(text)}\n".encode() + text)
    return seen.hexdigest()[:20]


def mypyc_version() -> str:
    """The version of the installed mypyc, "" if there is none."""
    try:
        return metadata.version("mypy")
    except metadata.PackageNotFoundError:
        return ""


def find_compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def is_disabled() -> bool:
    """Whether compiled code is disabled."""
    return os.environ.get("CLOUDMATRIX_KERNEL") == "off"


def cache_folder() -> Path:
    """The folder for machine code."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudmatrix"
