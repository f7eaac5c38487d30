"""Timed behaviour as data: a piece of work is a list of stages, each with a delay, a jitter, and odds of failure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.yaml_text import NotYaml, packaged_yaml, parse_yaml

STAGE_NAME_MAX = 40
"""Characters of a stage's name, which reports carry and tables keep."""


@dataclass(frozen=True)
class Stage:
    """One stage: its name, what the agent calls itself and says meanwhile, and how long it takes (emulated seconds).

    Each of `attempts` fails at these `odds`, between 0 and 1; the last of them for good, with `why`.
    """

    stage: str
    status: str
    delay_s: float
    jitter_s: float = 0.0
    message: str = ""
    odds: float = 0.0
    attempts: int = 1
    why: str = "it did not finish"

    def fails(self, random: Random) -> bool:
        """Whether an attempt fails. What cannot fail asks nothing of chance."""
        return self.odds > 0 and random.random() < self.odds

    def takes_s(self, random: Random) -> float:
        return max(0.0, self.delay_s + random.uniform(-self.jitter_s, self.jitter_s))


Stages = dict[str, tuple[Stage, ...]]


def stages_of(room: str, file: str, path: Path | None = None) -> Stages:
    """The stages in a file that lies in a package's room, with the work that the file at `path` gives replaced."""
    built_in = _built_in(room, file)
    return built_in if path is None else built_in | _read(path.read_text(), str(path))


@lru_cache(maxsize=4)
def _read(text: str, source: str) -> Stages:
    try:
        document = parse_yaml(text)
    except NotYaml as wrong:
        raise InvalidField(f"{source} is no YAML: {wrong}", field="stages") from wrong
    return read_stages(document, source)


@cache
def _built_in(room: str, file: str) -> Stages:
    return read_stages(packaged_yaml(room, file), file)


def read_stages(document: Any, source: str) -> Stages:
    """Stages from a parsed YAML document; InvalidField names what cannot be read."""
    if not isinstance(document, dict):
        raise InvalidField(f"{source}: expected work by name, each with a list of stages", field="stages")
    stages: Stages = {}
    for work, entries in document.items():
        try:
            stages[str(work)] = tuple(Stage(**entry) for entry in entries or ())
        except TypeError as wrong:
            raise InvalidField(f"{source}: {work}: {wrong}", field=f"stages.{work}") from wrong
        if long := next((each.stage for each in stages[str(work)] if len(str(each.stage)) > STAGE_NAME_MAX), None):
            text = f"{source}: {work}: the name {long!r} of a stage has more than {STAGE_NAME_MAX} characters"
            raise InvalidField(text, field=f"stages.{work}")
    return stages
