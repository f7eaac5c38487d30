"""Machines by name: one for each file of numbers that lies in `topology`. What the numbers say is read by `topology`;
who only tells machines apart needs nothing of it."""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.errors import InvalidField

DEFAULT_FILE = Path(__file__).parent / "topology" / "cloudmatrix384.yaml"


def built_in() -> dict[str, Path]:
    """The files of the machines that are built in, by name."""
    return {file.stem: file for file in sorted(DEFAULT_FILE.parent.glob("*.yaml"))}


def of_numbers(machine: str) -> bool:
    """Whether it names a machine or a file with one's numbers; else it is a file in which a supernode is drawn."""
    return machine in built_in() or Path(machine).suffix.lower() in (".yaml", ".yml")


def spec_file(named: Path | str | None) -> Path:
    """Raises InvalidField where there is no such file, nor a built-in machine of that name."""
    if named is None:
        return DEFAULT_FILE
    file = built_in().get(str(named), Path(named))
    if not file.is_file():
        there = ", ".join(built_in())
        raise InvalidField(f"{str(named)[:200]!r} is neither a file nor a machine; there are {there}", field="spec")
    return file
