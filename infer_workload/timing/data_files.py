"""Read the files of constants: models, machines, the serving software, the fitted values.

Each entry is `field: {value, source}`, for rates also `unit` and `kind` (published, derived, fitted, assumed) and,
where the true value is uncertain, `range: [low, high]`. A file with a missing, unknown or invalid field is rejected as
a whole, with the field's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from matrixcommon.model.yaml_text import InvalidYaml, packaged_yaml, parse_yaml

KINDS = ("published", "derived", "fitted", "assumed")
PACKAGE = "infer_workload.timing"
FOLDER = Path(__file__).parent
NUMBER_MAX = 1e30
"""Largest accepted magnitude: no real count or rate is larger, and sums and ratios of larger ones could overflow."""


class BadDataFile(ValueError):
    """An invalid model or machine file. `field` names the entry at fault, `-` for the file as a whole."""

    def __init__(self, file: str, field: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}" if field == "-" else f"{file}: {field}: {reason}")
        self.file = file
        self.field = field


class UnknownDataFile(KeyError):
    """No such model or machine; the message lists the available ones."""

    def __init__(self, folder: str, name: str) -> None:
        what = f"no file {name}" if name.endswith(".yaml") else f"no {folder[:-1]} named {name!r}"
        super().__init__(f"{what}; available: {', '.join(list_packaged(folder))}")

    def __str__(self) -> str:
        return str(self.args[0])


def list_packaged(folder: str) -> list[str]:
    """Return the names of the packaged models or machines."""
    return sorted(file.stem for file in (FOLDER / folder).glob("*.yaml"))


def locate(folder: str, name: str) -> Path:
    """Return the packaged file of that name, or the file at that path if it ends in .yaml. Raises UnknownDataFile."""
    if name.endswith(".yaml") and Path(name).is_file():
        return Path(name)
    if name not in list_packaged(folder):
        raise UnknownDataFile(folder, name)
    return FOLDER / folder / f"{name}.yaml"


@cache
def read_packaged(file: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a file packaged with this module."""
    return read_document(FOLDER / file)


def read_document(file: Path) -> dict[str, dict[str, Any]]:
    """Return the file's entries, each a mapping with `value`. Raises BadDataFile."""
    try:
        read = _parsed(file)
    except (InvalidYaml, UnicodeDecodeError) as wrong:
        raise BadDataFile(file.name, "-", f"not YAML: {wrong}") from wrong
    if not isinstance(read, dict):
        raise BadDataFile(file.name, "-", "must be a mapping of fields")
    found: dict[str, dict[str, Any]] = {}
    for field, entry in read.items():
        if field != "name" and not (isinstance(entry, dict) and "value" in entry and entry.get("source")):
            raise BadDataFile(file.name, str(field), "must be {value, source} with a source that is not empty")
        if field == "name" and not (isinstance(entry, str) and entry):
            raise BadDataFile(file.name, "name", f"must be a string that is not empty, not {entry!r}")
        found[str(field)] = entry if isinstance(entry, dict) else {"value": entry, "source": "the file's own name"}
    return found


def _parsed(file: Path) -> Any:
    carried = file.is_relative_to(FOLDER)
    return packaged_yaml(PACKAGE, *file.relative_to(FOLDER).parts) if carried else parse_yaml(file.read_text())


def check_rates(file: str, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that every entry has a unit and a kind, and lies in its range if it has one. Raises BadDataFile."""
    for field, entry in entries.items():
        if field == "name":
            continue
        if not entry.get("unit"):
            raise BadDataFile(file, field, "`unit` is missing")
        if entry.get("kind") not in KINDS:
            raise BadDataFile(file, field, f"`kind` must be one of {', '.join(KINDS)}")
        if "range" in entry and _is_number(entry["value"]):
            ends = entry["range"]
            if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
                raise BadDataFile(file, field, f"`range` must be [low, high], two numbers, not {ends!r}")
            low, high = ends
            if not low <= entry["value"] <= high:
                raise BadDataFile(file, field, f"the value {entry['value']} is outside its range {low} to {high}")


def number(file: str, field: str, value: Any, *, least: float, whole: bool) -> Any:
    """Return `value` as a float, or as an int if `whole`. Raises BadDataFile if it is no such number of at least
    `least`."""
    good = _is_number(value) and value >= least
    if not good or (whole and value != int(value)):
        what = "a whole number" if whole else "a number"
        raise BadDataFile(file, field, f"must be {what} of at least {least:g}, not {value!r}")
    return int(value) if whole else float(value)


def _is_number(value: Any) -> bool:
    """Whether it is a usable number: finite, no larger than NUMBER_MAX, and neither a string nor a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= NUMBER_MAX
