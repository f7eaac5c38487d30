"""Reading YAML: tables that are part of a package, and users' input.

Packaged files are read by PyYAML's C parser if it was built with it, which is ten times as fast. That parser crashes
the process on deeply nested input, so users' input goes through the parser in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import yaml

_PACKAGED_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MESSAGE_CHARS_MAX = 300
NESTING_MAX = 100
"""Most nested brackets and braces, more than anybody writes: for each, Python's parser scans all that enclose it."""


class UserInputLoader(yaml.SafeLoader):
    """The loader of users' input."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= NESTING_MAX:
            raise RecursionError
        super().fetch_flow_collection_start(token)


class InvalidYaml(ValueError):
    """A text is not valid YAML; the message says where and why, on one line."""

    def __init__(self, wrong: Exception) -> None:
        nested = isinstance(wrong, RecursionError)
        super().__init__("it nests too deep" if nested else " ".join(str(wrong).split())[:MESSAGE_CHARS_MAX])


def packaged_yaml(package: str, *path: str) -> Any:
    """The content of a file in the package."""
    return yaml.load(files(package).joinpath(*path).read_text("utf-8"), _PACKAGED_LOADER)


def parse_yaml(text: str) -> Any:
    """Parse a text with a single document. Raises InvalidYaml."""
    with _raise_invalid_yaml():
        return yaml.load(text, UserInputLoader)


def parse_documents(text: str, loader: type[UserInputLoader] = UserInputLoader) -> list[Any]:
    """Parse all documents in a text. Raises InvalidYaml."""
    with _raise_invalid_yaml():
        return list(yaml.load_all(text, loader))


@contextmanager
def _raise_invalid_yaml() -> Iterator[None]:
    try:
        yield
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:  # ValueError: an impossible date, say
        raise InvalidYaml(wrong) from wrong
