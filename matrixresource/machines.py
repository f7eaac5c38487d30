"""Built-in machines by name: one per spec file in `topology`. `topology` interprets the specs; code that only needs to
tell machines apart uses this module alone."""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.errors import InvalidField

DEFAULT_FILE = Path(__file__).parent / "topology" / "cloudmatrix384.yaml"


def built_in_specs() -> dict[str, Path]:
    """Spec files of the built-in machines, by name."""
    return {file.stem: file for file in sorted(DEFAULT_FILE.parent.glob("*.yaml"))}


def has_spec(machine: str) -> bool:
    """Whether it names a built-in machine or a spec file; otherwise it is a file with a drawn supernode."""
    return machine in built_in_specs() or Path(machine).suffix.lower() in (".yaml", ".yml")


def spec_file(machine: Path | str | None) -> Path:
    """The path of a machine's spec. Raises InvalidField if there is neither such a file nor a built-in machine of that
    name."""
    if machine is None:
        return DEFAULT_FILE
    file = built_in_specs().get(str(machine), Path(machine))
    if not file.is_file():
        names = ", ".join(built_in_specs())
        raise InvalidField(
            f"{str(machine)[:200]!r} is neither a file nor a machine; built-in machines are {names}", field="spec"
        )
    return file
