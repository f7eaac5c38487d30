"""Settings of a process: read from the environment, overridden by flags, each described in `--help`.

A setting is a field of a pydantic model; `port` is read from `CLOUDMATRIX_PORT` or `--port`. For a wrong value the
process exits with one line that names the setting and what would be accepted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from matrixcommon.emulation.stack_clock import StackClock
from matrixcommon.model.clock import Clock, ScaledClock
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import validation_message
from services.chassis.database_url import ACCEPTED_URLS, check_database_url

PREFIX = "CLOUDMATRIX_"


class Settings(BaseModel):
    """Settings of every process."""

    model_config = ConfigDict(extra="forbid")
    EVENT_LOOP: ClassVar[Literal["asyncio", "uvloop"]] = "uvloop"
    """uvloop is cheaper per request, but rounds timeouts to milliseconds: too coarse for processes that emulate
    hardware or step in emulated time, of which a minute may pass in a second."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(0, ge=0, le=65535, description="port to listen on; 0 for a free one")
    state: Path = Field(Path(".state"), description="folder for all files of this process")
    time_scale: float = Field(1.0, gt=0, le=100_000, description="emulated seconds per wall second")
    time_anchor_wall: float = Field(0.0, description="an instant of wall time (seconds since the epoch) ...")
    time_anchor_emulated: float | None = Field(None, description="... and the same instant in emulated time")
    clock_file: Path | None = Field(
        None, description="file that defines emulated time, read again when it changes; replaces the three above"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    tokens: Path | None = Field(None, description="file of bearer tokens; without one every request is an admin's")
    token: str = Field("", description="bearer token that this process sends to the others")
    seed: int | None = Field(None, description="random seed; by default a fresh one")

    @classmethod
    def load(cls, program: str, argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Self:
        """Read settings from the environment and `argv`. Exits with 2, and one line for each wrong value."""
        environ = os.environ if environ is None else environ
        parser = argparse.ArgumentParser(prog=program, description=(cls.__doc__ or "").strip())
        for name, field in cls.model_fields.items():
            shown = "" if field.default is None else f" (default: {field.default})"
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                dest=name,
                default=None,
                metavar="VALUE",
                help=f"{field.description}{shown}; or {PREFIX}{name.upper()}".replace("%", "%%"),
            )
        given: dict[str, Any] = {
            name: environ[PREFIX + name.upper()] for name in cls.model_fields if PREFIX + name.upper() in environ
        }
        flags = vars(parser.parse_args(argv))
        given |= {name: value for name, value in flags.items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as wrong:
            for error in wrong.errors():
                setting = str(error["loc"][0]) if error["loc"] else "settings"
                flag = f"--{setting.replace('_', '-')}"
                print(f"{program}: {flag} ({PREFIX}{setting.upper()}): {validation_message(error)}", file=sys.stderr)
            raise SystemExit(2) from None

    @contextmanager
    def reporting_invalid_settings(self, program: str) -> Iterator[None]:
        """Wrap the start of a process: a setting that turns out wrong then (a missing or invalid file) also exits with
        2 and one line."""
        try:
            yield
        except (InvalidField, OSError) as wrong:
            field = (wrong.field or "") if isinstance(wrong, InvalidField) else ""
            setting = f" --{field} ({PREFIX}{field.upper()}):" if field in type(self).model_fields else ""
            print(f"{program}:{setting} {wrong}", file=sys.stderr)
            raise SystemExit(2) from wrong

    def clock(self) -> Clock:
        if self.clock_file is not None:
            return StackClock(self.clock_file)
        return ScaledClock(self.time_scale, self.time_anchor_wall, self.time_anchor_emulated)


class ServiceSettings(Settings):
    """Settings of a process with its own database."""

    database: str = Field("", description=f"{ACCEPTED_URLS}; by default a SQLite file in the state folder")

    @field_validator("database")
    @classmethod
    def _check_database(cls, url: str) -> str:
        try:
            if url:
                check_database_url(url)
        except ValueError as wrong:
            raise PydanticCustomError("database_url", "{why}", {"why": str(wrong)}) from wrong
        return url

    def database_url(self, service: str) -> str:
        """The given URL, or that of the service's SQLite file. A plain postgresql:// URL means psycopg 3."""
        if not self.database:
            self.state.mkdir(parents=True, exist_ok=True)
            return f"sqlite:///{(self.state / f'{service}.db').resolve()}"
        return self.database.replace("postgresql://", "postgresql+psycopg://", 1)


class LeaderSettings(ServiceSettings):
    """Settings of a service of which one replica, the leader, runs the workflows."""

    leader_lease: float = Field(
        3.0, ge=0.5, le=60, description="wall seconds without a renewal after which another replica becomes leader"
    )
