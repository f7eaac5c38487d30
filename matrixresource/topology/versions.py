"""Versions of the topology: what the machine consisted of at one moment, its name, and the changes in between.

A version is named `v7-<hash>`: the number only grows, and the hash is that of the content. Two versions with the same
hash are the same machine (for example after a cabinet was closed and opened again), so a plan made on one is valid on
the other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matrixresource.topology.deviations import Deviation

NAME = re.compile(r"v(\d+)-([0-9a-f]{12})")


@dataclass(frozen=True)
class Topology:
    """Supernodes with the fingerprints of their graphs, closed domains, and deviations in the wiring."""

    supernodes: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    deviations: frozenset[Deviation] = frozenset()

    def version_name(self, number: int) -> str:
        return f"v{number}-{hashlib.sha256(json.dumps(self.wire()).encode()).hexdigest()[:12]}"

    def wire(self) -> dict[str, Any]:
        """As JSON, in an order that depends on the content alone."""
        return {
            "supernodes": dict(sorted(self.supernodes.items())),
            "closed": sorted(self.closed),
            "deviations": [each.wire() for each in _ordered(self.deviations)],
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Topology:
        """The inverse of `wire`."""
        return cls(
            dict(document["supernodes"]),
            frozenset(document["closed"]),
            frozenset(Deviation(**each) for each in document["deviations"]),
        )

    def restricted_to(self, supernode: str) -> Topology:
        """The part that concerns one supernode."""
        prefixes = (f"{supernode}-", f"{supernode}.")
        return Topology(
            {name: spec for name, spec in self.supernodes.items() if name == supernode},
            frozenset(name for name in self.closed if name == supernode or name.startswith(prefixes)),
            frozenset(each for each in self.deviations if each.part.startswith(prefixes)),
        )


def list_changes(before: Topology, after: Topology) -> list[dict[str, str]]:
    """The changes from the first to the second: `kind`, `part`, and `peer` for a cable that was moved."""
    reported = [
        *(("SupernodeRemoved", name) for name in sorted(before.supernodes.keys() - after.supernodes.keys())),
        *(("SupernodeAdded", name) for name in sorted(after.supernodes.keys() - before.supernodes.keys())),
        *(
            ("SupernodeRedrawn", name)
            for name in sorted(before.supernodes.keys() & after.supernodes.keys())
            if before.supernodes[name] != after.supernodes[name]
        ),
        *(("DomainOpened", name) for name in sorted(before.closed - after.closed)),
        *(("DomainClosed", name) for name in sorted(after.closed - before.closed)),
    ]
    deviating = {each.part for each in after.deviations}
    repaired = [each for each in _ordered(before.deviations - after.deviations) if each.part not in deviating]
    reported += [("SwitchRepaired" if each.kind == "SwitchFailed" else "CableRepaired", each.part) for each in repaired]
    found = _ordered(after.deviations - before.deviations)
    return [*({"kind": kind, "part": part} for kind, part in reported), *(each.wire() for each in found)]


def summarise_changes(changes: list[dict[str, str]]) -> str:
    """A version's changes in a line: the first of them, and how many more."""
    if not changes:
        return "nothing"
    first = changes[0]
    peer = f" to {first['peer']}" if first.get("peer") else ""
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return f"{first['kind']} {first['part']}{peer}{more}"


def is_valid_on(requested: str | None, current: str) -> bool:
    """Whether a decision made on version `requested` is valid on `current`: the same version, or one with the same
    content. True if no version was given."""
    if not requested or requested == current:
        return True
    theirs, ours = NAME.fullmatch(requested), NAME.fullmatch(current)
    return theirs is not None and ours is not None and theirs.group(2) == ours.group(2)


def _ordered(deviations: frozenset[Deviation]) -> list[Deviation]:
    return sorted(deviations, key=lambda each: (each.kind, each.part, each.peer or ""))
