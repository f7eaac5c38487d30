"""Record a running stack: from a snapshot on, every user request to its services and its Kubernetes API.

`start_recording` takes the snapshot and switches on recording in all processes while they are stopped, so that no
request falls between the two. `stop_recording` collects the requests and events into one file.
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
from services.matrixctl.snapshots.snapshot import SnapshotResult, take_snapshot
from services.matrixctl.supervisor.state_folder import Stack, StateFolder
from services.recordings.journals import events_since, revisions
from services.recordings.recording import About, Action, Recording, add_to_snapshot
from services.recordings.write_log import FOLDER, ON, RECHECK_WALL_S
from services.snapshots import archive

INITIAL_SNAPSHOT = "beginning.snapshot"


def start_recording(folder: StateFolder) -> SnapshotResult:
    """Raises NotRunning, Conflict if it is being recorded already or keeps its state on a database server."""
    stack = _running_stack(folder)
    if stack.database:
        raise Conflict("recording reads SQLite files; a stack on a database server cannot be recorded")
    place = folder.path / FOLDER
    if (place / ON).exists():
        raise Conflict("the stack is already being recorded; stop that with `matrixctl record stop FILE`")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)

    def turn_on() -> None:
        (place / ON).touch()
        time.sleep(RECHECK_WALL_S)  # what the stopped processes saw before is out of date when they go on

    return take_snapshot(folder, place / INITIAL_SNAPSHOT, turn_on)


def stop_recording(folder: StateFolder, file: Path) -> Recording:
    """Write the recording. Raises NotRunning, NotFound if nothing is being recorded, Gone if it lasted longer than the
    journals reach back (ten minutes of wall time), which ends it, OSError if the file cannot be written; then recording
    continues."""
    _running_stack(folder)
    place = folder.path / FOLDER
    if not (place / ON).exists():
        raise NotFound("the stack is not being recorded; start with `matrixctl record start`")
    manifest = archive.read_manifest(place / INITIAL_SNAPSHOT)
    with tempfile.TemporaryDirectory(dir=place) as before:
        archive.extract(place / INITIAL_SNAPSHOT, Path(before))
        since = revisions(Path(before))
    timeline, ended_wall_s = read_timeline(folder.clock_file), time.time()
    try:
        events = events_since(folder.path, since)
    except Gone:
        _delete_recording(place)  # a later attempt would reach back even less
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
    _write(place / INITIAL_SNAPSHOT, recording, file)
    _delete_recording(place)
    return recording


def _delete_recording(place: Path) -> None:
    """Delete the recorded requests. What a request still in progress writes meanwhile is deleted by the next
    recording."""
    (place / ON).unlink()
    shutil.rmtree(place, ignore_errors=True)


def _write(snapshot: Path, recording: Recording, file: Path) -> None:
    """Write atomically, readable only by its owner."""
    draft = file.with_name(f"{file.name}.new")
    try:
        shutil.copyfile(snapshot, draft)
        draft.chmod(0o600)
        add_to_snapshot(draft, recording)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _running_stack(folder: StateFolder) -> Stack:
    stack = folder.read()
    if stack is None or folder.supervisor() is None:
        raise NotRunning(f"no stack runs in {folder.path}; start one with `matrixctl up --state {folder.path}`")
    return stack


def _actions(place: Path, timeline: Timeline, began_s: float, ended_wall_s: float) -> list[Action]:
    """The requests until then, in order, each with its emulated time, which depends on the clock speed at that
    moment."""
    lines = [json.loads(text) for log in place.glob("*.jsonl") for text in log.read_text().splitlines()]
    lines.sort(key=lambda line: line["wall_s"])
    return [
        Action(at_s=max(0.0, timeline.emulated(wall_s) - began_s), **line)
        for line in lines
        if (wall_s := line.pop("wall_s")) <= ended_wall_s
    ]
