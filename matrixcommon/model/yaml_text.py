"""YAML: the tables that are part of a package, and what users give.

Our own are read by PyYAML's parser in C where it was built with it, ten times as fast. That one ends the process where
a text nests without end, so what users give goes through the parser in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import yaml

_PACKAGED = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SHOWN_CHARS = 300
FLOW_LEVELS_MAX = 100
"""Brackets and braces in one another, as nobody writes them: for each, Python's parser looks at all around it."""


class UsersLoader(yaml.SafeLoader):
    """Of what users give."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= FLOW_LEVELS_MAX:
            raise RecursionError
        super().fetch_flow_collection_start(token)


class NotYaml(ValueError):
    """A text that is no YAML; the message says where and why, in one line."""

    def __init__(self, wrong: Exception) -> None:
        nested = isinstance(wrong, RecursionError)
        super().__init__("it nests too deep" if nested else " ".join(str(wrong).split())[:SHOWN_CHARS])


def packaged_yaml(package: str, *path: str) -> Any:
    """What that file of the package holds."""
    return yaml.load(files(package).joinpath(*path).read_text("utf-8"), _PACKAGED)


def parse_yaml(text: str) -> Any:
    """The one document of a text. Raises NotYaml."""
    with _refused():
        return yaml.load(text, UsersLoader)


def parse_documents(text: str, loader: type[UsersLoader] = UsersLoader) -> list[Any]:
    """Every document of a text. Raises NotYaml."""
    with _refused():
        return list(yaml.load_all(text, loader))


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:  # ValueError: a date that is none, say
        raise NotYaml(wrong) from wrong
