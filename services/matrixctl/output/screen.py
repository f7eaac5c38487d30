"""What a person or a program sees: tables, JSON, YAML, refusals in one line, and the exit codes that go with them.

Colours and moving things appear on a terminal only; NO_COLOR is respected (Rich sees to both).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from matrixcommon.model.errors import InvalidField, MatrixError, Unavailable
from matrixcommon.model.reasons import reasons
from matrixcommon.model.resource_key import DEFAULT_PROJECT, key_of

if TYPE_CHECKING:
    from rich.console import Console

UNBROKEN_WIDTH = 1_000_000
"""Columns of what is no terminal: more than any table has."""
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_OUTPUT_CLOSED = 141
"""As a shell reports who was ended by SIGPIPE."""


class Form(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


FOR_PROGRAMS = (Form.JSON, Form.YAML, Form.NAME)


class NotRunning(MatrixError):
    """There is no stack to ask in this state folder."""

    status = 503


class NotAccessible(MatrixError):
    """The system does not let us read or write a file."""


@cache
def console() -> Console:
    from rich.console import Console

    # Piped output is for programs and greps: no line is broken, no column of a table is cut to make room for others.
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else UNBROKEN_WIDTH)


_FOREIGN = re.compile(r"(?<!\\)\[(?!/\]|(?:bold )?(?:red|green|cyan)\]|bold\]|dim\])")
"""What opens no tag of those that we write."""


def say(text: str = "") -> None:
    """One line, with the markup that we write: [bold], [dim], [red], [green], [cyan] and [/]. Other brackets are those
    of a path, a name or a sentence of somebody's, and are shown as they are."""
    from rich.errors import MarkupError

    try:
        console().print(_FOREIGN.sub(r"\[", text))
    except MarkupError:
        console().print(text, markup=False)


def say_deleted(name: str, view: dict[str, Any]) -> None:
    """What became of what was to be deleted: the state it is in while it goes, or that it is gone."""
    say(f"{name} is {view['state']}" if view.get("state") else f"{name} is gone")


def text(value: object) -> str:
    """Text that is not ours, so that nothing in it is taken for markup."""
    from rich.markup import escape

    return escape(str(value))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table, columns as wide as they need; state words in their colour."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        shown.add_column(column.upper(), no_wrap=not sys.stdout.isatty(), overflow="fold")
    for row in rows:
        shown.add_row(*(coloured(escape(str(cell))) for cell in row))
    console().print(shown)


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on a terminal, moved by (done, of how many, what is going on); None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)


_GOOD = {"Ready", "Active", "Available", "Bound", "Programmed", "True", "Connected", "Up", "Healthy", "Serving"}
_BAD = {"Failed", "Lost", "Stopped", "Restarting", "NotReady", "Quarantined", "False", "Down", "Stuck"}


def coloured(word: str) -> str:
    if word in _GOOD:
        return f"[green]{word}[/]"
    if word in _BAD:
        return f"[red]{word}[/]"
    return word


def full_name(view: dict[str, Any]) -> str:
    """The name of a resource, which is unique within its project, with that where it is not the default one."""
    return key_of(str(view.get("project") or DEFAULT_PROJECT), str(view.get("name", "")))


def names_in(value: Any) -> list[str]:
    """The names of the resources that a value is, or has as its `items` or in whatever else it lists, as other commands
    take them: with its project where that is not the default one. Raises InvalidField where it has none."""
    items = value.get("items", [value] if "name" in value else None) if isinstance(value, dict) else value
    if items is None:
        items = next((each for each in value.values() if isinstance(each, list)), [])
    names = [full_name(each) for each in items if isinstance(each, dict) and each.get("name")]
    if items and not names:
        raise InvalidField("what is printed here has no names; use table, wide, json or yaml", field="--output")
    return names


def document(value: Any, form: Form) -> None:
    """A value for programs, as JSON or YAML, or its names, a line each; plain, however wide."""
    if form is Form.NAME:
        print("".join(f"{name}\n" for name in names_in(value)), end="")
    elif form is Form.YAML:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def one_line(error: MatrixError) -> str:
    """Reason, message, field and what stands in the way, in one line."""
    text = f"{error.reason}: {error.message}"
    if error.field:
        text += f" [field {error.field}]"
    if more := [item for item in error.blocking if not _repeats(item, error)]:
        text += " [blocking: " + "; ".join(_blocking(item) for item in more) + "]"
    if (known := reasons().get(error.reason)) and known.do and "`" not in error.message:
        text += f" [next: {known.do}]"
    return " ".join(text.split())


def _repeats(item: dict[str, Any], error: MatrixError) -> bool:
    """Whether it is no more than the refusal itself: its field, and its message, which may begin with that."""
    messages = (error.message, error.message.removeprefix(f"{error.field}: "))
    return item.keys() == {"field", "message"} and item["field"] == error.field and item["message"] in messages


def _blocking(item: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in item.items())


def refuse(error: MatrixError) -> int:
    """Print a refusal; returns the exit code it deserves."""
    print(one_line(error), file=sys.stderr)
    return EXIT_UNREACHABLE if isinstance(error, NotRunning | Unavailable) else EXIT_REFUSED


def in_words(wrong: Exception) -> str:
    """What was wrong with a file: without the number and the path that an OSError says too."""
    return (wrong.strerror if isinstance(wrong, OSError) else None) or str(wrong)


def size_text(size: int | None) -> str:
    """Bytes as a reader wants them: 47 MiB, 312 KiB; - where it is not known."""
    if size is None:
        return "-"
    return f"{size / (1 << 20):.0f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):.0f} KiB"
