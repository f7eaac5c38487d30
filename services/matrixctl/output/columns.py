"""Table columns, and how cells are taken from a view.

Columns are written as kubectl's `-o custom-columns` wants them: `TITLE:path`, the title left out where it is the path.
A path goes into the view (`members.length` counts a list); what a view does not have shows as `-`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from services.matrixctl.output.screen import table

TIME_FIELD = re.compile(r"(^|\.)at$|(At|Until)$")
"""Fields that hold a time. Services use emulated time; kubectl shows wall time."""


def titles(columns: str) -> list[str]:
    named = (column.partition(":") for column in columns.split(", "))
    return [f"{title} (emulated)" if TIME_FIELD.search(path or title) else title for title, _, path in named]


def with_projects(columns: str, views: Iterable[dict[str, Any]]) -> str:
    """Add a project column if there are several projects, since names are unique only within one."""
    several = len({view.get("project") for view in views}) > 1
    return f"{columns}, project" if several and "project" not in columns.split(", ") else columns


def cells(columns: str, view: dict[str, Any]) -> list[str]:
    paths = (column.partition(":") for column in columns.split(", "))
    return [format_cell(value_at(view, path or title)) for title, _, path in paths]


def print_table(columns: str, views: Iterable[dict[str, Any]]) -> None:
    """Print a table of these columns."""
    table(titles(columns), [cells(columns, view) for view in views])


def value_at(view: Any, path: str) -> Any:
    """The value at a dotted path, for lists that of each element; None if the path does not exist."""
    for step in path.split("."):
        if step == "length" and isinstance(view, list):
            return len(view)
        if isinstance(view, list):
            view = [value_at(each, step) for each in view]
        else:
            view = view.get(step) if isinstance(view, dict) else None
    return view


def format_cell(value: Any) -> str:
    """The text of a cell."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(format_cell(item) for item in value) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={format_cell(item)}" for key, item in value.items()) or "-"
    return str(value)
