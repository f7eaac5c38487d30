"""What machine a stack emulates: `--topology` of `matrixctl up`, and what becomes of it.

It is the name of a built-in machine, a YAML file with a machine's numbers, or a file in which a supernode is drawn. By
its numbers a supernode is known to all who count ports; a drawing is read by MatrixResource alone, of which the others
learn how it is wired. The state keeps a copy of a file, so that it is the same machine at every start, and in every
snapshot.

What its numbers are is for `machine_numbers.py`.
"""

from __future__ import annotations

from pathlib import Path

from matrixresource.machines import built_in, of_numbers
from services.matrixctl.supervisor.state_folder import Folder, write
from services.snapshots.machine_file import MACHINE

BUILT_TO_NUMBERS = ("resource", "link", "agents")
"""The processes that know a supernode by its numbers."""


def settings_of(process: str, topology: str) -> dict[str, str]:
    """What a process has to be told of it."""
    if not topology:
        return {}
    if of_numbers(topology):
        return {"SPEC": topology} if process in BUILT_TO_NUMBERS else {}
    return {"TOPOLOGY": topology} if process == "resource" else {}


def kept(topology: str, folder: Folder) -> str:
    """What a state has of its machine: a name, or that of the copy of its file in the folder, which is made here."""
    if not topology:
        return topology
    if topology in built_in() or Path(topology).parent == Path():
        return topology
    copy = folder.path / f"{MACHINE}{Path(topology).suffix.lower()}"
    write(copy, Path(topology).read_text(encoding="utf-8"))
    return copy.name


def located(topology: str, folder: Folder) -> str:
    """A state's machine as a process is told of it: a name, or where its file is. States of earlier versions have the
    path of their user's file."""
    if not topology:
        return topology
    return topology if topology in built_in() else str(folder.path / topology)
