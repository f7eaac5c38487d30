"""Filters of lists: parse the terms, check their fields against the kind's view, and match them against resources.

    state=Available AND cabinet!=sn0-c03
    agent.status=Lost AND labels.app.kubernetes.io/name=search AND members.node=sn0-c03-n1

A field that is a list matches if any of its entries does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from matrixcommon.api.declared_fields import require_field
from matrixcommon.model.errors import InvalidField

Term = tuple[list[str], str, bool]
"""The path of a field, a text to compare it with, and whether the comparison is negated (`!=`)."""

ANOTHER_TERM = re.compile(r"(,\s*|\s+(and|or)\s+|\s*(&&|\|\|)\s*)[A-Za-z][\w.]*!?=|\s(and|or)$", re.IGNORECASE)
"""A further term that is joined in an unsupported way, or missing after its AND. Unquoted values never contain it."""


def parse_filter(text: str | None, view: type[BaseModel] | None = None) -> Callable[[dict[str, Any]], bool]:
    """A filter as a predicate over resources. Raises InvalidField if it cannot be parsed, or names a field that the
    view does not declare."""
    return predicate(filter_terms(text, view))


def filter_terms(text: str | None, view: type[BaseModel] | None) -> tuple[Term, ...]:
    """The terms of a filter. Raises InvalidField if it cannot be parsed, or names a field that the view does not
    declare."""
    terms = tuple(_read_terms(text)) if text else ()
    for path, _, _ in terms:
        require_field(view, path, "filter")
    return terms


def _read_terms(text: str) -> Iterator[Term]:
    """Raises InvalidField."""
    for part in text.split(" AND "):
        path, found, value = part.partition("=")
        negated = path.endswith("!")
        path = path.removesuffix("!").strip()
        value = value.strip()
        quoted = value.startswith('"')
        unread = len(value) < 2 or not value.endswith('"') if quoted else ANOTHER_TERM.search(value)
        if not found or not path or unread:
            raise InvalidField(
                f"cannot read {part!r}; write field=value or field!=value, joined by AND; there is no OR",
                field="filter",
            )
        yield path.split("."), value.strip('"'), negated


# ---- matching


def match_all(view: dict[str, Any]) -> bool:
    return True


def predicate(terms: tuple[Term, ...]) -> Callable[[dict[str, Any]], bool]:
    if not terms:
        return match_all
    return lambda view: all(_matches(view, path, value) != negated for path, value, negated in terms)


def _matches(view: dict[str, Any], path: list[str], text: str) -> bool:
    if len(path) == 1:
        value = view.get(path[0])
        if not isinstance(value, list):
            return as_text(value) == text
    values = [*_values_at(view, path)] or [None]
    return any(as_text(value) == text for value in values)


def _values_at(view: Any, path: list[str]) -> Iterator[Any]:
    """All values at a path; in lists, those of every entry."""
    if isinstance(view, list):
        for each in view:
            yield from _values_at(each, path)
    elif not path:
        yield view
    elif isinstance(view, dict):
        whole = ".".join(path)
        if whole in view:
            yield from _values_at(view[whole], [])
        elif path[0] in view:
            yield from _values_at(view[path[0]], path[1:])


def field_at(view: dict[str, Any], path: list[str]) -> Any:
    """The first value at a path; None if there is none."""
    return next(_values_at(view, path), None)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
