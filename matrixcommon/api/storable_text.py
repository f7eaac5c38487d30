"""Texts that no database keeps, nor looks up: NUL, which PostgreSQL refuses, and in bodies halves of surrogate pairs.

They are refused before a handler runs, whatever the field, with its name; whoever may not ask is not told of them.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.types import Scope

from matrixcommon.model.errors import InvalidField

SUSPECTS = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\x00|\xed[\xa0-\xbf]")
"""How either may stand in what was sent: escaped, in UTF-16 or UTF-32, or as the bytes of half a pair."""


def suspected(body: bytes) -> bool:
    """Whether there may be such a text in a body; whole pairs, which emoji are, are suspected too."""
    suspects = b"\\u" in body or b"\0" in body or b"\xed" in body  # most bodies end here, and quickly
    return suspects and SUSPECTS.search(body) is not None


async def refuse_unstorable_text(request: Request) -> None:
    """Of routes that keep what they are sent. Raises InvalidField."""
    if suspected(await request.body()):
        try:
            document = await request.json()
        except (ValueError, RecursionError):
            return  # no JSON; whoever wants a body refuses it
        check_text(document)


def refuse_nul(scope: Scope) -> None:
    """In names and parameters. Raises InvalidField."""
    if "\0" in scope["path"]:
        raise InvalidField("the path holds NUL, which no name has", field="name")
    if b"%00" in scope["query_string"]:
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        field = next((name for name, value in parameters if "\0" in value), "query")
        raise InvalidField(f"{field} holds NUL, which no parameter has", field=field)


def check_text(document: Any) -> None:
    """Of every key and value of a JSON document. Raises InvalidField."""
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
    """JSON may hold half of a surrogate pair, which is what a client sends that cuts a text within a character. Raises
    InvalidField."""
    try:
        text.encode()
    except UnicodeEncodeError as wrong:
        raise InvalidField(f"{field} holds half of a surrogate pair, which is no character", field=field) from wrong


def _check(text: str, field: str) -> None:
    field = field or "body"
    if "\0" in text:
        raise InvalidField(f"{field} holds NUL: texts are Unicode without NUL", field=field)
    check_characters(text, field)
