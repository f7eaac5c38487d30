"""The file of a snapshot: a zip archive with `manifest.json`, a SQLite database for each process, and the machine's
file where it is none of the built-in ones.

The manifest says what each database is (its schema's revision, its size, its digest), so that `show` reads nothing
else, and what is damaged or of another version is refused before anything is touched.
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
from matrixcommon.model.quantities import LATEST_S
from services.catalogue import PROCESSES
from services.chassis.database import Migrations
from services.snapshots.machine_file import MACHINE

FORMAT = 1
"""Raised by whoever changes what a manifest or an archive means."""
MANIFEST = "manifest.json"
MIGRATED = ("resource", "link", "compute", "infer", "kube")
"""The processes whose tables have revisions; agents.db has one table of documents."""
_BLOCK_BYTES = 1 << 20
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises for a file that is damaged, encrypted, or compressed in a way that it does not know."""
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""Of SQLite's errors, those that are of the disk and not of what lies on it."""


class UnknownSnapshot(MatrixError):
    """The file is no snapshot that this version can read."""

    status = 422


class DatabaseFile(BaseModel):
    """One database of a snapshot. `revision` is its schema's, "" where it has none."""

    model_config = ConfigDict(frozen=True)

    revision: str
    bytes: int = Field(ge=0)
    sha256: str


def _of_the_catalogue(name: str) -> str:
    if name not in {process.name for process in PROCESSES}:
        raise ValueError(f"there is no process {name[:100]!r}")
    return name


ProcessName = Annotated[str, AfterValidator(_of_the_catalogue)]
"""Databases are unpacked to files of these names, so no other may come from a file that somebody hands over."""
Moment = Annotated[float, Field(ge=0, le=LATEST_S, allow_inf_nan=False)]


class Manifest(BaseModel):
    """What a snapshot is. Times in seconds since the epoch: `taken_wall_s` the wall's, `emulated_s` the stack's."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    version: str
    taken_wall_s: Moment
    emulated_s: Moment
    time_scale: float = Field(ge=0, le=100_000, allow_inf_nan=False)
    """0: emulated time stood still."""
    seed: int | None = None
    processes: tuple[ProcessName, ...]
    databases: dict[ProcessName, DatabaseFile] = {}
    topology: str | None = Field(None, pattern=rf"^([a-z0-9-]*|{MACHINE}\.[a-z]+)$")
    """The machine: a built-in one by name ("": CloudMatrix384), or the member with its file. None: made by a version
    that did not say."""

    @property
    def machine_file(self) -> str | None:
        """The member with the machine's file, where there is one."""
        return self.topology if self.topology is not None and "." in self.topology else None


def write(file: Path, manifest: Manifest, databases: Mapping[str, Path], machine: Path | None = None) -> Manifest:
    """Replace `file` in one step, readable by its owner only. Returns the manifest with what each database is.
    `machine`: the file that the manifest's `machine_file` names."""
    file = file.expanduser().absolute()
    described = {name: _described(name, path) for name, path in databases.items()}
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
    """What the snapshot is. Raises InvalidField where there is no file, UnknownSnapshot where it is none."""
    if not file.is_file():
        raise InvalidField(f"there is no file {file}", field="FILE")
    try:
        with zipfile.ZipFile(file) as archive:
            text = archive.read(MANIFEST)
    except (*_UNREADABLE, KeyError, OSError) as wrong:
        raise UnknownSnapshot(f"{file} is no snapshot: `matrixctl snapshot FILE` makes one") from wrong
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as wrong:
        raise UnknownSnapshot(f"the manifest of {file} makes no sense: {_first(wrong)}") from wrong
    if manifest.format != FORMAT:
        raise UnknownSnapshot(
            f"{file} has format {manifest.format}, made by version {manifest.version}; this version reads {FORMAT}"
        )
    return manifest


def check_schemas(manifest: Manifest) -> list[str]:
    """The databases that the services will migrate at their start. Raises UnknownSnapshot where one is of a version
    that this one does not know."""
    older = []
    for name, database in manifest.databases.items():
        if name not in MIGRATED:
            continue
        known, newest = Migrations(name, MetaData()).revisions()
        if database.revision not in known:
            raise UnknownSnapshot(
                f"its {name} database has the tables of another version (revision {database.revision or 'none'}, "
                f"made by {manifest.version}), which this one ({newest}) cannot read: restore it with the version that "
                "made it"
            )
        if database.revision != newest:
            older.append(name)
    return older


def extract(file: Path, folder: Path) -> Manifest:
    """Unpack the databases as `folder/NAME.db`, each compared with its digest, and the machine's file. Raises
    UnknownSnapshot."""
    manifest = read_manifest(file)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with reading(file) as archive:
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
                raise UnknownSnapshot(f"{file} is damaged: its {name} database is not what was written")
    return manifest


@contextmanager
def reading(file: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, for its members. Raises UnknownSnapshot where one cannot be read or is not there."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except KeyError as wrong:
        raise UnknownSnapshot(f"{file} is damaged: {wrong.args[0]}") from wrong
    except _UNREADABLE as wrong:
        raise UnknownSnapshot(f"{file} is damaged: {wrong}") from wrong


def settle(database: Path) -> None:
    """Make one file of a copied database and its log, as SQLite would after a crash. Raises UnknownSnapshot where the
    copy is not sound, OSError where the disk does not take it."""
    try:
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise UnknownSnapshot(f"{database.name} is damaged: {found}")
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as wrong:
        if wrong.sqlite_errorcode & 0xFF in _NO_ROOM:
            raise OSError(f"{database.name} cannot be written: {wrong}") from wrong
        raise UnknownSnapshot(f"{database.name} is damaged: {wrong}") from wrong
    database.chmod(0o600)


def names_in(folder: Path) -> Iterable[str]:
    """The processes whose databases lie in a folder."""
    return sorted(file.stem for file in folder.glob("*.db"))


def revision_of(database: Path) -> str:
    """The revision of a database's tables, "" where it has none."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return ""
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(found[0]) if found else ""


def _described(name: str, database: Path) -> DatabaseFile:
    with database.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return DatabaseFile(revision=revision_of(database), bytes=database.stat().st_size, sha256=digest)


def _first(wrong: ValidationError) -> str:
    """The first of the errors, with where it is."""
    found = wrong.errors()[0]
    return ": ".join(filter(None, (".".join(str(part)[:100] for part in found["loc"]), found["msg"])))


def _member(name: str) -> str:
    return f"databases/{name}.db"
