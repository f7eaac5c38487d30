"""The numbers of the machine that a stack emulates: whether a supernode can be built of `--topology`, and what is done
with its numbers before any process runs.

Apart from `machine.py`, because it takes reading a machine's file: a supervisor starts before all else, and one whose
processes know no machine reads none.
"""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField
from matrixresource.machines import DEFAULT_FILE, built_in, of_numbers
from matrixresource.topology import Supernode, SupernodeSpec
from matrixresource.topology.graph_document import compiled_drawing, read_file
from matrixresource.topology.loading import load_spec
from services.matrixctl.supervisor.machine import located
from services.matrixctl.supervisor.state_folder import Folder

READY_PATIENCE_WALL_S, READY_PATIENCE_WALL_S_PER_NODE = 120.0, 0.5
"""How long a stack may take until it is ready, for a machine of many nodes by their number: 1,024 take half a minute
where nothing else runs, and several where the machine is shared."""


def checked(topology: str, folder: Folder) -> str:
    """As `--topology` names it, by its whole path where it is a file, checked before anything is started; nothing where
    it is what that folder's state has. Raises InvalidField with a sentence for each fault, Conflict for a state of
    another machine."""
    before = folder.read()
    if not topology:
        if before is not None and not _is_there(located(before.topology, folder)):
            raise Conflict(f"the file with this state's machine, {before.topology}, is gone: put it back")
        return ""
    check_readable(topology)
    if before is None:
        return topology if topology in built_in() else str(Path(topology).absolute())
    if not _same(topology, located(before.topology, folder)):
        raise Conflict(
            f"this state has supernodes of {before.topology or DEFAULT_FILE.stem}; take another --state for {topology}",
            field="--topology",
        )
    return ""


def check_readable(topology: str) -> None:
    """Raises InvalidField where no supernode can be built of a machine or a file, with a sentence for each fault."""
    if topology not in built_in() and not Path(topology).is_file():
        there = ", ".join(built_in())
        raise InvalidField(f"{topology[:200]!r} is neither a file nor a machine; there are {there}", field="--topology")
    if of_numbers(topology):
        load_spec(topology)
    else:
        compiled_drawing(read_file(Path(topology)), load_spec())


def ready_patience_wall_s(folder: Folder, topology: str) -> float:
    """How long to wait for a stack that begins as that machine, or as the one of the folder's state."""
    return max(READY_PATIENCE_WALL_S, READY_PATIENCE_WALL_S_PER_NODE * _spec(folder, topology).supernode.nodes)


def build_first(folder: Folder, topology: str) -> None:
    """Build the supernode that processes of such a stack are about to ask for, so that they share it."""
    Supernode(spec=_spec(folder, topology))


def _spec(folder: Folder, topology: str) -> SupernodeSpec:
    before = folder.read()
    machine = located(topology or (before.topology if before else ""), folder)
    return load_spec(machine if machine and of_numbers(machine) else None)


def _is_there(machine: str) -> bool:
    return not machine or machine in built_in() or Path(machine).is_file()


def _same(topology: str, machine: str) -> bool:
    """Whether both name one machine, or files with the same content."""
    names = built_in()
    if topology in names or machine in ("", *names):
        return topology == (machine or DEFAULT_FILE.stem)
    return Path(machine).is_file() and Path(topology).read_bytes() == Path(machine).read_bytes()
