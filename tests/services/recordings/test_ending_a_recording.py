"""The end of a recording: its file has each request at its emulated time, and is not lost where it cannot be written."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.emulation.stack_clock import write_timeline
from matrixcommon.model.errors import Gone, NotFound
from matrixcommon.model.timeline import Timeline
from services.matrixctl.snapshots import recorder
from services.matrixctl.snapshots.recorder import INITIAL_SNAPSHOT, stop_recording
from services.matrixctl.snapshots.snapshot import take_snapshot
from services.matrixctl.supervisor.state_folder import SUPERVISOR, Stack, StackTime, StateFolder
from services.recordings import recording as recordings
from services.recordings.write_log import FOLDER, ON, RecordingMiddleware


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[StateFolder]:
    """Of a stack that began to be recorded 100 seconds ago at speed 1, and runs at 10 for the last 50."""
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    began = time.time() - 100
    folder.write(Stack.from_names(("agents",), StackTime(1.0, began, began, began), None))
    with closing(sqlite3.connect(folder.path / "agents.db")) as database:
        database.execute("CREATE TABLE documents (n INTEGER)")
    place = folder.path / FOLDER
    place.mkdir()
    take_snapshot(folder, place / INITIAL_SNAPSHOT)
    folder.write(Stack.from_names(("agents",), StackTime(1.0, began, began), None))
    write_timeline(folder.clock_file, Timeline.steady(1.0, began, began).changed(began + 50, 10.0))
    (place / ON).touch()
    asked = {"service": "agents", "method": "PUT", "path": "/v1/faults/f", "status": 200}
    lines = [json.dumps({"wall_s": began + at_s, **asked}) for at_s in (60, 20)]
    (place / "agents.jsonl").write_text("\n".join(lines) + "\n")
    process_lock = folder.process_lock(SUPERVISOR)
    process_lock.acquire()
    yield folder
    process_lock.release()


def test_each_request_is_at_its_emulated_time_whatever_the_speed_was(recorded: StateFolder, tmp_path: Path) -> None:
    stop_recording(recorded, tmp_path / "a.recording")
    found = recordings.read_recording(tmp_path / "a.recording")
    assert [action.at_s for action in found.actions] == pytest.approx([20, 50 + 10 * 10])
    assert found.about.length_s >= 50 + 10 * 50
    assert not (recorded.path / FOLDER).exists()


def test_a_recording_that_cannot_be_written_goes_on(recorded: StateFolder, tmp_path: Path) -> None:
    (tmp_path / "a.recording").mkdir()
    with pytest.raises(OSError, match="directory"):
        stop_recording(recorded, tmp_path / "a.recording")
    assert not (tmp_path / "a.recording.new").exists()
    assert len(stop_recording(recorded, tmp_path / "b.recording").actions) == 2
    with pytest.raises(NotFound):
        stop_recording(recorded, tmp_path / "c.recording")


def test_a_recording_that_went_on_for_too_long_is_ended(
    recorded: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise Gone("the journal no longer reaches back")

    monkeypatch.setattr(recorder, "events_since", gone)
    with pytest.raises(Gone):
        stop_recording(recorded, tmp_path / "a.recording")
    assert not (recorded.path / FOLDER).exists()


async def test_a_request_that_outlives_its_recording_is_answered(tmp_path: Path) -> None:
    place = tmp_path / FOLDER
    place.mkdir()
    (place / ON).touch()
    sent: list[Any] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        (place / ON).unlink()
        place.rmdir()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": []}
    await RecordingMiddleware(answer, tmp_path, "agents")(scope, lambda: None, send)
    assert [message["status"] for message in sent] == [200]
