"""Loads a supernode's spec from its YAML file and checks every section, figure and sum first.

The files beside this one are the built-in machines, each named like its file (`matrixresource/machines.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from matrixcommon.model.validation import validation_message
from matrixcommon.model.yaml_text import InvalidYaml, packaged_yaml, parse_yaml
from matrixresource.machines import built_in_specs, spec_file
from matrixresource.topology.cross_checks import cross_checks
from matrixresource.topology.spec import Figure, InvalidSpec, SupernodeSpec, UbSpec

EVIDENCE_MARKS = ("C2", "C1", "DER", "REC", "ASSUMED")
NAMEABLE_MAX = {"cabinet.nodes": 10, "supernode.cabinets": 1000, "node.npus": 10, "ub.sub_planes": 10,
            "ub.l2_per_sub_plane": 100, "npu.dies": 10, "rdma.subnets": 10}  # fmt: skip
"""The most parts of each kind that names can distinguish."""

MAY_BE_ZERO = frozenset(
    {"die.die_to_die_gbps", "node.ub_optical_ports", "node.ub_optical_port_gbps", "cabinet.ub_optical_links"}
    | {"supernode.communication_cabinets", "supernode.l2_switches"}
    | {f"ub.{figure}" for figure in UbSpec.model_fields if figure != "sub_planes"}
)
"""Figures that may be 0: the UB plane may end at the node, and NPUs may have one die."""


def load_spec(path: Path | str | None = None) -> SupernodeSpec:
    """The spec in the file `path`, or of the built-in machine of that name; by default the published CloudMatrix384.
    Raises InvalidSpec with the field's path, or InvalidField if there is neither."""
    file = spec_file(path)
    if file in built_in_specs().values():
        return _built_in(file.name)
    try:
        return _read(file.read_text(encoding="utf-8"))
    except (InvalidYaml, UnicodeDecodeError) as wrong:
        raise InvalidSpec("", f"{file.name} is not valid YAML: {wrong}") from wrong


def parse_spec(document: Any) -> SupernodeSpec:
    """A spec from the loaded YAML document, fully checked. Raises InvalidSpec with the field's path."""
    if not isinstance(document, Mapping):
        raise InvalidSpec("", "a spec must be a mapping of sections")
    figures = tuple(_figures(document))
    sections = SupernodeSpec.sections()
    numbers: dict[str, Any] = {key: value for key, value in document.items() if key not in sections}
    numbers.pop("sources", None)
    for name in sections:
        if name in document:
            numbers[name] = {key: cell["value"] for key, cell in document[name].items()}
    try:
        spec = SupernodeSpec(**numbers, figures=figures)
    except ValidationError as error:
        first = error.errors()[0]
        message = validation_message(first)
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidSpec(field, message[:1].lower() + message[1:]) from error
    for path, most in NAMEABLE_MAX.items():
        section, _, figure = path.partition(".")
        if getattr(getattr(spec, section), figure) > most:
            raise InvalidSpec(path, f"at most {most}, the most that part names can distinguish")
    for check in cross_checks(spec):
        if not check.holds:
            raise InvalidSpec(check.field, f"{check.sentence}: {check.stated:g} stated, {check.derived:g} derived")
    return spec


def _figures(document: Mapping[str, Any]) -> Iterator[Figure]:
    titles = document.get("sources", {})
    for section, cells in document.items():
        if section in ("sources", "model"):
            continue
        if not isinstance(cells, Mapping):
            raise InvalidSpec(str(section), "a section must be a mapping of figures")
        for key, cell in cells.items():
            yield _figure(f"{section}.{key}", cell, titles)


def _figure(path: str, cell: Any, titles: Mapping[str, str]) -> Figure:
    if not isinstance(cell, Mapping) or "value" not in cell:
        raise InvalidSpec(path, "a figure needs a value, its source and a mark")
    for key in cell:
        if key not in ("value", "source", "mark", "note"):
            raise InvalidSpec(f"{path}.{key}", "unknown field")
    value = cell["value"]
    least = 0 if path in MAY_BE_ZERO else 1e-12
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise InvalidSpec(
            path, "a figure must be a positive number" + (", or 0 where there is none" if not least else "")
        )
    mark, codes = cell.get("mark"), cell.get("source")
    if mark not in EVIDENCE_MARKS:
        raise InvalidSpec(f"{path}.mark", f"must be one of {', '.join(EVIDENCE_MARKS)}")
    if not isinstance(codes, list) or (not codes and mark not in ("ASSUMED", "REC")):
        raise InvalidSpec(f"{path}.source", "a published figure must name its source")
    for code in codes:
        if code not in titles:
            raise InvalidSpec(f"{path}.source", f"{code} is not among the sources")
    return Figure(path, cell["value"], tuple(titles[code] for code in codes), mark, cell.get("note", ""))


@functools.cache
def _built_in(name: str) -> SupernodeSpec:
    return parse_spec(packaged_yaml("matrixresource.topology", name))


@functools.lru_cache(maxsize=8)
def _read(text: str) -> SupernodeSpec:
    """Cached by text: several parts of a process need the same spec, and none can change it."""
    return parse_spec(parse_yaml(text))
