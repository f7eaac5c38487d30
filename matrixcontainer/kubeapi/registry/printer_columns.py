"""Table columns, and ages as kubectl prints them."""

from __future__ import annotations

from typing import Any

from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
AGES = (  # for ages below the first value: the unit, and the unit of the remainder
    (2 * MINUTE, 1, "s", 0, ""),
    (10 * MINUTE, MINUTE, "m", 1, "s"),
    (3 * HOUR, MINUTE, "m", 0, ""),
    (8 * HOUR, HOUR, "h", MINUTE, "m"),
    (2 * DAY, HOUR, "h", 0, ""),
    (8 * DAY, DAY, "d", HOUR, "h"),
    (2 * YEAR, DAY, "d", 0, ""),
    (8 * YEAR, YEAR, "y", DAY, "d"),
)


def human_age(seconds: float) -> str:
    """An age as kubectl prints it: in one unit, or in two where one would be too coarse."""
    if int(seconds) < -1:
        return "<invalid>"
    s = max(int(seconds), 0)
    old = (0, YEAR, "y", 0, "")
    _, unit, word, smaller, rest = next((age for age in AGES if s < age[0]), old)
    left = s % unit // smaller if smaller else 0
    return f"{s // unit}{word}" + (f"{left}{rest}" if left else "")


def age_of(text: Any, now: float) -> str:
    return human_age(now - parse_timestamp(text)) if isinstance(text, str) and text else "<unknown>"


def column(
    name: str, kind: str = "string", priority: int = 0, format: str = "", description: str = ""
) -> dict[str, Any]:
    return {"name": name, "type": kind, "format": format, "description": description, "priority": priority}


NAME = column("Name", format="name", description="The object's name, of its own within its namespace.")


AGE = column("Age", description="How long ago the object was created.")


CUSTOM_AGE = AGE | {"type": "date"}
