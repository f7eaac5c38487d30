"""The allocator's choice as machine code, where somebody has had it compiled. Nothing needs it: the sources decide the
same, a few times more slowly.

`python -m matrixcommon.native.build` (or `make compiled`) compiles the modules of `capacity/` into a folder of the
user's cache; `capacity/__init__.py` calls `take_up`, which puts that folder before the sources. The folder's name says
of which sources, for which Python and by which mypyc it was made, so that machine code of other sources is never found.
CLOUDMATRIX_KERNEL=off keeps it out, as it does the fabric's kernel. `python -m matrixcommon.native.loader` tells which of
the two forms this process would use, and exits with 1 where it is the interpreted one.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OPTIONS = ("-O1", "-g0", "-fwrapv", "-DNDEBUG", "-fPIC")  # -O2 takes nearly twice as long to compile and runs no faster
HINT = "`make compiled` compiles it"


@dataclass(frozen=True)
class Package:
    """A package whose modules are compiled together, but for those `left` as they are. Its `door` is loaded first:
    mypyc's data classes look for the types of their fields while they are made, those for type checking only too."""

    name: str
    folder: Path
    left: frozenset[str]
    door: str

    @property
    def library(self) -> str:
        """The module that has the machine code of all of them; theirs only hand it out (as mypyc names it)."""
        return f"{self.name}.native__mypyc"

    def sources(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.py") if path.stem not in self.left)


@dataclass(frozen=True)
class Form:
    """Which form of a package is in use, and for the interpreted one why."""

    compiled: bool
    why: str = ""

    @property
    def word(self) -> str:
        return "compiled" if self.compiled else "interpreted"

    def __str__(self) -> str:
        return self.word if self.compiled else f"{self.word} ({self.why})"


# What reads NetworkX graphs is the oracle of tests, and what a loss would take is asked of the topology in Python.
ALLOCATOR: Package = Package(
    "matrixresource.scheduler",
    Path(__file__).with_name("capacity"),
    left=frozenset({"__init__", "from_graph", "radius"}),
    door="ledger",
)


def take_up(package: Package, path: list[str]) -> Form:
    """Put the compiled modules of a package first in its `__path__`, where there are any that can be loaded."""
    if switched_off():
        return Form(False, "CLOUDMATRIX_KERNEL=off")
    folder = found(package)
    if folder is None:
        return Form(False, f"not compiled; {HINT}")
    path.insert(0, str(folder))
    try:
        importlib.import_module(package.library)
    except ImportError as error:
        path.remove(str(folder))
        return Form(False, f"what was compiled cannot be loaded: {error}")
    importlib.import_module(f"{package.name}.{package.door}")
    return Form(True)


def found(package: Package) -> Path | None:
    """The folder with the modules of just these sources: by the mypyc installed here, by any where there is none."""
    try:
        made = sorted(cache().glob(f"{package.name}-{key(package)}-mypyc*"))
    except (OSError, RuntimeError):
        return None  # no home, or none to read
    version = mypyc() if made else ""
    fitting = [folder for folder in made if not version or folder.name.endswith(f"-mypyc{version}")]
    return fitting[-1] if fitting else None


def folder_for(package: Package) -> Path:
    """Where its modules are once they are compiled by the mypyc installed here."""
    return cache() / f"{package.name}-{key(package)}-mypyc{mypyc()}"


def key(package: Package) -> str:
    """A hash of the sources, of Python's binary interface and of the C compiler's options."""
    seen = hashlib.sha256(f"{sysconfig.get_config_var('SOABI')} {sys.implementation.cache_tag} {OPTIONS}".encode())
    for source in package.sources():
        text = source.read_bytes()
        seen.update(f"\n{source.stem} {len(text)}\n".encode() + text)
    return seen.hexdigest()[:20]


def mypyc() -> str:
    """The version of the mypyc installed here, "" for none."""
    try:
        return metadata.version("mypy")
    except metadata.PackageNotFoundError:
        return ""


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def switched_off() -> bool:
    """Whether nothing compiled is wished for."""
    return os.environ.get("CLOUDMATRIX_KERNEL") == "off"


def cache() -> Path:
    """Where machine code is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudmatrix"


if __name__ == "__main__":
    from matrixresource.scheduler import FORM

    print(f"the allocator is {FORM}")
    sys.exit(0 if FORM.compiled else 1)
