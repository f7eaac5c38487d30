"""Reads the files of constants: models, machines, the serving software, the fitted values.

Each entry is `field: {value, source}`, for rates also `unit` and `kind` (published, derived, fitted, assumed) and,
where the true value is not certain, `range: [low, high]`. A file that lacks a field, has one too many, or holds a value
that cannot be, is refused as a whole with the field's name; nothing is taken from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from matrixcommon.model.yaml_text import NotYaml, packaged_yaml, parse_yaml

KINDS = ("published", "derived", "fitted", "assumed")
ROOM = "infer_workload.timing"
HOME = Path(__file__).parent
NUMBER_MAX = 1e30
"""Beyond this nothing is counted or measured, and sums and ratios soon are no numbers any more."""


class BadDataFile(ValueError):
    """A model or machine file that cannot be used; `field` names the entry in it, `-` where it is the whole file."""

    def __init__(self, file: str, field: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}" if field == "-" else f"{file}: {field}: {reason}")
        self.file = file
        self.field = field


class UnknownDataFile(KeyError):
    """No such model or machine; the message lists those there are."""

    def __init__(self, folder: str, name: str) -> None:
        what = f"no file {name}" if name.endswith(".yaml") else f"no {folder[:-1]} named {name!r}"
        super().__init__(f"{what}; there are {', '.join(names(folder))}")

    def __str__(self) -> str:
        return str(self.args[0])


def names(folder: str) -> list[str]:
    """The models or machines that are carried along."""
    return sorted(file.stem for file in (HOME / folder).glob("*.yaml"))


def located(folder: str, name: str) -> Path:
    """The file of that name, or of that path where it ends in .yaml. Raises UnknownDataFile."""
    if name.endswith(".yaml") and Path(name).is_file():
        return Path(name)
    if name not in names(folder):
        raise UnknownDataFile(folder, name)
    return HOME / folder / f"{name}.yaml"


@cache
def packaged(file: str) -> dict[str, dict[str, Any]]:
    """The entries of a file beside the code."""
    return document(HOME / file)


def document(file: Path) -> dict[str, dict[str, Any]]:
    """Its entries, each a mapping with `value`. Raises BadDataFile."""
    try:
        read = _parsed(file)
    except (NotYaml, UnicodeDecodeError) as wrong:
        raise BadDataFile(file.name, "-", f"not YAML: {wrong}") from wrong
    if not isinstance(read, dict):
        raise BadDataFile(file.name, "-", "a mapping of fields is accepted")
    found: dict[str, dict[str, Any]] = {}
    for field, entry in read.items():
        if field != "name" and not (isinstance(entry, dict) and "value" in entry and entry.get("source")):
            raise BadDataFile(file.name, str(field), "an entry {value, source} is accepted, the source not empty")
        if field == "name" and not (isinstance(entry, str) and entry):
            raise BadDataFile(file.name, "name", f"a word is accepted, not {entry!r}")
        found[str(field)] = entry if isinstance(entry, dict) else {"value": entry, "source": "the file's own name"}
    return found


def _parsed(file: Path) -> Any:
    carried = file.is_relative_to(HOME)
    return packaged_yaml(ROOM, *file.relative_to(HOME).parts) if carried else parse_yaml(file.read_text())


def check_rates(file: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses an entry without unit or kind, or with a range that its value is not in. Raises BadDataFile."""
    for field, entry in entries.items():
        if field == "name":
            continue
        if not entry.get("unit"):
            raise BadDataFile(file, field, "`unit` is missing")
        if entry.get("kind") not in KINDS:
            raise BadDataFile(file, field, f"`kind` is one of {', '.join(KINDS)}")
        if "range" in entry and _is_number(entry["value"]):
            ends = entry["range"]
            if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
                raise BadDataFile(file, field, f"`range` is [low, high], two numbers, not {ends!r}")
            low, high = ends
            if not low <= entry["value"] <= high:
                raise BadDataFile(file, field, f"its value {entry['value']} is outside its range {low} to {high}")


def number(file: str, field: str, value: Any, *, least: float, whole: bool) -> Any:
    """`value` as the number it must be. Raises BadDataFile."""
    good = _is_number(value) and value >= least
    if not good or (whole and value != int(value)):
        what = "a whole number" if whole else "a number"
        raise BadDataFile(file, field, f"{what} of at least {least:g} is accepted, not {value!r}")
    return int(value) if whole else float(value)


def _is_number(value: Any) -> bool:
    """One that something can be made of: not infinite, no word, no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= NUMBER_MAX
