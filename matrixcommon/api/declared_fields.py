"""The fields that a model declares, and checks of field paths against them."""

from __future__ import annotations

from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from matrixcommon.model.errors import InvalidField

SUGGESTIONS_MAX = 30
"""The most fields that a refusal lists."""


def wire_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their names on the wire."""
    return {each.alias or name: each for name, each in model.model_fields.items()}


def require_field(view: type[BaseModel] | None, path: list[str], parameter: str) -> None:
    """Raise InvalidField if the view, or a model nested in it, does not declare the field. Without a view, accept
    everything."""
    if view is not None and (hint := suggest_fields(view, path)) is not None:
        use = "order by" if parameter == "orderBy" else "filter by"
        raise InvalidField(f"there is no field {'.'.join(path)[:40]!r} to {use}{hint}", field=parameter)


def suggest_fields(declared: Any, path: list[str]) -> str | None:
    """Suggestions for the first undeclared step of a path, as the end of a sentence; None if the path may be valid.
    Entries of lists are not steps of a path."""
    if (missing := _first_undeclared(declared, path, 0)) is None:
        return None
    at, names = missing
    before = "".join(f"{step}." for step in path[:at])
    if near := get_close_matches(path[at], names, 1):
        return f"; did you mean {before + near[0]!r}?"
    rest = ", and more" if len(names) > SUGGESTIONS_MAX else ""
    return f"; there are {', '.join(before + name for name in sorted(names)[:SUGGESTIONS_MAX])}{rest}" if names else ""


def _first_undeclared(declared: Any, path: list[str], at: int) -> tuple[int, list[str]] | None:
    """The index of the first undeclared step of the path, and the names declared there; None if the path may be
    valid."""
    if at == len(path) or declared is Any:
        return None
    origin, within = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return _first_undeclared(within[0], path, at)
    if origin in (Union, UnionType):
        found = [_first_undeclared(each, path, at) for each in within if each is not type(None)]
        return None if None in found else max((each for each in found if each is not None), default=None)
    if origin in (list, tuple, set, frozenset):
        return _first_undeclared(next((each for each in within if each is not ...), Any), path, at)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        fields = wire_fields(declared)
        field = fields.get(path[at])
        return (at, [*fields]) if field is None else _first_undeclared(field.annotation, path, at + 1)
    if origin is Literal or (isinstance(declared, type) and issubclass(declared, str | int | float)):
        return at, []
    return None  # keys of mappings are free, and nothing is known of other types
