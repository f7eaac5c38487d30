"""A snapshot carries the machine that its stack was begun as, and is restored as that machine wherever it is."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict
from matrixresource.machines import DEFAULT_FILE
from services.matrixctl.snapshots.snapshot import REPLACED, restore, take_snapshot
from services.matrixctl.supervisor.machine import store_machine_file
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder
from services.snapshots import archive
from services.snapshots.archive import MANIFEST, UnknownSnapshot
from services.testing.cloudmatrix import CloudMatrix


def begun(folder: StateFolder, topology: str) -> StateFolder:
    """With a state of that machine, as a supervisor leaves it."""
    folder.prepare()
    folder.write(Stack((), StackTime(1, 0, 0, 0), topology=store_machine_file(topology, folder)))
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A snapshot of a stack whose machine was a file, which is gone."""
    numbers = tmp_path / "mine.yaml"
    numbers.write_text(DEFAULT_FILE.read_text().replace("CloudMatrix384", "Mine"))
    take_snapshot(begun(StateFolder(tmp_path / "state"), str(numbers)), tmp_path / "mine.snapshot")
    numbers.unlink()
    return tmp_path / "mine.snapshot"


@pytest.mark.parametrize("before", [None, "", "atlas-950"])
def test_a_folder_is_of_the_machine_of_what_was_restored(mine: Path, tmp_path: Path, before: str | None) -> None:
    folder = StateFolder(tmp_path / "elsewhere")
    if before is not None:
        begun(folder, before)
    _, request = restore(folder, mine)
    stack = folder.read()
    assert stack is not None
    assert request.topology == stack.topology == "machine.yaml"
    assert "Mine" in (folder.path / "machine.yaml").read_text()
    if before is not None:
        _, request = restore(folder, folder.path / REPLACED)
        assert request.topology == before, "what was replaced had its own"


def test_a_snapshot_of_a_version_that_did_not_say_changes_no_machine(tmp_path: Path) -> None:
    take_snapshot(begun(StateFolder(tmp_path / "state"), ""), tmp_path / "old.snapshot")
    manifest = archive.read_manifest(tmp_path / "old.snapshot").model_dump_json(exclude={"topology"})
    with zipfile.ZipFile(tmp_path / "old.snapshot", "w") as old:
        old.writestr(MANIFEST, manifest)
    _, request = restore(begun(StateFolder(tmp_path / "other"), "atlas-950"), tmp_path / "old.snapshot")
    assert request.topology == "atlas-950"


@pytest.mark.parametrize("named", ["../machine.yaml", "/etc/passwd", "machine.yaml/../../x"])
def test_a_machine_lies_nowhere_else(mine: Path, named: str) -> None:
    manifest = archive.read_manifest(mine).model_dump_json().replace("machine.yaml", named)
    with zipfile.ZipFile(mine, "w") as other:
        other.writestr(MANIFEST, manifest)
    with pytest.raises(UnknownSnapshot, match="is invalid"):
        archive.read_manifest(mine)


async def test_virtual_time_plays_no_other_machine_and_says_so(mine: Path) -> None:
    with pytest.raises(Conflict, match=r"is of another machine \(machine.yaml\) than virtual time supports"):
        await CloudMatrix(snapshot=mine).__aenter__()
