"""Fault codes and their levels: what an agent's report means for health and for placing work.

The agent reports a code; the level is the control plane's judgement, read from `fault_levels.yaml` with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

HEALTH_ORDER = ("Healthy", "SubHealthy", "Unhealthy")


@dataclass(frozen=True)
class FaultLevel:
    """A level, the health it leaves a component in, and whether new work may be placed on it."""

    name: str
    health: str
    schedulable: bool
    meaning: str


@cache
def _table() -> dict[str, FaultLevel]:
    document = yaml.safe_load(files("matrixresource").joinpath("fault_levels.yaml").read_text())
    levels = document["levels"]
    table = {
        code: FaultLevel(entry["level"], meaning=entry["meaning"], **levels[entry["level"]])
        for code, entry in document["codes"].items()
    }
    table["unknown"] = FaultLevel(
        document["unknown"]["level"], meaning=document["unknown"]["meaning"], **levels[document["unknown"]["level"]]
    )
    return table


def level_of(code: str) -> FaultLevel:
    """The level of a code; an unknown one is taken as severe."""
    return _table().get(code) or _table()["unknown"]


def known_codes() -> dict[str, FaultLevel]:
    return {code: level for code, level in _table().items() if code != "unknown"}


def worst_health(codes: list[str]) -> str:
    """The health that these faults together leave."""
    return max((level_of(code).health for code in codes), key=HEALTH_ORDER.index, default="Healthy")
