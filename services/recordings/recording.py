"""A recording: the initial state of a stack, the timed requests to it, and the resulting events.

Its file is a snapshot (`services/snapshots/archive.py`) with three more members, so `matrixctl snapshot show` reads it
and `matrixctl restore` restores the initial state.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.quantities import pluralized
from services.snapshots.archive import UnknownSnapshot, open_archive, read_manifest

ABOUT, ACTIONS, EVENTS = "recording.json", "actions.jsonl", "events.jsonl"

M = TypeVar("M", bound=BaseModel)


class Action(BaseModel):
    """One action: to let time pass (`sleep_s`), or a request that may change something."""

    model_config = ConfigDict(frozen=True)

    at_s: float
    """Emulated seconds since the recording began."""
    sleep_s: float | None = None
    service: str = ""
    method: str = ""
    path: str = ""
    """The path with its query."""
    headers: dict[str, str] = Field(default_factory=empty_dict)
    body: str = ""
    status: int = 0

    def __str__(self) -> str:
        return f"sleep {self.sleep_s:g} s" if self.sleep_s is not None else f"{self.service} {self.method} {self.path}"


class Event(BaseModel):
    """One change of a resource, as in its service's journal. `body` is its view as JSON."""

    model_config = ConfigDict(frozen=True)

    service: str
    revision: int
    kind: str
    name: str
    type: str
    body: str


class About(BaseModel):
    """How the recording was made. `exact`: in virtual time, so a replay gives the same events at the same times."""

    model_config = ConfigDict(frozen=True)

    exact: bool
    seed: int | None
    time_scale: float
    began_s: float
    length_s: float


class Recording(BaseModel):
    """A recording without its initial state, which is only in the file."""

    model_config = ConfigDict(frozen=True)

    about: About
    actions: tuple[Action, ...]
    events: tuple[Event, ...]


def add_to_snapshot(file: Path, recording: Recording) -> None:
    """Add a recording to the file of its initial snapshot."""
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(ABOUT, recording.about.model_dump_json(indent=1))
        archive.writestr(ACTIONS, _lines(recording.actions))
        archive.writestr(EVENTS, _lines(recording.events))


def read_recording(file: Path) -> Recording:
    """Read a recording. Raises InvalidField if there is no file, UnknownSnapshot if it is not a recording."""
    read_manifest(file)
    try:
        with open_archive(file) as archive:
            if ABOUT not in archive.namelist():
                raise UnknownSnapshot(f"{file} is a snapshot, not a recording; make one with `matrixctl record`")
            return Recording(
                about=About.model_validate_json(archive.read(ABOUT)),
                actions=tuple(_read(Action, archive.read(ACTIONS))),
                events=tuple(_read(Event, archive.read(EVENTS))),
            )
    except ValidationError as wrong:
        raise UnknownSnapshot(
            f"the recording in {file} is invalid ({pluralized(wrong.error_count(), 'error')})"
        ) from wrong


def _lines(items: Iterable[BaseModel]) -> str:
    return "".join(f"{item.model_dump_json()}\n" for item in items)


def _read(model: type[M], text: bytes) -> Iterable[M]:
    return (model.model_validate_json(line) for line in text.splitlines() if line)
