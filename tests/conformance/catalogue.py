"""What a case is, and the register of them all.

A case is a small function over a `ApiSession`: it does requests, asserts what must hold on any Kubernetes API server, and leaves
its observations in the session. `@case("P0", "upstream test name")` registers it; `rows` makes one case of each row of a table.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.conformance.api_session import ApiSession

LEVELS = {"P0": "without it kubectl or Kopf does not start", "P1": "everyday use", "P2": "completeness"}


@dataclass(frozen=True)
class Case:
    name: str
    level: str
    run: Callable[[ApiSession], None]
    topic: str
    about: str = ""
    upstream: str = ""


CASES: dict[str, Case] = {}


def slug(text: str) -> str:
    """A name usable as that of a namespace."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:58].strip("-")


def add(found: Case) -> None:
    if found.name in CASES:
        raise ValueError(f"two cases are called {found.name}")
    CASES[found.name] = found


def case(level: str, upstream: str = "") -> Callable[[Callable[[ApiSession], None]], Callable[[ApiSession], None]]:
    """Registers a function as a case named after it."""

    def register(function: Callable[[ApiSession], None]) -> Callable[[ApiSession], None]:
        topic = function.__module__.rpartition(".")[2]
        about = (function.__doc__ or "").strip()
        add(Case(slug(function.__name__), level, function, topic, about, upstream))
        return function

    return register


def rows(level: str, topic: str, prefix: str, table: Iterable[tuple[Any, ...]], run: Callable[..., None]) -> None:
    """One case for each row: the first element is its name, the others are handed to `run(session, ...)`."""
    for row in table:
        title, *values = row

        def one(session: ApiSession, values: list[Any] = values) -> None:
            run(session, *values)

        name = slug(f"{prefix} {title}")
        alike = sum(1 for known in CASES if known == name or known.startswith(f"{name}--"))
        add(Case(f"{name}--{alike + 1}" if alike else name, level, one, topic, f"{prefix}: {title}"))
