"""Texts that databases cannot store or look up: NUL, which PostgreSQL refuses, and, in bodies, lone surrogates.

They are refused in every field, with its name, after authorization and before the handler runs.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.types import Scope

from matrixcommon.model.errors import InvalidField

UNSTORABLE_PATTERN = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\x00|\xed[\xa0-\xbf]")
"""How either may be encoded in a body: escaped, in UTF-16 or UTF-32, or as the UTF-8 bytes of a lone surrogate."""


def may_be_unstorable(body: bytes) -> bool:
    """Whether a body may contain such a text; valid surrogate pairs, such as escaped emoji, are suspected too."""
    suspects = b"\\u" in body or b"\0" in body or b"\xed" in body  # most bodies end here, and quickly
    return suspects and UNSTORABLE_PATTERN.search(body) is not None


async def refuse_unstorable_text(request: Request) -> None:
    """A dependency of routes that store request bodies. Raises InvalidField."""
    if may_be_unstorable(await request.body()):
        try:
            document = await request.json()
        except (ValueError, RecursionError):
            return  # not JSON; a route that expects a body refuses it
        check_text(document)


def refuse_nul(scope: Scope) -> None:
    """Refuse NUL in names and parameters. Raises InvalidField."""
    if "\0" in scope["path"]:
        raise InvalidField("the path contains NUL, which is not allowed in names", field="name")
    if b"%00" in scope["query_string"]:
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        field = next((name for name, value in parameters if "\0" in value), "query")
        raise InvalidField(f"{field} contains NUL, which is not allowed in parameters", field=field)


def check_text(document: Any) -> None:
    """Check every key and value of a JSON document. Raises InvalidField."""
    parts = [("", document)]
    while parts:  # no recursion: a document may be nested as deep as Python's own stack
        field, value = parts.pop()
        if isinstance(value, str):
            _check(value, field)
        elif isinstance(value, list):
            parts += ((f"{field}[{index}]", each) for index, each in enumerate(value))
        elif isinstance(value, dict):
            for name, each in value.items():
                _check(name, field)
                parts.append((f"{field}.{name}" if field else name, each))


def check_characters(text: str, field: str) -> None:
    """Refuse lone surrogates, which JSON may contain if a client cuts a text within a character. Raises
    InvalidField."""
    try:
        text.encode()
    except UnicodeEncodeError as wrong:
        raise InvalidField(f"{field} contains a lone surrogate, which is not a character", field=field) from wrong


def _check(text: str, field: str) -> None:
    field = field or "body"
    if "\0" in text:
        raise InvalidField(f"{field} contains NUL: texts are Unicode without NUL", field=field)
    check_characters(text, field)
