"""The file of a snapshot: what is written is what is read, and what is damaged or of another version is refused."""

from __future__ import annotations

import json
import sqlite3
import stat
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import pytest

from matrixcommon.model.errors import InvalidField
from services.chassis.database import Migrations
from services.matrixctl.supervisor.state_folder import StateFolder
from services.snapshots import archive
from services.snapshots.archive import MANIFEST, Manifest, UnknownSnapshot
from tests.services.matrixctl.inprocess import run_matrixctl

NEWEST = Migrations("resource", None).revisions()[1]  # type: ignore[arg-type]


def database(file: Path, revision: str = NEWEST, rows: int = 100) -> Path:
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
        made.execute("CREATE TABLE numbers (n INTEGER)")
        made.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(rows)])
        made.commit()
    return file


def written(folder: Path, revision: str = NEWEST, **more: object) -> Path:
    manifest = Manifest(
        version="0.1.0", taken_wall_s=1.8e9, emulated_s=1.8e9 + 60, time_scale=60, processes=("resource",), **more
    )
    archive.write(folder / "a.snapshot", manifest, {"resource": database(folder / "resource.db", revision)})
    return folder / "a.snapshot"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, seed=4)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    manifest = archive.read_manifest(file)
    assert (manifest.seed, manifest.databases["resource"].revision) == (4, NEWEST)
    assert archive.check_schemas(manifest) == []
    archive.extract(file, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "resource.db").read_bytes() == (tmp_path / "resource.db").read_bytes()


def test_an_older_schema_is_migrated_later_and_an_unknown_one_refused(tmp_path: Path) -> None:
    first = min(Migrations("resource", None).revisions()[0])  # type: ignore[arg-type]
    assert archive.check_schemas(archive.read_manifest(written(tmp_path / ".", first))) == ["resource"]
    (tmp_path / "resource.db").unlink()
    with pytest.raises(UnknownSnapshot, match=r"its resource database has the schema of another version \(revision v9"):
        archive.check_schemas(archive.read_manifest(written(tmp_path, "v9_0001")))


def test_what_is_no_snapshot_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="there is no file"):
        archive.read_manifest(tmp_path / "nowhere")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UnknownSnapshot, match="is not a snapshot"):
        archive.read_manifest(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr(MANIFEST, '{"format": 1}')
    with pytest.raises(UnknownSnapshot, match="is invalid"):
        archive.read_manifest(tmp_path / "other.zip")
    with pytest.raises(UnknownSnapshot, match=r"has format 7, made by version 0\.1\.0; this version reads 1"):
        archive.read_manifest(written(tmp_path, format=7))


def test_a_damaged_snapshot_is_found_before_anything_is_changed(tmp_path: Path) -> None:
    file = written(tmp_path)
    with zipfile.ZipFile(file) as sound:
        manifest = sound.read(MANIFEST)
    with zipfile.ZipFile(file, "w") as damaged:
        damaged.writestr(MANIFEST, manifest)
        damaged.writestr("databases/resource.db", b"something else")
    with pytest.raises(UnknownSnapshot, match="is damaged: its resource database does not match its checksum"):
        archive.extract(file, tmp_path / "unpacked")


def rewritten(file: Path, changes: dict[str, object], members: dict[str, bytes] | None = None) -> Path:
    """The same archive with other fields in its manifest and other members."""
    with zipfile.ZipFile(file) as before:
        found = {name: before.read(name) for name in before.namelist()} | (members or {})
    found[MANIFEST] = json.dumps(json.loads(found[MANIFEST]) | changes).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after:
        for name, content in found.items():
            after.writestr(name, content)
    return file


def test_whatever_byte_is_another_the_file_is_refused_or_whole(tmp_path: Path) -> None:
    sound = written(tmp_path).read_bytes()
    file = tmp_path / "other.snapshot"
    for at in range(0, len(sound), 37):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 0xFF]) + sound[at + 1 :])
        with suppress(UnknownSnapshot):
            archive.extract(file, tmp_path / "unpacked")
            assert (tmp_path / "unpacked" / "resource.db").read_bytes() == (tmp_path / "resource.db").read_bytes()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"time_scale": float("nan")}, "time_scale: Input should be a finite number"),
        ({"time_scale": -1}, "time_scale: Input should be greater than or equal to 0"),
        ({"emulated_s": 1e18}, "emulated_s: Input should be less than or equal to"),
        ({"taken_wall_s": float("inf")}, "taken_wall_s: Input should be a finite number"),
        ({"processes": ["resource", "oracle"]}, "unknown process 'oracle'"),
        ({"databases": {"../elsewhere": {"revision": "", "bytes": 0, "sha256": ""}}}, "unknown process '../elsewhere'"),
        ({"topology": "cray-1"}, "its machine cannot be built: 'cray-1' is neither a file nor a machine"),
    ],
)
def test_a_manifest_that_no_stack_could_be_of_changes_nothing(
    changes: dict[str, object], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    kept = database(folder.path / "resource.db").read_bytes()
    (tmp_path / "other").mkdir()
    file = rewritten(written(tmp_path / "other"), changes)
    code, _, err = run_matrixctl(capsys, "restore", str(file), "--stopped", "--state", str(folder.path))
    assert (code, sentence in err.replace("\n", " ")) == (1, True), err
    assert (folder.path / "resource.db").read_bytes() == kept
    assert {found.name for found in tmp_path.iterdir()} == {"state", "other"}


def test_what_is_no_database_is_refused_though_its_digest_is_right(tmp_path: Path) -> None:
    (tmp_path / "resource.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UnknownSnapshot, match=r"resource\.db is damaged: file is not a database"):
        archive.make_consistent(tmp_path / "resource.db")


def test_a_log_that_was_not_written_back_is_in_the_copy(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "live.db", isolation_level=None)) as live:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("PRAGMA wal_autocheckpoint=0")
        live.execute("CREATE TABLE numbers (n INTEGER)")
        live.execute("INSERT INTO numbers VALUES (7)")
        live.execute("BEGIN")
        live.execute("INSERT INTO numbers VALUES (8)")  # under way, as in a process that is stopped
        for part in ("", "-wal"):
            (tmp_path / f"copy.db{part}").write_bytes((tmp_path / f"live.db{part}").read_bytes())
    archive.make_consistent(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db-wal").exists()
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT n FROM numbers").fetchall() == [(7,)]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("snapshot", "show"), 2, "name the file to show"),
        (("snapshot", "show", "nowhere.snapshot"), 2, "there is no file nowhere.snapshot"),
        (("snapshot", "a.snapshot"), 3, "there is no stack in"),
        (("restore", "nowhere.snapshot"), 2, "there is no file nowhere.snapshot"),
        (("reset",), 3, "there is no stack in"),
        (("reset", "--to", "nowhere.snapshot"), 2, "there is no file nowhere.snapshot"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    words: tuple[str, ...], code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = run_matrixctl(capsys, *words, "--state", str(tmp_path / "state"))
    assert (found, sentence in err) == (code, True), err
    assert not (tmp_path / "state").exists()


def test_a_snapshot_of_another_schema_leaves_the_stack_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    kept = database(folder.path / "resource.db").read_bytes()
    (tmp_path / "other").mkdir()
    code, _, err = run_matrixctl(
        capsys, "restore", str(written(tmp_path / "other", "v9_0001")), "--state", str(folder.path)
    )
    assert (code, "restore it with the version that made it" in err.replace("\n", " ")) == (1, True), err
    assert (folder.path / "resource.db").read_bytes() == kept
