"""The reasons given in refusals, conditions, events and nodes, each with its meaning and the remedy.

A reason is one PascalCase word for programs. All are declared in `reasons.yaml`; a test searches the code for reasons
that are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from matrixcommon.model.yaml_text import packaged_yaml


@dataclass(frozen=True)
class Reason:
    """One reason: who gives it (`group`), what it `means`, and what to `do` about it, if anything."""

    name: str
    group: str
    means: str
    do: str = ""


@cache
def reasons() -> dict[str, Reason]:
    """All reasons by name, in the order of the file."""
    document = packaged_yaml("matrixcommon.model", "reasons.yaml")
    found = {}
    for group, entries in document.items():
        for name, text in entries.items():
            means, _, do = text.partition(" | ")
            found[name] = Reason(name, group, means, do)
    return found
