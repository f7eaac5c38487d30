"""When machine code of the allocator is used and when not, on a stand-in whose "compiler" copies Python files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from matrixcommon.native import build as compiling
from matrixcommon.native import loader
from matrixcommon.native.build import BuildFailed, build
from matrixcommon.native.loader import Package, build_folder, find_compiled
from matrixresource.native_allocator import EXIT_CANNOT_COMPILE, main
from matrixresource.scheduler import ALLOCATOR

ROOT = Path(loader.__file__).parents[1]
# In a process of its own, as importing cannot be undone: how the stand-in says it was loaded, and its answer.
ASK = """
import sys
from pathlib import Path
from matrixcommon.native.loader import Package, activate
import stand_in
form = activate(Package("stand_in", Path(sys.argv[1]), frozenset({"room.oracle"}), "door"))
import stand_in.door, stand_in.room.inner, stand_in.room.oracle
print(form, stand_in.door.ANSWER, stand_in.room.oracle.ANSWER, stand_in.room.inner.ANSWER, sep="|")
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from matrixcommon.native.loader import Package
from matrixcommon.native.build import build
def make(package, made, between):
    Path(made, "door.py").write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
build(Package("stand_in", Path(sys.argv[1]), frozenset({"room.oracle"}), "door"), make)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CLOUDMATRIX_KERNEL", raising=False)
    folder = tmp_path / "src" / "stand_in"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "door.py").write_text("ANSWER = 'source'\n")
    (folder / "room").mkdir()
    (folder / "room" / "__init__.py").touch()
    for name in ("inner", "oracle"):
        (folder / "room" / f"{name}.py").write_text("ANSWER = 'source'\n")
    return Package("stand_in", folder, frozenset({"room.oracle"}), "door")


def copies(package: Package, made: Path, between: Path) -> None:
    (made / "native__mypyc.py").touch()
    for source in package.sources():
        target = made / source.relative_to(package.folder)
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text().replace("source", "machine code"))


def run(text: str, package: Package, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(package.folder.parent), str(ROOT)])
    command = [sys.executable, "-c", text, str(package.folder)]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": paths} | env, capture_output=True, text=True)


def ask(package: Package, **env: str) -> list[str]:
    ran = run(ASK, package, **env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().split("|")


def test_sources_are_used_until_somebody_compiles_them(stand_in: Package) -> None:
    assert ask(stand_in) == ["interpreted (not compiled; `make compiled` compiles it)", "source", "source", "source"]
    build(stand_in, copies)
    assert ask(stand_in) == ["compiled", "machine code", "source", "machine code"], (
        "what is left as it is stays in Python"
    )


def test_the_switch_keeps_machine_code_out(stand_in: Package) -> None:
    build(stand_in, copies)
    assert ask(stand_in, CLOUDMATRIX_KERNEL="off") == [
        "interpreted (CLOUDMATRIX_KERNEL=off)",
        "source",
        "source",
        "source",
    ]


def test_machine_code_of_other_sources_is_never_found(stand_in: Package) -> None:
    build(stand_in, copies)
    before = (stand_in.folder / "door.py").read_text()
    (stand_in.folder / "room" / "oracle.py").write_text("ANSWER = 'another'\n")
    assert find_compiled(stand_in) == build_folder(stand_in), "what is not compiled does not count"
    (stand_in.folder / "door.py").write_text("ANSWER = 'new source'\n")
    assert find_compiled(stand_in) is None
    assert ask(stand_in)[1] == "new source"
    (stand_in.folder / "door.py").write_text(before)
    (stand_in.folder / "door.py").rename(stand_in.folder / "gate.py")
    assert find_compiled(stand_in) is None, "a module's name counts, not its text alone"


@pytest.mark.parametrize("what", ["options", "python"])
def test_machine_code_for_another_python_or_of_other_options_is_never_found(
    stand_in: Package, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    build(stand_in, copies)
    if what == "options":
        monkeypatch.setattr(loader, "OPTIONS", ("-O3",))
    else:
        monkeypatch.setattr(loader.sysconfig, "get_config_var", lambda name: f"another {name}")
    assert find_compiled(stand_in) is None


def test_an_older_mypyc_counts_only_where_there_is_none(stand_in: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "mypyc_version", lambda: "1.0")
    old = build(stand_in, copies)
    monkeypatch.setattr(loader, "mypyc_version", lambda: "1.0.1")
    assert find_compiled(stand_in) is None
    monkeypatch.setattr(loader, "mypyc_version", lambda: "")
    assert find_compiled(stand_in) == old


def test_unloadable_build_falls_back_to_sources(stand_in: Package) -> None:
    """As after a new C library on the machine."""
    (build(stand_in, copies) / "native__mypyc.py").write_text("raise ImportError('no such symbol')\n")
    form, *answers = ask(stand_in)
    assert form == "interpreted (what was compiled cannot be loaded: no such symbol)"
    assert answers == ["source", "source", "source"]


def test_a_build_that_cannot_be_loaded_is_not_kept(stand_in: Package) -> None:
    def half(package: Package, made: Path, between: Path) -> None:
        copies(package, made, between)
        (made / "door.py").write_text("raise ImportError('half of it')\n")

    with pytest.raises(BuildFailed, match="half of it"):
        build(stand_in, half)
    assert find_compiled(stand_in) is None
    with pytest.raises(BuildFailed, match="door was loaded from"):
        build(stand_in, lambda package, made, between: None)


def test_a_killed_build_leaves_nothing_that_is_loaded(stand_in: Package) -> None:
    assert run(KILLED, stand_in).returncode == -signal.SIGKILL
    assert list(loader.cache_folder().glob("stand_in.building-*")), "it was killed in the middle"
    assert ask(stand_in)[1] == "source"
    build(stand_in, copies)
    assert ask(stand_in)[1] == "machine code"
    assert not list(loader.cache_folder().glob("stand_in.building-*"))


def test_existing_build_is_reused_and_old_ones_are_removed(stand_in: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "BUILDS_KEPT", 2)
    made = []

    def counted(package: Package, folder: Path, between: Path) -> None:
        made.append(folder)
        copies(package, folder, between)

    for version in range(4):
        (stand_in.folder / "door.py").write_text(f"ANSWER = 'source {version}'\n")
        folder = build(stand_in, counted)
        os.utime(folder, (version + 1, version + 1))
        assert build(stand_in, counted) == folder == find_compiled(stand_in)
    assert len(made) == 4
    assert len(list(loader.cache_folder().glob("stand_in-*"))) == 2


def test_without_a_compiler_it_says_so_in_one_line(
    stand_in: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(stand_in.folder))
    assert main([]) == EXIT_CANNOT_COMPILE
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert "no C compiler" in text


def test_every_module_of_the_allocator_is_compiled_or_named_as_excluded() -> None:
    names = {ALLOCATOR.module(path) for path in ALLOCATOR.folder.rglob("*.py") if path.stem != "__init__"}
    assert names >= ALLOCATOR.excluded | {ALLOCATOR.entry_point}
    assert {ALLOCATOR.module(source) for source in ALLOCATOR.sources()} == names - ALLOCATOR.excluded
    assert loader.source_hash(ALLOCATOR) != loader.source_hash(
        replace(ALLOCATOR, excluded=ALLOCATOR.excluded | {"changes.relayout"})
    )
