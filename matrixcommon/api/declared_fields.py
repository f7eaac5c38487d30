"""Which fields a model declares, and what of a path is none of them."""

from __future__ import annotations

from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from matrixcommon.model.errors import InvalidField

FIELDS_SHOWN = 30
"""How many fields a refusal names."""


def wire_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model, by the names that they have outside."""
    return {each.alias or name: each for name, each in model.model_fields.items()}


def demand_field(view: type[BaseModel] | None, path: list[str], parameter: str) -> None:
    """Raises InvalidField where the view declares no such field, or one of a part of it; without a view nothing is
    known to be missing."""
    if view is not None and (hint := fields_instead(view, path)) is not None:
        use = "order by" if parameter == "orderBy" else "filter by"
        raise InvalidField(f"there is no field {'.'.join(path)[:40]!r} to {use}{hint}", field=parameter)


def fields_instead(declared: Any, path: list[str]) -> str | None:
    """What there is in place of what of a path is not declared, as the end of a sentence; None where it may lead
    somewhere. Entries of lists are no steps of a path."""
    if (missing := _missing(declared, path, 0)) is None:
        return None
    at, names = missing
    before = "".join(f"{step}." for step in path[:at])
    if near := get_close_matches(path[at], names, 1):
        return f"; did you mean {before + near[0]!r}?"
    rest = ", and more" if len(names) > FIELDS_SHOWN else ""
    return f"; there are {', '.join(before + name for name in sorted(names)[:FIELDS_SHOWN])}{rest}" if names else ""


def _missing(declared: Any, path: list[str], at: int) -> tuple[int, list[str]] | None:
    """Which step of the path leads to nothing, and what there is in its place; None where the path may lead there."""
    if at == len(path) or declared is Any:
        return None
    origin, within = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return _missing(within[0], path, at)
    if origin in (Union, UnionType):
        found = [_missing(each, path, at) for each in within if each is not type(None)]
        return None if None in found else max((each for each in found if each is not None), default=None)
    if origin in (list, tuple, set, frozenset):
        return _missing(next((each for each in within if each is not ...), Any), path, at)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        fields = wire_fields(declared)
        field = fields.get(path[at])
        return (at, [*fields]) if field is None else _missing(field.annotation, path, at + 1)
    if origin is Literal or (isinstance(declared, type) and issubclass(declared, str | int | float)):
        return at, []
    return None  # a mapping's names are what somebody gave, and of other types nothing is known
