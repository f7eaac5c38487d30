"""Fault codes and their levels: what a reported fault means for health and for placing work.

Agents report codes; the control plane assigns the level, from `fault_levels.yaml`, which names its source. A code that
is seen often within a window, or that lasts long, is more serious than its own level: the rules for that are read here
and applied in `fault_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from matrixcommon.model.yaml_text import packaged_yaml

HEALTH_ORDER = ("Healthy", "SubHealthy", "Unhealthy")


@dataclass(frozen=True)
class FaultLevel:
    """A level, the health of a component with such a fault, and whether new work may be placed on it."""

    name: str
    health: str
    schedulable: bool
    meaning: str


@dataclass(frozen=True)
class FrequencyRule:
    """A code seen `times` within `window_s` seconds is raised to `level`, and released `release_s` later, or manually
    (None)."""

    times: int
    window_s: float
    level: str
    release_s: float | None = None


@dataclass(frozen=True)
class DurationRule:
    """A code present for longer than `lasts_s` seconds is raised to `level` until it has been absent for
    `recovers_s`."""

    lasts_s: float
    recovers_s: float
    level: str


@dataclass(frozen=True)
class FaultTable:
    """The file's contents, by code. `severity` orders the levels from harmless to worst."""

    codes: dict[str, FaultLevel]
    levels: dict[str, FaultLevel]
    frequency: dict[str, FrequencyRule]
    duration: dict[str, DurationRule]
    unknown: FaultLevel
    unknown_minor: FaultLevel
    uplinks: FaultLevel
    uplinks_code: str

    def severity(self, level: str) -> int:
        return list(self.levels).index(level)


@cache
def fault_table() -> FaultTable:
    document = packaged_yaml("matrixresource.nodes", "fault_levels.yaml")
    levels = document["levels"]

    def level(name: str, meaning: str = "") -> FaultLevel:
        return FaultLevel(name, meaning=meaning, **levels[name])

    chips = {code: name for name, codes in document["chips"].items() for code in codes}
    codes = {code: level(name, "hardware fault of the chip") for code, name in chips.items()}
    codes |= {code: level(**entry) for code, entry in _named(document["codes"]).items()}
    return FaultTable(
        codes=codes,
        levels={name: level(name) for name in levels},
        frequency={code: FrequencyRule(**rule) for code, rule in _by_code(document["frequency"], chips)},
        duration={code: DurationRule(**rule) for code, rule in _by_code(document["duration"], chips)},
        unknown=level(**_named(document)["unknown"]),
        unknown_minor=level(**_named(document)["unknown_minor"]),
        uplinks=level(document["uplinks"]["level"], "every uplink of an L1 chip is at fault"),
        uplinks_code=document["uplinks"]["code"],
    )


def _named(entries: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {
        code: {"name": entry["level"], "meaning": entry["meaning"]}
        for code, entry in entries.items()
        if "meaning" in entry
    }


def _by_code(rules: list[dict[str, Any]], chips: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
    """One rule per code; if several rules name a code, the last one applies."""
    return [
        (code, {key: value for key, value in rule.items() if key != "codes"})
        for rule in rules
        for code in (chips if rule["codes"] == "chips" else rule["codes"])
    ]


def level_of(code: str, severity: str | None = None) -> FaultLevel:
    """The level of a code. An unknown code is severe, unless its reporter calls it a hint or minor."""
    table = fault_table()
    return table.codes.get(code) or (table.unknown_minor if severity in ("hint", "minor") else table.unknown)


def level_named(name: str) -> FaultLevel:
    """A level by its name; a name that no longer exists counts as unknown."""
    return fault_table().levels.get(name, fault_table().unknown)


def worst_level(names: Iterable[str]) -> str | None:
    """The worst of some levels; None if there are none."""
    return max(names, key=fault_table().severity, default=None)


def unreported_health(reported: str) -> str:
    """The health of a component that no longer reports: Unhealthy if that was its last report, else Unknown."""
    return reported if reported == "Unhealthy" else "Unknown"


def worst_health(levels: Iterable[str]) -> str:
    """The health of a component with faults of all these levels."""
    return max((level_named(name).health for name in levels), key=HEALTH_ORDER.index, default="Healthy")
