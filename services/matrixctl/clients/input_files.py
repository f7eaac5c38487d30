"""YAML files given by users, read as Kubernetes reads them: timestamps stay text, and NaN is not a number. `-` is
standard input.

What cannot be read, or holds what no request can carry, is refused with the option that named the file, before anything
of it is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.yaml_text import InvalidYaml, UserInputLoader, parse_documents

STANDARD_INPUT = "-"

_MOMENT = "tag:yaml.org,2002:timestamp"


class _Loader(UserInputLoader):
    """Leaves timestamps as text, since requests carry them as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in resolvers if tag != _MOMENT]
    for first, resolvers in UserInputLoader.yaml_implicit_resolvers.items()
}


def read_documents(file: Path, field: str = "--filename") -> list[Any]:
    """The non-empty documents of a file. Raises InvalidField with that field, OSError."""
    try:
        found = [each for each in parse_documents(_text(file, field), _Loader) if each is not None]
        if not all(isfinite(number) for number in _numbers(found)):
            raise InvalidField(f"{_named(file)} contains .nan or .inf, which are not numbers here", field=field)
    except (InvalidYaml, UnicodeDecodeError, RecursionError) as wrong:
        raise InvalidField(f"{_named(file)} is not YAML: {wrong}", field=field) from wrong
    return found


def _text(file: Path, field: str) -> str:
    if str(file) == STANDARD_INPUT:
        return sys.stdin.read()
    if not file.exists():
        raise InvalidField(f"there is no file {file}", field=field)
    return file.read_text("utf-8")


def _named(file: Path) -> str:
    return "standard input" if str(file) == STANDARD_INPUT else str(file)


def read_mapping(file: Path, field: str = "--filename") -> dict[str, Any]:
    """The only document of a file, which must be a mapping. Raises the same."""
    found = read_documents(file, field)
    if len(found) != 1 or not isinstance(found[0], dict):
        raise InvalidField(f"{_named(file)} is not a YAML file with one mapping", field=field)
    return found[0]


def read_manifests(file: Path, field: str = "--filename") -> list[dict[str, Any]]:
    """The objects of a manifest, including those of a List. Raises the same, also if there is none."""
    found = list(_manifests(read_documents(file, field), file, field))
    if not found:
        raise InvalidField(f"there is no object in {_named(file)}", field=field)
    return found


def _manifests(documents: list[Any], file: Path, field: str) -> Iterator[dict[str, Any]]:
    for number, document in enumerate(documents, 1):
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list) and document.get("kind") == "List":
            yield from _manifests(items, file, field)
        elif not _is_manifest(document):
            lacks = "an object needs apiVersion, kind and metadata.name"
            raise InvalidField(f"document {number} of {_named(file)} is not a manifest: {lacks}", field=field)
        else:
            yield document


def _is_manifest(document: Any) -> bool:
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    words = (document.get("apiVersion"), document.get("kind"), document["metadata"].get("name"))
    return all(word and isinstance(word, str) for word in words)


def _numbers(found: Any) -> Iterator[float]:
    if isinstance(found, float):
        yield found
    elif isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _numbers(each)
