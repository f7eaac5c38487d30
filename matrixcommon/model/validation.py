"""validation_message: what is wrong with a value that a model refused, in words for the person who sent it.

Pydantic shows a pattern that text has to match as a regular expression. Patterns declared with `pattern_of` are shown
as the words given there. Schemas on the wire keep the expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = dict[str, str]()


def pattern_of(expression: str, words: str) -> str:
    """The expression, for `Field(pattern=...)`. `words` say what it accepts: "a time of day such as 09:30"."""
    _WORDS[expression] = words
    return expression


def validation_message(error: Mapping[str, Any]) -> str:
    """The message of one of `ValidationError.errors()`, without the path."""
    if error["type"] == "string_pattern_mismatch" and (words := _WORDS.get(error["ctx"]["pattern"])):
        value = str(error["input"])
        return f"{(value if len(value) <= 80 else f'{value[:80]}...')!r} is not {words}"
    return without_prefix(str(error["msg"]))


def without_prefix(message: str) -> str:
    """Pydantic's message without the words that it puts before those of a validator."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
