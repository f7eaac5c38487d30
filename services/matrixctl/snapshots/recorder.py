"""Record a stack that runs: from a snapshot on, everything that users ask of its services and its Kubernetes API.

`start` takes the snapshot and has the processes write down what they are asked, beginning while all stand still, so
that no request falls between the two. `stop` makes one file of it, with what happened meanwhile.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from matrixcommon.model.errors import Conflict, NotFound
from services.matrixctl.output.screen import NotRunning
from services.matrixctl.snapshots.snapshot import Taken, take
from services.matrixctl.supervisor.state_folder import Folder, Stack
from services.recordings.journals import events_since, revisions
from services.recordings.recording import About, Action, Recording, add_to_snapshot
from services.recordings.write_log import FOLDER, ON
from services.snapshots import archive

BEGINNING = "beginning.snapshot"


def start(folder: Folder) -> Taken:
    """Raises NotRunning, Conflict where it is recorded already or keeps its state on a server."""
    stack = _running(folder)
    if stack.database:
        raise Conflict("what happens is read from SQLite files: a stack on a database server cannot be recorded")
    place = folder.path / FOLDER
    if (place / ON).exists():
        raise Conflict("the stack is being recorded; `matrixctl record stop FILE` ends it")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    return take(folder, place / BEGINNING, (place / ON).touch)


def stop(folder: Folder, file: Path) -> Recording:
    """Write the recording. Raises NotRunning, NotFound where nothing is recorded, Gone where it went on for longer than
    the journals reach back (ten minutes of the wall)."""
    stack, place = _running(folder), folder.path / FOLDER
    if not (place / ON).exists():
        raise NotFound("the stack is not being recorded; `matrixctl record start` begins it")
    ended_s = stack.time.emulated(time.time())
    (place / ON).unlink()
    manifest = archive.read_manifest(place / BEGINNING)
    with tempfile.TemporaryDirectory(dir=place) as before:
        archive.extract(place / BEGINNING, Path(before))
        events = events_since(folder.path, revisions(Path(before)))
    recording = Recording(
        about=About(
            exact=False,
            seed=manifest.seed,
            time_scale=manifest.time_scale,
            began_s=manifest.emulated_s,
            length_s=ended_s - manifest.emulated_s,
        ),
        actions=tuple(sorted(_actions(place, stack, manifest.emulated_s), key=lambda action: action.at_s)),
        events=tuple(events),
    )
    add_to_snapshot(place / BEGINNING, recording)
    shutil.copyfile(place / BEGINNING, draft := file.with_name(f"{file.name}.new"))
    draft.chmod(0o600)
    draft.replace(file)
    shutil.rmtree(place)
    return recording


def _running(folder: Folder) -> Stack:
    stack = folder.read()
    if stack is None or folder.supervisor() is None:
        raise NotRunning(f"no stack runs in {folder.path}; `matrixctl up --state {folder.path}` starts one")
    return stack


def _actions(place: Path, stack: Stack, began_s: float) -> Iterator[Action]:
    for log in place.glob("*.jsonl"):
        for text in log.read_text().splitlines():
            line = json.loads(text)
            yield Action(at_s=max(0.0, stack.time.emulated(line.pop("wall_s")) - began_s), **line)
