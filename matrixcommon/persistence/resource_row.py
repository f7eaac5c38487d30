"""ResourceRow: the base of every resource's row, with a name, a version, a state, and a view for the API."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from sqlalchemy import JSON, BigInteger, Float, Integer, Select, String, Text, bindparam, func, select
from sqlalchemy.orm import Mapped, Session, class_mapper, mapped_column

from matrixcommon.model.errors import NotFound, PreconditionFailed
from matrixcommon.model.event_view import EventView
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of
from matrixcommon.model.resource_model import ResourceView, StuckView, set_condition
from matrixcommon.model.state_machine import StateMachine

R = TypeVar("R", bound="ResourceRow")
V = TypeVar("V", bound=ResourceView)


class ResourceRow:
    """Columns that every resource has. A subclass sets its `kind` and builds its view in `view()`.

    `name` is its key (`resource_key`). `generation` counts changes of the spec (the caller's request), `version` is the
    number of the last change; `created_at` and `updated_at` are emulated seconds since the epoch, set by the journal.
    """

    kind: str = "resource"

    name: Mapped[str] = mapped_column(String(253), primary_key=True)
    project: Mapped[str] = mapped_column(String(63), default="default")
    labels: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    generation: Mapped[int] = mapped_column(Integer, default=1)
    version: Mapped[int] = mapped_column(BigInteger, default=0)
    state: Mapped[str] = mapped_column(String(40), default="")
    conditions: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    created_at: Mapped[float] = mapped_column(Float, default=0.0)
    updated_at: Mapped[float] = mapped_column(Float, default=0.0)

    SELECTABLE: ClassVar[frozenset[str]] = frozenset()
    """Text columns, never null, that the view shows unchanged: filters on these are applied in the database."""
    MOVES: ClassVar[StateMachine]
    """The allowed moves, for kinds whose state follows a table."""
    REUSES_VIEW: ClassVar[bool] = False
    """Whether the view made for the journal is kept to answer the request. A view takes as much memory as its row, and
    cached rows live as long as the resource, so only kinds with an expensive view set this."""

    def move(self, state: str) -> None:
        self.state = self.MOVES.check(self.state, state)

    def set_condition(
        self, type: str, status: bool | None, reason: str, message: str, now: float, generation: int | None = None
    ) -> None:
        """Set a condition as of `generation` (default: its own); the transition time changes only if the status
        does."""
        observed = generation or self.generation or 1
        self.conditions = set_condition(
            self.conditions or [], type, status, reason, message, generation=observed, now=now
        )

    def find_condition(self, type: str) -> dict[str, Any] | None:
        return next((each for each in self.conditions or [] if each["type"] == type), None)

    def stamp(self, now: float) -> None:
        """Record that it changed at `now`; called by the journal for every change."""
        self.updated_at = now

    def view(self) -> ResourceView:
        raise NotImplementedError

    def view_as(self, view: type[V], **otherwise: Any) -> V:
        """A view whose fields come from the columns of the same names, except those given in `otherwise`. Columns that
        are None leave the view's default."""
        alike = {
            name: getattr(self, name)
            for name in _shared_columns(cast(Hashable, type(self)), view)
            if name not in otherwise
        }
        set_ones = {name: value for name, value in alike.items() if value is not None}
        return view.from_stored({**self.common_fields(), **set_ones, **otherwise})

    def shown(self) -> ResourceView:
        """The view as of the last change, for the answer to its request; call it outside of transactions."""
        version, view = self.__dict__.pop("_shown", (None, None))
        return view if view is not None and version == self.version else self.view()

    def show(self) -> ResourceView:
        """The view for the journal, after its change was numbered."""
        view = self.view()
        if self.REUSES_VIEW:
            self.__dict__["_shown"] = self.version, view
        return view

    @property
    def etag(self) -> str:
        return f'"{self.version}"'

    def common_fields(self) -> dict[str, Any]:
        """The fields of every view, to which a subclass's view adds its own."""
        return {
            "name": name_of(self.name),
            "project": self.project or "default",
            "labels": self.labels or {},
            "generation": self.generation if self.generation is not None else 1,
            "etag": self.etag,
            "state": self.state or "",
            "conditions": self.conditions or [],
            "created_at": timestamp(self.created_at or 0.0),
            "updated_at": timestamp(self.updated_at or 0.0),
        }


class TimedStateRow(ResourceRow):
    """A row that records since when it has been in its state: emulated seconds since the epoch."""

    state_since: Mapped[float | None] = mapped_column(Float)

    def move(self, state: str) -> None:
        before = self.state
        super().move(state)
        self.state_changed(before)

    def state_changed(self, before: str | None) -> None:
        """If the state differs from `before`, have the journal's next stamp set the time of the change."""
        if self.state != before:
            self.state_since = None

    def stamp(self, now: float) -> None:
        super().stamp(now)
        if self.state_since is None:
            self.state_since = now

    def is_overdue(self, now: float) -> bool:
        """Whether it has been in a transitional state for longer than the state's deadline."""
        return self.state_since is not None and self.MOVES.stuck(self.state, self.state_since, now)

    def overdue_view(self, now: float, message: str) -> StuckView:
        """Its entry in the list of stuck resources. `message`: what it waits for, and what to do about it."""
        return StuckView(
            name=name_of(self.name),
            project=self.project or DEFAULT_PROJECT,
            state=self.state,
            seconds=round(now - (self.state_since or now), 1),
            reason="DeadlineExceeded",
            message=message,
        )


@cache
def _shared_columns(row: Hashable, view: type[ResourceView]) -> tuple[str, ...]:
    columns = class_mapper(cast(type, row)).column_attrs
    return tuple(name for name in view.model_fields if name not in ResourceView.model_fields and name in columns)


@cache
def _count_query(kind: Any, column: str) -> Select[Any]:
    """A query for the number of rows whose `column` is `subject`; built once, since that takes as long as running
    it."""
    return select(func.count()).select_from(kind).where(getattr(kind, column) == bindparam("subject", type_=String()))


class EventColumns:
    """Columns of an event besides its name and subject."""

    type: Mapped[str] = mapped_column(String(10))
    reason: Mapped[str] = mapped_column(String(60))
    message: Mapped[str] = mapped_column(Text)
    at: Mapped[float] = mapped_column(Float, index=True)

    @classmethod
    def note(cls, session: Session, at: float, type: str, reason: str, message: str, **about: str) -> None:
        """Add an event. `about`: its further columns, the subject first; the event's name derives from the subject."""
        kind: Any = cls
        column, subject = next(iter(about.items()))
        with session.no_autoflush:
            count = session.scalar(_count_query(kind, column), {"subject": str(subject)}) or 0
        count += sum(isinstance(each, kind) and getattr(each, column) == subject for each in session.new)
        name = f"{subject}.{int(at * 1000):x}.{count}"
        session.add(kind(name=name, type=type, reason=reason, message=message, at=at, state="Seen", **about))

    def view(self: Any) -> EventView:
        """The view; its subject may be hardware, which belongs to no project."""
        shown = self.common_fields() | {"name": self.name, "project": self.project or None} | self.described()
        return EventView(about=self.about, **shown)

    def described(self) -> dict[str, Any]:
        """These columns as fields of the event's view."""
        return {
            "type": "Warning" if self.type == "Warning" else "Normal",
            "reason": self.reason,
            "message": self.message,
            "at": timestamp(self.at),
        }


def find(session: Session, kind: type[R], name: str) -> R:
    """Return the row of that key. Raises NotFound."""
    row = session.get(kind, name)
    if row is None:
        raise NotFound(f"there is no {kind.kind} named {name_of(name)[:80]!r}", field="name")
    return row


ABSENT = "If-None-Match: *"
"""Used as the value of `If-Match` to require that the resource does not exist yet."""


def check_etag(row: ResourceRow | None, if_match: str | None) -> None:
    """Raise PreconditionFailed unless `If-Match` (a list of etags, or `*` for any existing resource) covers the row's
    version or, if it is `ABSENT`, there is no row."""
    if if_match is None:
        return
    if if_match is ABSENT:  # identity: a client's text could be equal to it
        if row is not None:
            raise PreconditionFailed(f"it exists already, as version {row.etag}", field="If-None-Match")
        return
    wanted = {tag.strip().removeprefix("W/") for tag in if_match.split(",")}
    if row is None or ("*" not in wanted and row.etag not in wanted and f"{row.version}" not in wanted):
        current = "there is no such resource" if row is None else f"the resource is at version {row.etag}"
        raise PreconditionFailed(f"If-Match requires {if_match}, but {current}", field="If-Match")
