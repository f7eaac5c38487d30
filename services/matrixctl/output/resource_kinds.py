"""The nouns of `get` and `describe`: which service tells them, and what a table shows of each.

A column is a path into the view (`members.length` counts a list), and a title where that is not the path; what a view
does not have shows as `-`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import InvalidField


@dataclass(frozen=True)
class Noun:
    """One collection. `wide` columns follow the others under `-o wide`; `whole` ones are not served one by one."""

    name: str
    service: str
    columns: Sequence[str | tuple[str, str]]
    wide: Sequence[str | tuple[str, str]] = ()
    aliases: tuple[str, ...] = ()
    order: str = "name"
    whole: bool = False
    collection: str = ""
    """What the service calls it, where that is not the noun."""

    @property
    def path(self) -> str:
        return f"/v1/{self.collection or self.name}"

    def titles(self, wide: bool) -> list[str]:
        return [title for title, _ in self._shown(wide)]

    def row(self, view: dict[str, Any], wide: bool) -> list[str]:
        return [shown(dig(view, path)) for _, path in self._shown(wide)]

    def _shown(self, wide: bool) -> list[tuple[str, str]]:
        columns = [*self.columns, *(self.wide if wide else ())]
        return [(each, each) if isinstance(each, str) else each for each in columns]


MADE = ("created", "createdAt")

NOUNS: tuple[Noun, ...] = (
    Noun(
        "supernodes",
        "resource",
        ("name", "nodes", ("available", "availableNodes"), ("allocated", "allocatedNodes"), ("lost", "lostNodes")),
        ("npus", "cpus", "cabinets", ("topology", "topologyVersion")),
        ("sn", "supernode"),
    ),
    Noun(
        "nodes",
        "resource",
        ("name", "state", "agent", "health", "allocation", "role"),
        ("stage", "schedulable", "power", ("desired", "desiredRole"), "epoch"),
        ("no", "node"),
    ),
    Noun(
        "npus",
        "resource",
        ("name", "node", "health", "allocation"),
        ("cabinet", ("faults", "faults.length")),
        ("npu",),
        whole=True,
    ),
    Noun(
        "allocations",
        "resource",
        ("name", "state", "nodes", "npus", "spares", "project"),
        ("bound", "priority", ("lease ends", "expiresAt"), ("preempted", "preempts"), "generation", MADE),
        ("alloc", "allocation"),
    ),
    Noun(
        "reservations",
        "resource",
        ("name", "state", ("from", "startsAt"), ("to", "endsAt"), ("nodes", "nodes.length"), "project"),
        (("where", "nodes"), MADE),
        ("reservation", "res"),
    ),
    Noun(
        "quotas",
        "resource",
        (
            ("project", "name"),
            "npus",
            ("allocated", "usedNpus"),
            "cpus",
            ("allocated", "usedCpus"),
            ("gib", "memoryGib"),
            ("allocated", "usedMemoryGib"),
        ),
        (MADE,),
        ("quota",),
    ),
    Noun(
        "domains",
        "resource",
        ("name", "state", "level", ("allocations", "allocations.length"), "reason"),
        ("by", ("who lies there", "allocations"), ("changed", "updatedAt")),
        ("domain", "dom"),
    ),
    Noun(
        "topology-versions",
        "resource",
        ("name", "state", ("what changed", "summary"), "by", MADE),
        (("closed", "topology.closed"), ("deviations", "topology.deviations.length")),
        ("topology-version", "tv"),
        "number",
    ),
    Noun(
        "defragmentations",
        "resource",
        ("name", "state", ("moved", "movesDone"), ("moves", "moves.length"), "npus", ("block", "blockAfter")),
        (("before", "blockBefore"), "level", "room", "message"),
        ("defragmentation", "defrag"),
    ),
    Noun(
        "slices",
        "link",
        ("name", "state", "plane", ("qos", "qosClass"), "instance", "programmed"),
        (
            ("floor gb/s per npu", "floorGbpsPerNpu"),
            ("kept", "floorKeptGbpsPerNpu"),
            ("survives", "protection"),
            "protected",
            ("members", "members.length"),
            MADE,
        ),
        ("nsl", "slice"),
    ),
    Noun(
        "communicators",
        "link",
        (
            "name",
            "state",
            "slice",
            "pattern",
            "routing",
            ("mean gb/s", "traffic.meanGbps"),
            ("slowest", "traffic.slowestGbps"),
        ),
        (
            ("ranks", "traffic.ranks"),
            ("flows", "traffic.flows"),
            ("cut", "traffic.cut"),
            ("offered", "offeredGbps"),
            ("moved last", "traffic.lastChange.repathed"),
            MADE,
        ),
        ("communicator", "comm"),
    ),
    Noun(
        "forwarding-tables",
        "link",
        ("name", "state", "entries", "aside", "nowhere"),
        ("kind", ("sub-plane", "subPlane"), "node", "version"),
        ("forwarding-table", "ft"),
    ),
    Noun(
        "planes",
        "link",
        ("name", "state", "links", ("down", "linksDown"), ("degraded", "linksDegraded"), "slices"),
        (("sub-planes", "subPlanes"), ("gb/s per npu", "npuGbps"), ("latency us", "latencyUs")),
        ("plane",),
    ),
    Noun(
        "switches",
        "link",
        ("name", "state", "plane", "kind", "ports", ("down", "portsDown")),
        ("cabinet", "node", ("sub-plane", "subPlane")),
        ("switch", "sw"),
    ),
    Noun(
        "links",
        "link",
        ("name", "state", "plane", "kind", ("gb/s", "gbps"), ("floors", "floorsGbps"), "reason"),
        (("built", "builtGbps"), "lanes", ("damped until", "dampedUntil"), "ends"),
        ("link",),
    ),
    Noun(
        "drains",
        "link",
        ("name", "state", "elements", "ports", ("waiting for", "waitingFor"), ("why", "reason")),
        ("message", "generation", MADE),
        ("drain",),
    ),
    Noun(
        "peerings",
        "link",
        ("name", "state", "plane", "slices", ("accepted by", "acceptedBy"), ("key", "isolationKey")),
        (("rules", "securityRules.length"), "message", MADE),
        ("peering",),
    ),
    Noun(
        "backup-paths",
        "link",
        ("name", "plane", ("survives", "protection"), "protected", ("paths", "now.paths")),
        (("states", "alternatives.length"), "message"),
        ("backup-path",),
    ),
    Noun(
        "link-events",
        "link",
        ("at", "type", "about", "reason", "message"),
        ("name",),
        ("link-event", "lev"),
        "at",
        whole=True,
        collection="events",
    ),
    Noun(
        "instances",
        "compute",
        ("name", "state", "nodes", ("ready", "readyNodes"), "spares", "operation"),
        ("npus", "priority", ("lease ends", "expiresAt"), "repairs", "generation", "project", MADE),
        ("cmi", "instance"),
    ),
    Noun("faults", "compute", ("instance", "node", "reason", "action"), ("name",), whole=True),
    Noun(
        "operations",
        "compute",
        ("name", "target", "verb", "done", "step", "progress"),
        (("error", "error.reason"), ("started", "startedAt"), ("finished", "finishedAt")),
        ("op", "operation"),
        "startedAt",
    ),
    Noun(
        "events",
        "compute",
        ("at", "type", "instance", "reason", "message"),
        ("name",),
        ("ev", "event"),
        "at",
        whole=True,
    ),
    Noun(
        "deployments",
        "infer",
        ("name", "state", "instance", "model", "endpoint"),
        ("generation", MADE),
        ("deploy", "deployment"),
    ),
)

_BY_WORD = {word: noun for noun in NOUNS for word in (noun.name, *noun.aliases)}


def noun_of(word: str) -> Noun:
    """The noun, by its plural, singular or short name. Raises InvalidField with all there are."""
    noun = _BY_WORD.get(word.lower())
    if noun is None:
        raise InvalidField(
            f"there is no {word!r}; there are {', '.join(sorted(each.name for each in NOUNS))}", field="--noun"
        )
    return noun


def dig(view: Any, path: str) -> Any:
    """The value at a dotted path; None where it stops short."""
    for step in path.split("."):
        if step == "length" and isinstance(view, list):
            return len(view)
        view = view.get(step) if isinstance(view, dict) else None
    return view


def shown(value: Any) -> str:
    """A cell's text."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ",".join(shown(item) for item in value) or "-"
    return str(value)
