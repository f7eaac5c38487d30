"""What our libraries would import though nothing here uses it; without it they do with less, as they foresee."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

UNUSED_MODULES = {
    "httpx._main": "httpx's own command line, and with it rich, Pygments and the names of all HTML entities",
    "pydantic.v1": "FastAPI asks of every annotation whether it is a model of Pydantic 1",
}
"""Modules that are taken for not installed, each with who imports it and why that is too much: 4 MB and a fourteenth of
what the supervisor loads before its first process."""


def leave_out(names: Iterable[str] = UNUSED_MODULES) -> None:
    """To be called by a program of ours before it imports what would load them; never by what others import."""
    modules: dict[str, Any] = sys.modules
    for name in names:
        modules.setdefault(name, None)
