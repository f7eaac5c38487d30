"""How a process reads its settings: from the environment, overridden by flags, each with its sentence in `--help`.

A setting is a field of a pydantic model; `port` is read from `CLOUDMATRIX_PORT` or `--port`. A wrong value ends the
process with one line that names the setting and what would be accepted.
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
from services.chassis.database_url import ACCEPTED, check_database_url

PREFIX = "CLOUDMATRIX_"


class Settings(BaseModel):
    """Settings every process has."""

    model_config = ConfigDict(extra="forbid")
    EVENT_LOOP: ClassVar[Literal["asyncio", "uvloop"]] = "uvloop"
    """uvloop carries requests for less, and rounds what something waits to the nearest millisecond: not for what plays
    hardware or steps in emulated time, of which a minute may pass in a second."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(0, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    state: Path = Field(Path(".state"), description="folder for everything this process keeps")
    time_scale: float = Field(1.0, gt=0, le=100_000, description="emulated seconds that pass in one second")
    time_anchor_wall: float = Field(0.0, description="an instant on the wall clock (seconds since the epoch) ...")
    time_anchor_emulated: float | None = Field(None, description="... and the same instant in emulated time")
    clock_file: Path | None = Field(
        None, description="file that says how emulated time runs, read again as it changes; instead of the three above"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    tokens: Path | None = Field(None, description="file of bearer tokens; without one every request is an admin's")
    token: str = Field("", description="bearer token this process shows to the others")
    seed: int | None = Field(None, description="seed for everything left to chance; none takes a fresh one")

    @classmethod
    def load(cls, program: str, argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Self:
        """Settings from the environment and `argv`. Exits with 2 and one line where a value is wrong."""
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
                print(
                    f"{program}: --{setting.replace('_', '-')} ({PREFIX}{setting.upper()}): {error['msg']}",
                    file=sys.stderr,
                )
            raise SystemExit(2) from None

    @contextmanager
    def in_use(self, program: str) -> Iterator[None]:
        """While a process is built: a setting that shows there to be wrong (a file that is not there, or that makes no
        sense) ends it with 2 and one line too."""
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
    """Settings of a process with a database of its own."""

    database: str = Field("", description=f"{ACCEPTED}; without one a SQLite file in the state folder")

    @field_validator("database")
    @classmethod
    def _can_be_used(cls, url: str) -> str:
        try:
            if url:
                check_database_url(url)
        except ValueError as wrong:
            raise PydanticCustomError("database_url", "{why}", {"why": str(wrong)}) from wrong
        return url

    def database_url(self, service: str) -> str:
        """The given URL, or the service's own SQLite file. A bare postgresql:// URL is taken to mean psycopg 3."""
        if not self.database:
            self.state.mkdir(parents=True, exist_ok=True)
            return f"sqlite:///{(self.state / f'{service}.db').resolve()}"
        return self.database.replace("postgresql://", "postgresql+psycopg://", 1)


class LedSettings(ServiceSettings):
    """Settings of a service of which one replica carries the workflows."""

    leader_lease: float = Field(
        3.0, ge=0.5, le=60, description="wall seconds of silence after which another replica takes over the work"
    )
