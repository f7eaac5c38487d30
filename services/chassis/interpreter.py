"""The interpreter of long-lived processes: garbage is collected seldom, and not among objects that live as long as the
process; modules that libraries import although nothing here uses them are not loaded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

COLLECTION_THRESHOLD = 10_000
"""Net allocations before the youngest generation is collected. After a freeze Python counts long-lived objects from
zero, so with its default of 700 a full collection ran every few hundred requests, a tenth of their time."""


def freeze_heap(threshold: int = COLLECTION_THRESHOLD) -> None:
    """Call once a process is built. Garbage of the start-up is freed; all other present objects are excluded from
    collection, which also leaves memory pages shared with other processes untouched. Turns the collector on, if it was
    turned off for a faster start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(threshold)
    gc.enable()


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
