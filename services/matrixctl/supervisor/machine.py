"""What machine a stack emulates: `--topology` of `matrixctl up`, and what becomes of it.

It is the name of a built-in machine, a YAML file with a machine's numbers, or a file in which a supernode is drawn. By
its numbers a supernode is known to all who count ports; a drawing is read by MatrixResource alone, of which the others
learn how it is wired.
"""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField
from matrixresource.topology import Supernode
from matrixresource.topology.loading import built_in, load_spec

BUILT_TO_NUMBERS = ("resource", "link", "agents")
"""The processes that know a supernode by its numbers."""
NUMBERS = (".yaml", ".yml")


def of_numbers(topology: str) -> bool:
    """Whether it names a machine or a file with numbers; a drawing otherwise."""
    return topology in built_in() or Path(topology).suffix in NUMBERS


def settings_of(process: str, topology: str) -> dict[str, str]:
    """What a process has to be told of it."""
    if topology and of_numbers(topology):
        return {"SPEC": topology} if process in BUILT_TO_NUMBERS else {}
    return {"TOPOLOGY": topology} if topology and process == "resource" else {}


def checked(topology: str, former: str | None) -> str:
    """As it is kept, an absolute path where it is a file, and checked before anything is started. `former` is that of a
    state that there is. Raises InvalidField with a sentence for each fault, Conflict for a state of another machine."""
    if not topology:
        return former or ""
    if topology in built_in():
        kept = topology
        load_spec(topology)
    elif not Path(topology).is_file():
        there = ", ".join(built_in())
        raise InvalidField(f"{topology[:200]!r} is neither a file nor a machine; there are {there}", field="--topology")
    else:
        kept = str(Path(topology).absolute())
        if of_numbers(topology):
            load_spec(kept)
        else:
            from matrixresource.topology.graph_document import compiled_drawing, read_file

            compiled_drawing(read_file(Path(topology)), load_spec())
    if former is not None and former != kept:
        raise Conflict(
            f"this state has supernodes of {former or 'cloudmatrix384'}; take another --state for {kept}",
            field="--topology",
        )
    return kept


def build_first(topology: str) -> None:
    """Build the supernode that the processes are about to ask for, so that they share it."""
    Supernode(spec=load_spec(topology if topology and of_numbers(topology) else None))
