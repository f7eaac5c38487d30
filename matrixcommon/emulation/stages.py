"""Timed behaviour as data: a job is a list of stages, each with a delay, a jitter, and a probability of failure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.yaml_text import InvalidYaml, packaged_yaml, parse_yaml

STAGE_NAME_MAX = 40
"""Maximum length of a stage's name, which is in reports and tables."""


@dataclass(frozen=True)
class Stage:
    """One stage: its name, the status and message that the agent reports during it, and its duration (emulated
    seconds).

    Each of `attempts` fails with probability `odds` (0 to 1); failure of the last one is final, with the message `why`.
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
        """Whether an attempt fails. A stage that cannot fail draws no random number."""
        return self.odds > 0 and random.random() < self.odds

    def takes_s(self, random: Random) -> float:
        return max(0.0, self.delay_s + random.uniform(-self.jitter_s, self.jitter_s))


Stages = dict[str, tuple[Stage, ...]]


def load_stages(room: str, file: str, path: Path | None = None) -> Stages:
    """The stages in a file of the package `room`, overridden by those in the file at `path`."""
    built_in = _built_in(room, file)
    return built_in if path is None else built_in | _parse_stages(path.read_text(), str(path))


@lru_cache(maxsize=4)
def _parse_stages(text: str, source: str) -> Stages:
    try:
        document = parse_yaml(text)
    except InvalidYaml as wrong:
        raise InvalidField(f"{source} is not valid YAML: {wrong}", field="stages") from wrong
    return stages_from_document(document, source)


@cache
def _built_in(room: str, file: str) -> Stages:
    return stages_from_document(packaged_yaml(room, file), file)


def stages_from_document(document: Any, source: str) -> Stages:
    """Stages from a parsed YAML document. Raises InvalidField that says what is invalid."""
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
