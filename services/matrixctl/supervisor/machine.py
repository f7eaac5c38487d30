"""What machine a stack emulates: `--topology` of `matrixctl up`, and what becomes of it.

It is the name of a built-in machine, a YAML file with a machine's numbers, or a file in which a supernode is drawn. By
its numbers a supernode is known to all who count ports; a drawing is read by MatrixResource alone, of which the others
learn how it is wired. The state keeps a copy of a file, so that it is the same machine at every start, and in every
snapshot.

What is needed for a machine's numbers is imported where one is looked at: a supervisor starts before all else, and one
whose processes know none needs nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from matrixcommon.model.errors import Conflict, InvalidField
from services.matrixctl.supervisor.state_folder import Folder, write
from services.snapshots.machine_file import MACHINE

if TYPE_CHECKING:
    from matrixresource.topology.spec import SupernodeSpec

BUILT_TO_NUMBERS = ("resource", "link", "agents")
"""The processes that know a supernode by its numbers."""
READY_PATIENCE_WALL_S, READY_PATIENCE_WALL_S_PER_NODE = 120.0, 0.5
"""How long a stack may take until it is ready, for a machine of many nodes by their number: 1,024 take half a minute
where nothing else runs, and several where the machine is shared."""


def settings_of(process: str, topology: str) -> dict[str, str]:
    """What a process has to be told of it."""
    if not topology:
        return {}
    from matrixresource.topology.loading import of_numbers

    if of_numbers(topology):
        return {"SPEC": topology} if process in BUILT_TO_NUMBERS else {}
    return {"TOPOLOGY": topology} if process == "resource" else {}


def checked(topology: str, folder: Folder) -> str:
    """As `--topology` names it, by its whole path where it is a file, checked before anything is started; nothing where
    it is what that folder's state has. Raises InvalidField with a sentence for each fault, Conflict for a state of
    another machine."""
    before = folder.read()
    if not topology:
        if before is not None and not _is_there(located(before.topology, folder)):
            raise Conflict(f"the file with this state's machine, {before.topology}, is gone: put it back")
        return ""
    from matrixresource.topology.loading import DEFAULT_FILE, built_in

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
    from matrixresource.topology.loading import built_in, load_spec, of_numbers

    if topology not in built_in() and not Path(topology).is_file():
        there = ", ".join(built_in())
        raise InvalidField(f"{topology[:200]!r} is neither a file nor a machine; there are {there}", field="--topology")
    if of_numbers(topology):
        load_spec(topology)
    else:
        from matrixresource.topology.graph_document import compiled_drawing, read_file

        compiled_drawing(read_file(Path(topology)), load_spec())


def kept(topology: str, folder: Folder) -> str:
    """What a state has of its machine: a name, or that of the copy of its file in the folder, which is made here."""
    if not topology:
        return topology
    from matrixresource.topology.loading import built_in

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
    from matrixresource.topology.loading import built_in

    return topology if topology in built_in() else str(folder.path / topology)


def _is_there(machine: str) -> bool:
    from matrixresource.topology.loading import built_in

    return not machine or machine in built_in() or Path(machine).is_file()


def _same(topology: str, machine: str) -> bool:
    """Whether both name one machine, or files with the same content."""
    from matrixresource.topology.loading import DEFAULT_FILE, built_in

    names = built_in()
    if topology in names or machine in ("", *names):
        return topology == (machine or DEFAULT_FILE.stem)
    return Path(machine).is_file() and Path(topology).read_bytes() == Path(machine).read_bytes()


def ready_patience_wall_s(folder: Folder, topology: str) -> float:
    """How long to wait for a stack that begins as that machine, or as the one of the folder's state."""
    return max(READY_PATIENCE_WALL_S, READY_PATIENCE_WALL_S_PER_NODE * _spec(folder, topology).supernode.nodes)


def build_first(folder: Folder, topology: str, processes: Iterable[str]) -> None:
    """Build the supernode that these processes of such a stack are about to ask for, if any of them does, so that they
    share it."""
    if not {*BUILT_TO_NUMBERS}.isdisjoint(processes):
        from matrixresource.topology import Supernode

        Supernode(spec=_spec(folder, topology))


def _spec(folder: Folder, topology: str) -> SupernodeSpec:
    from matrixresource.topology.loading import load_spec, of_numbers

    before = folder.read()
    machine = located(topology or (before.topology if before else ""), folder)
    return load_spec(machine if machine and of_numbers(machine) else None)
