"""The machine that a stack emulates: `--topology` of `matrixctl up`, and its copy in the state folder.

It is the name of a built-in machine, a machine file (YAML), or a drawing of a supernode. All processes that count ports
read the machine file; a drawing is read only by MatrixResource, which tells the others the wiring. The state folder
keeps a copy of the file, so that the machine is the same at every start and in every snapshot. `machine_check.py`
reads it.
"""

from __future__ import annotations

from pathlib import Path

from matrixresource.machines import built_in_specs, has_spec
from services.matrixctl.supervisor.state_folder import StateFolder, write_atomically
from services.snapshots.machine_file import MACHINE

SPEC_PROCESSES = ("resource", "link", "agents")
"""The processes that read a supernode's machine file."""


def machine_settings(process: str, topology: str) -> dict[str, str]:
    """The settings that tell a process its machine."""
    if not topology:
        return {}
    if has_spec(topology):
        return {"SPEC": topology} if process in SPEC_PROCESSES else {}
    return {"TOPOLOGY": topology} if process == "resource" else {}


def store_machine_file(topology: str, folder: StateFolder) -> str:
    """The state's machine: a built-in name, or the name of the copy of its file, which this function makes."""
    if not topology:
        return topology
    if topology in built_in_specs() or Path(topology).parent == Path():
        return topology
    copy = folder.path / f"{MACHINE}{Path(topology).suffix.lower()}"
    write_atomically(copy, Path(topology).read_text(encoding="utf-8"))
    return copy.name


def resolve_machine(topology: str, folder: StateFolder) -> str:
    """The state's machine as passed to a process: a name, or the path of its file. State folders of earlier versions
    have the path of the user's own file."""
    if not topology:
        return topology
    return topology if topology in built_in_specs() else str(folder.path / topology)
