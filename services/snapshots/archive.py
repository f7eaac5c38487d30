"""The snapshot file: a zip archive with `manifest.json`, a SQLite database for each process, and the machine's file
unless the machine is a built-in one.

The manifest gives each database's schema revision, size and digest. `show` reads only the manifest, and a damaged file
or one from another version is rejected before any state is changed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import MetaData

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.model.quantities import TIMESTAMP_MAX_S
from matrixcommon.model.validation import validation_message
from services.catalogue import PROCESSES
from services.chassis.database import Migrations
from services.snapshots.machine_file import MACHINE

FORMAT = 1
"""Version of the format. Increment it when the meaning of the manifest or the archive changes."""
MANIFEST = "manifest.json"
VERSIONED_PROCESSES = ("resource", "link", "compute", "infer", "kube")
"""The processes whose schemas have revisions; agents.db has a single table of documents."""
_BLOCK_BYTES = 1 << 20
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions of zipfile for a damaged or encrypted file, or one with an unknown compression method."""
_DISK_ERRORS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""SQLite errors caused by the disk rather than by the file's contents."""


class UnknownSnapshot(MatrixError):
    """The file is not a snapshot that this version can read."""

    status = 422


class DatabaseFile(BaseModel):
    """One database of a snapshot. `revision` is its schema revision, "" if it has none."""

    model_config = ConfigDict(frozen=True)

    revision: str
    bytes: int = Field(ge=0)
    sha256: str


def _check_process_name(name: str) -> str:
    if name not in {process.name for process in PROCESSES}:
        raise ValueError(f"unknown process {name[:100]!r}")
    return name


ProcessName = Annotated[str, AfterValidator(_check_process_name)]
"""Databases are unpacked to files with these names, so an untrusted file must not bring any other name."""
Moment = Annotated[float, Field(ge=0, le=TIMESTAMP_MAX_S, allow_inf_nan=False)]


class Manifest(BaseModel):
    """Description of a snapshot. Times are seconds since the epoch: `taken_wall_s` in wall-clock time, `emulated_s` in
    the stack's emulated time."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    version: str
    taken_wall_s: Moment
    emulated_s: Moment
    time_scale: float = Field(ge=0, le=100_000, allow_inf_nan=False)
    """0: emulated time was paused."""
    seed: int | None = None
    processes: tuple[ProcessName, ...]
    databases: dict[ProcessName, DatabaseFile] = {}
    topology: str | None = Field(None, pattern=rf"^([a-z0-9-]*|{MACHINE}\.[a-z]+)$")
    """The machine: the name of a built-in one ("": CloudMatrix384), or the archive member with its file. None: the
    snapshot was made by a version that did not record it."""

    @property
    def machine_file(self) -> str | None:
        """The archive member with the machine's file, if there is one."""
        return self.topology if self.topology is not None and "." in self.topology else None


def write(file: Path, manifest: Manifest, databases: Mapping[str, Path], machine: Path | None = None) -> Manifest:
    """Write the snapshot and replace `file` atomically, readable by its owner only. Return the manifest with the
    databases' descriptions. `machine` is stored as the manifest's `machine_file`."""
    file = file.expanduser().absolute()
    described = {name: _describe_database(name, path) for name, path in databases.items()}
    complete = manifest.model_copy(update={"databases": described})
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with (
            os.fdopen(descriptor, "wb") as out,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        ):
            archive.writestr(MANIFEST, complete.model_dump_json(indent=1))
            for name, path in databases.items():
                archive.write(path, _member(name))
            if machine is not None and complete.machine_file is not None:
                archive.write(machine, complete.machine_file)
            archive.close()
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return complete


def read_manifest(file: Path) -> Manifest:
    """Return the snapshot's manifest. Raises InvalidField if the file does not exist, and UnknownSnapshot if it is not
    a snapshot that this version can read."""
    if not file.is_file():
        raise InvalidField(f"there is no file {file}", field="FILE")
    try:
        with zipfile.ZipFile(file) as archive:
            text = archive.read(MANIFEST)
    except (*_UNREADABLE, KeyError, OSError) as wrong:
        raise UnknownSnapshot(f"{file} is not a snapshot: create one with `matrixctl snapshot FILE`") from wrong
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as wrong:
        raise UnknownSnapshot(f"the manifest of {file} is invalid: {_first_error(wrong)}") from wrong
    if manifest.format != FORMAT:
        raise UnknownSnapshot(
            f"{file} has format {manifest.format}, made by version {manifest.version}; this version reads {FORMAT}"
        )
    return manifest


def check_schemas(manifest: Manifest) -> list[str]:
    """Return the databases that the services will migrate when they start. Raises UnknownSnapshot if one has a schema
    revision that this version does not know."""
    older = []
    for name, database in manifest.databases.items():
        if name not in VERSIONED_PROCESSES:
            continue
        known, newest = Migrations(name, MetaData()).revisions()
        if database.revision not in known:
            raise UnknownSnapshot(
                f"its {name} database has the schema of another version (revision {database.revision or 'none'}, "
                f"made by {manifest.version}), which this version ({newest}) cannot read: restore it with the version "
                "that made it"
            )
        if database.revision != newest:
            older.append(name)
    return older


def extract(file: Path, folder: Path) -> Manifest:
    """Unpack the databases to `folder/NAME.db`, verifying each digest, and the machine's file. Raises
    UnknownSnapshot."""
    manifest = read_manifest(file)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open_archive(file) as archive:
        if manifest.machine_file is not None:
            archive.extract(manifest.machine_file, folder)
        for name, entry in manifest.databases.items():
            target = folder / f"{name}.db"
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out, archive.open(_member(name)) as source:
                digest = hashlib.sha256()
                while block := source.read(_BLOCK_BYTES):
                    digest.update(block)
                    out.write(block)
                out.flush()
                os.fsync(out.fileno())
            if digest.hexdigest() != entry.sha256:
                raise UnknownSnapshot(f"{file} is damaged: its {name} database does not match its checksum")
    return manifest


@contextmanager
def open_archive(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open the archive to read its members. Raises UnknownSnapshot if a member is missing or cannot be read."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except KeyError as wrong:
        raise UnknownSnapshot(f"{file} is damaged: {wrong.args[0]}") from wrong
    except _UNREADABLE as wrong:
        raise UnknownSnapshot(f"{file} is damaged: {wrong}") from wrong


def make_consistent(database: Path) -> None:
    """Merge a copied database and its write-ahead log into one file, as SQLite would after a crash. Raises
    UnknownSnapshot if the copy is corrupt, and OSError if the disk cannot be written."""
    try:
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise UnknownSnapshot(f"{database.name} is damaged: {found}")
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as wrong:
        if wrong.sqlite_errorcode & 0xFF in _DISK_ERRORS:
            raise OSError(f"{database.name} cannot be written: {wrong}") from wrong
        raise UnknownSnapshot(f"{database.name} is damaged: {wrong}") from wrong
    database.chmod(0o600)


def database_names(folder: Path) -> Iterable[str]:
    """Return the names of the processes that have a database in the folder."""
    return sorted(file.stem for file in folder.glob("*.db"))


def schema_revision(database: Path) -> str:
    """Return the schema revision of a database, "" if it has none."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return ""
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(found[0]) if found else ""


def _describe_database(name: str, database: Path) -> DatabaseFile:
    with database.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return DatabaseFile(revision=schema_revision(database), bytes=database.stat().st_size, sha256=digest)


def _first_error(wrong: ValidationError) -> str:
    """Return the first validation error with its location."""
    found = wrong.errors()[0]
    return ": ".join(filter(None, (".".join(str(part)[:100] for part in found["loc"]), validation_message(found))))


def _member(name: str) -> str:
    return f"databases/{name}.db"
