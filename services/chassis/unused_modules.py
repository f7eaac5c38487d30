"""Modules that libraries import although nothing here uses them; the libraries work without them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

UNUSED_MODULES = {
    "httpx._main": "httpx's own command line, and with it rich, Pygments and the names of all HTML entities",
    "pydantic.v1": "FastAPI asks of every annotation whether it is a model of Pydantic 1",
}
"""Modules treated as not installed, each with its importer and its cost. Together they are 4 MB, and a fourteenth of
the modules that the supervisor loads before its first process."""


def block_modules(names: Iterable[str] = UNUSED_MODULES) -> None:
    """Block the import of these modules. Call at the start of a program, never in a module that others import."""
    modules: dict[str, Any] = sys.modules
    for name in names:
        modules.setdefault(name, None)
