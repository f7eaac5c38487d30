"""Record a stack that runs: from a snapshot on, everything that users ask of its services and its Kubernetes API.

`start` takes the snapshot and has the processes write down what they are asked, beginning while all stand still, so
that no request falls between the two. `stop` makes one file of it, with what happened meanwhile.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from matrixcommon.emulation.stack_clock import read_timeline
from matrixcommon.model.errors import Conflict, Gone, NotFound
from matrixcommon.model.timeline import Timeline
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
    the journals reach back (ten minutes of the wall), which ends it; OSError where the file cannot be written, and then
    it continues."""
    _running(folder)
    place = folder.path / FOLDER
    if not (place / ON).exists():
        raise NotFound("the stack is not being recorded; `matrixctl record start` begins it")
    manifest = archive.read_manifest(place / BEGINNING)
    with tempfile.TemporaryDirectory(dir=place) as before:
        archive.extract(place / BEGINNING, Path(before))
        since = revisions(Path(before))
    timeline, ended_wall_s = read_timeline(folder.clock_file), time.time()
    try:
        events = events_since(folder.path, since)
    except Gone:
        _end(place)  # they will reach back less and less
        raise
    recording = Recording(
        about=About(
            exact=False,
            seed=manifest.seed,
            time_scale=manifest.time_scale,
            began_s=manifest.emulated_s,
            length_s=timeline.emulated(ended_wall_s) - manifest.emulated_s,
        ),
        actions=tuple(_actions(place, timeline, manifest.emulated_s, ended_wall_s)),
        events=tuple(events),
    )
    _write(place / BEGINNING, recording, file)
    _end(place)
    return recording


def _end(place: Path) -> None:
    """What a request under way writes down while this continues is left to the next recording to take away."""
    (place / ON).unlink()
    shutil.rmtree(place, ignore_errors=True)


def _write(beginning: Path, recording: Recording, file: Path) -> None:
    """In one step, readable by its owner only."""
    draft = file.with_name(f"{file.name}.new")
    try:
        shutil.copyfile(beginning, draft)
        draft.chmod(0o600)
        add_to_snapshot(draft, recording)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _running(folder: Folder) -> Stack:
    stack = folder.read()
    if stack is None or folder.supervisor() is None:
        raise NotRunning(f"no stack runs in {folder.path}; `matrixctl up --state {folder.path}` starts one")
    return stack


def _actions(place: Path, timeline: Timeline, began_s: float, ended_wall_s: float) -> list[Action]:
    """What was asked until then, in its order, each at the emulated time that it was by the speed of then."""
    lines = [json.loads(text) for log in place.glob("*.jsonl") for text in log.read_text().splitlines()]
    lines.sort(key=lambda line: line["wall_s"])
    return [
        Action(at_s=max(0.0, timeline.emulated(wall_s) - began_s), **line)
        for line in lines
        if (wall_s := line.pop("wall_s")) <= ended_wall_s
    ]
