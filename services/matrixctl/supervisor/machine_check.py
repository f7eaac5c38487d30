"""The machine file of a stack: check that a supernode can be built from `--topology`, and build it before any process
runs.

Separate from `machine.py` because it reads machine files: the supervisor starts before everything else, and reads none
if none of its processes needs one.
"""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField
from matrixresource.machines import DEFAULT_FILE, built_in_specs, has_spec
from matrixresource.topology import Supernode, SupernodeSpec
from matrixresource.topology.graph_document import compile_drawing, read_drawing_file
from matrixresource.topology.loading import load_spec
from services.matrixctl.supervisor.machine import resolve_machine
from services.matrixctl.supervisor.state_folder import StateFolder

READY_TIMEOUT_WALL_S, READY_TIMEOUT_WALL_S_PER_NODE = 120.0, 0.5
"""How long a stack may take to become ready, for large machines by number of nodes: 1,024 nodes take half a minute on
an idle host, and several minutes on a busy one."""


def check_topology(topology: str, folder: StateFolder) -> str:
    """Check the machine named by `--topology` before anything starts, and return it (a file by its absolute path);
    empty if it is the one the state folder already has. Raises InvalidField with a sentence for each fault, Conflict
    for a state folder of another machine."""
    before = folder.read()
    if not topology:
        if before is not None and not _exists(resolve_machine(before.topology, folder)):
            raise Conflict(f"the file with this stack's machine, {before.topology}, is missing: restore it")
        return ""
    check_readable(topology)
    if before is None:
        return topology if topology in built_in_specs() else str(Path(topology).absolute())
    if not _same_machine(topology, resolve_machine(before.topology, folder)):
        raise Conflict(
            f"this state folder has supernodes of {before.topology or DEFAULT_FILE.stem}; use another --state for "
            f"{topology}",
            field="--topology",
        )
    return ""


def check_readable(topology: str) -> None:
    """Raises InvalidField, with a sentence for each fault, if no supernode can be built from the machine or file."""
    if topology not in built_in_specs() and not Path(topology).is_file():
        there = ", ".join(built_in_specs())
        raise InvalidField(
            f"{topology[:200]!r} is neither a file nor a machine; the machines are {there}", field="--topology"
        )
    if has_spec(topology):
        load_spec(topology)
    else:
        compile_drawing(read_drawing_file(Path(topology)), load_spec())


def ready_timeout_wall_s(folder: StateFolder, topology: str) -> float:
    """How long to wait for a stack of that machine, or of the state folder's machine."""
    return max(READY_TIMEOUT_WALL_S, READY_TIMEOUT_WALL_S_PER_NODE * _spec(folder, topology).supernode.nodes)


def prebuild_supernode(folder: StateFolder, topology: str) -> None:
    """Build the supernode that the stack's processes will need, so that they share it after forking."""
    Supernode(spec=_spec(folder, topology))


def _spec(folder: StateFolder, topology: str) -> SupernodeSpec:
    before = folder.read()
    machine = resolve_machine(topology or (before.topology if before else ""), folder)
    return load_spec(machine if machine and has_spec(machine) else None)


def _exists(machine: str) -> bool:
    return not machine or machine in built_in_specs() or Path(machine).is_file()


def _same_machine(topology: str, machine: str) -> bool:
    """Whether both name the same machine, or files with the same content."""
    names = built_in_specs()
    if topology in names or machine in ("", *names):
        return topology == (machine or DEFAULT_FILE.stem)
    return Path(machine).is_file() and Path(topology).read_bytes() == Path(machine).read_bytes()
