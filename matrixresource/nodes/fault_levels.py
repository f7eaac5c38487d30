"""Fault codes and their levels: what an agent's report means for health and for placing work.

The agent reports a code; the level is the control plane's judgement, read from `fault_levels.yaml` with its source. A
code seen often within a window, or lasting long, means more than the code says: the rules for that are read here and
applied in `fault_rules.py`.
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
    """A level, the health it leaves a component in, and whether new work may be placed on it."""

    name: str
    health: str
    schedulable: bool
    meaning: str


@dataclass(frozen=True)
class FrequencyRule:
    """Seen `times` within `window_s` seconds: raised to `level`; released `release_s` later, or by hand (None)."""

    times: int
    window_s: float
    level: str
    release_s: float | None = None


@dataclass(frozen=True)
class DurationRule:
    """There for longer than `lasts_s` seconds: raised to `level`, until it was away for `recovers_s`."""

    lasts_s: float
    recovers_s: float
    level: str


@dataclass(frozen=True)
class FaultTable:
    """The file, by code. `severity` orders the levels from harmless to worst."""

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
    """A rule per code; where two rules name a code, the later one holds."""
    return [
        (code, {key: value for key, value in rule.items() if key != "codes"})
        for rule in rules
        for code in (chips if rule["codes"] == "chips" else rule["codes"])
    ]


def level_of(code: str, severity: str | None = None) -> FaultLevel:
    """The level of a code. An unknown one is severe, unless its reporter calls it a hint or minor."""
    table = fault_table()
    return table.codes.get(code) or (table.unknown_minor if severity in ("hint", "minor") else table.unknown)


def level_named(name: str) -> FaultLevel:
    """A level by its name; one that no table has (any more) counts as unknown."""
    return fault_table().levels.get(name, fault_table().unknown)


def worst_level(names: Iterable[str]) -> str | None:
    """The worst of some levels; None of none."""
    return max(names, key=fault_table().severity, default=None)


def health_unheard(reported: str) -> str:
    """The health of what nobody hears of any more: bad where that was said last, else unknown."""
    return reported if reported == "Unhealthy" else "Unknown"


def worst_health(levels: Iterable[str]) -> str:
    """The health that faults of these levels together leave."""
    return max((level_named(name).health for name in levels), key=HEALTH_ORDER.index, default="Healthy")
