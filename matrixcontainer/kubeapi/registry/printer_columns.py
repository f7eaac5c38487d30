"""Columns of tables, and ages as kubectl writes them."""

from __future__ import annotations

from typing import Any

from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp


def human_age(seconds: float) -> str:
    """The shortest text that still says enough."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    s = max(s, 0)
    if s < 120:
        return f"{s}s"
    minutes = s // 60
    if minutes < 10:
        return f"{minutes}m" + (f"{s % 60}s" if s % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    hours = s // 3600
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y" + (f"{days % 365}d" if days % 365 else "")
    return f"{years}y"


def age_of(text: Any, now: float) -> str:
    return human_age(now - parse_timestamp(text)) if isinstance(text, str) and text else "<unknown>"


def column(
    name: str, kind: str = "string", priority: int = 0, format: str = "", description: str = ""
) -> dict[str, Any]:
    return {"name": name, "type": kind, "format": format, "description": description, "priority": priority}


NAME = column("Name", format="name", description="The object's name, of its own within its namespace.")


AGE = column("Age", description="How long ago the object was created.")


CUSTOM_AGE = AGE | {"type": "date"}
