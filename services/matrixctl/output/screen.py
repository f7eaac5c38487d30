"""Output for people and programs: tables, JSON, YAML, one-line errors, and exit codes.

Colours and animation appear only on a terminal; NO_COLOR is respected (Rich handles both).
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
"""Width when output is no terminal: wider than any table."""
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_OUTPUT_CLOSED = 141
"""As a shell reports a process killed by SIGPIPE."""


class OutputFormat(StrEnum):
    """Output formats."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


MACHINE_FORMATS = (OutputFormat.JSON, OutputFormat.YAML, OutputFormat.NAME)


class NotRunning(MatrixError):
    """No stack runs in this state folder."""

    status = 503


class NotAccessible(MatrixError):
    """A file cannot be read or written."""


@cache
def console() -> Console:
    from rich.console import Console

    # Piped output is for programs: lines are not wrapped, and table columns are not truncated.
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else UNBROKEN_WIDTH)


_FOREIGN_BRACKET = re.compile(r"(?<!\\)\[(?!/\]|(?:bold )?(?:red|green|cyan)\]|bold\]|dim\])")
"""A bracket that does not open one of our own tags."""


def echo(text: str = "") -> None:
    """Print a line that may use the tags [bold], [dim], [red], [green], [cyan] and [/]. Other brackets, such as those
    in paths and messages, are printed as they are."""
    from rich.errors import MarkupError

    try:
        console().print(_FOREIGN_BRACKET.sub(r"\[", text))
    except MarkupError:
        console().print(text, markup=False)


def echo_deleted(name: str, view: dict[str, Any]) -> None:
    """Print the result of a deletion: the state while it is being deleted, or that it is gone."""
    echo(f"{name} is {view['state']}" if view.get("state") else f"{name} is gone")


def escape_markup(value: object) -> str:
    """Escape foreign text, so that nothing in it is taken for markup."""
    from rich.markup import escape

    return escape(str(value))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a plain table with columns as wide as needed and coloured states."""
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
    """Yield a function (done, total, text) that updates a progress bar on a terminal; None elsewhere."""
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
    """The name of a resource, prefixed with its project unless that is the default one."""
    return key_of(str(view.get("project") or DEFAULT_PROJECT), str(view.get("name", "")))


def resource_names(value: Any) -> list[str]:
    """The names of the resources in a value (itself, its `items`, or its first list), in the form other commands
    accept: with the project unless it is the default one. Raises InvalidField if they have no names."""
    items = value.get("items", [value] if "name" in value else None) if isinstance(value, dict) else value
    if items is None:
        items = next((each for each in value.values() if isinstance(each, list)), [])
    names = [full_name(each) for each in items if isinstance(each, dict) and each.get("name")]
    if items and not names:
        raise InvalidField("this output has no names; use table, wide, json or yaml", field="--output")
    return names


def print_document(value: Any, form: OutputFormat) -> None:
    """Print a value for programs: as JSON or YAML, or its names, one per line; never wrapped."""
    if form is OutputFormat.NAME:
        print("".join(f"{name}\n" for name in resource_names(value)), end="")
    elif form is OutputFormat.YAML:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")
    else:
        print(json.dumps(value, indent=2, ensure_ascii=False))


def one_line(error: MatrixError) -> str:
    """An error in one line: reason, message, field, what is in the way, and advice."""
    text = f"{error.reason}: {error.message}"
    if error.field:
        text += f" [field {error.field}]"
    if more := [item for item in error.blocking if not _is_redundant(item, error)]:
        text += " [blocking: " + "; ".join(_blocking(item) for item in more) + "]"
    if (known := reasons().get(error.reason)) and known.do and "`" not in error.message:
        text += f" [next: {known.do}]"
    return " ".join(text.split())


def _is_redundant(item: dict[str, Any], error: MatrixError) -> bool:
    """Whether the item only repeats the error's own field and message."""
    messages = (error.message, error.message.removeprefix(f"{error.field}: "))
    return item.keys() == {"field", "message"} and item["field"] == error.field and item["message"] in messages


def _blocking(item: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in item.items())


def print_error(error: MatrixError) -> int:
    """Print an error and return its exit code."""
    print(one_line(error), file=sys.stderr)
    return EXIT_UNREACHABLE if isinstance(error, NotRunning | Unavailable) else EXIT_REFUSED


def file_error_message(wrong: Exception) -> str:
    """The message of a file error, without the number and path of an OSError."""
    return (wrong.strerror if isinstance(wrong, OSError) else None) or str(wrong)


def format_size(size: int | None) -> str:
    """A size for people: 47 MiB, 312 KiB; - if unknown."""
    if size is None:
        return "-"
    return f"{size / (1 << 20):.0f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):.0f} KiB"
