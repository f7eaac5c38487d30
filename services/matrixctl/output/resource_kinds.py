"""The nouns of `get` and `describe`: which service tells them, and what a table shows of each.

A column is a title and a path into the view (`members.length` counts a list); what a view does not have shows as `-`.
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
    columns: Sequence[tuple[str, str]]
    wide: Sequence[tuple[str, str]] = ()
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
        return [*self.columns, *(self.wide if wide else ())]


NAME, STATE, MADE = ("name", "name"), ("state", "state"), ("created", "createdAt")

NOUNS: tuple[Noun, ...] = (
    Noun(
        "supernodes",
        "resource",
        (
            NAME,
            ("nodes", "nodes"),
            ("available", "availableNodes"),
            ("allocated", "allocatedNodes"),
            ("lost", "lostNodes"),
        ),
        (("npus", "npus"), ("cpus", "cpus"), ("cabinets", "cabinets"), ("topology", "topologyVersion")),
        ("sn", "supernode"),
    ),
    Noun(
        "nodes",
        "resource",
        (NAME, STATE, ("agent", "agent"), ("health", "health"), ("allocation", "allocation"), ("role", "role")),
        (
            ("stage", "stage"),
            ("schedulable", "schedulable"),
            ("power", "power"),
            ("desired", "desiredRole"),
            ("epoch", "epoch"),
        ),
        ("no", "node"),
    ),
    Noun(
        "npus",
        "resource",
        (NAME, ("node", "node"), ("health", "health"), ("allocation", "allocation")),
        (("cabinet", "cabinet"), ("faults", "faults.length")),
        ("npu",),
        whole=True,
    ),
    Noun(
        "allocations",
        "resource",
        (NAME, STATE, ("nodes", "nodes"), ("npus", "npus"), ("spares", "spares"), ("project", "project")),
        (
            ("bound", "bound"),
            ("priority", "priority"),
            ("lease ends", "expiresAt"),
            ("preempted", "preempts"),
            ("generation", "generation"),
            MADE,
        ),
        ("alloc", "allocation"),
    ),
    Noun(
        "reservations",
        "resource",
        (NAME, STATE, ("from", "startsAt"), ("to", "endsAt"), ("nodes", "nodes.length"), ("project", "project")),
        (("where", "nodes"), MADE),
        ("reservation", "res"),
    ),
    Noun(
        "quotas",
        "resource",
        (
            ("project", "name"),
            ("npus", "npus"),
            ("allocated", "usedNpus"),
            ("cpus", "cpus"),
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
        (NAME, STATE, ("level", "level"), ("allocations", "allocations.length"), ("reason", "reason")),
        (("by", "by"), ("who lies there", "allocations"), ("changed", "updatedAt")),
        ("domain", "dom"),
    ),
    Noun(
        "topology-versions",
        "resource",
        (NAME, STATE, ("what changed", "summary"), ("by", "by"), MADE),
        (("closed", "topology.closed"), ("deviations", "topology.deviations.length")),
        ("topology-version", "tv"),
        "number",
    ),
    Noun(
        "defragmentations",
        "resource",
        (NAME, STATE, ("moved", "movesDone"), ("moves", "moves.length"), ("npus", "npus"), ("block", "blockAfter")),
        (("before", "blockBefore"), ("level", "level"), ("room", "room"), ("message", "message")),
        ("defragmentation", "defrag"),
    ),
    Noun(
        "slices",
        "link",
        (NAME, STATE, ("plane", "plane"), ("qos", "qosClass"), ("instance", "instance"), ("programmed", "programmed")),
        (
            ("floor gb/s per npu", "floorGbpsPerNpu"),
            ("kept", "floorKeptGbpsPerNpu"),
            ("survives", "protection"),
            ("protected", "protected"),
            ("members", "members.length"),
            MADE,
        ),
        ("nsl", "slice"),
    ),
    Noun(
        "communicators",
        "link",
        (
            NAME,
            STATE,
            ("slice", "slice"),
            ("pattern", "pattern"),
            ("routing", "routing"),
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
        (NAME, STATE, ("entries", "entries"), ("aside", "aside"), ("nowhere", "nowhere")),
        (("kind", "kind"), ("sub-plane", "subPlane"), ("node", "node"), ("version", "version")),
        ("forwarding-table", "ft"),
    ),
    Noun(
        "planes",
        "link",
        (NAME, STATE, ("links", "links"), ("down", "linksDown"), ("degraded", "linksDegraded"), ("slices", "slices")),
        (("sub-planes", "subPlanes"), ("gb/s per npu", "npuGbps"), ("latency us", "latencyUs")),
        ("plane",),
    ),
    Noun(
        "switches",
        "link",
        (NAME, STATE, ("plane", "plane"), ("kind", "kind"), ("ports", "ports"), ("down", "portsDown")),
        (("cabinet", "cabinet"), ("node", "node"), ("sub-plane", "subPlane")),
        ("switch", "sw"),
    ),
    Noun(
        "links",
        "link",
        (
            NAME,
            STATE,
            ("plane", "plane"),
            ("kind", "kind"),
            ("gb/s", "gbps"),
            ("floors", "floorsGbps"),
            ("reason", "reason"),
        ),
        (("built", "builtGbps"), ("lanes", "lanes"), ("damped until", "dampedUntil"), ("ends", "ends")),
        ("link",),
    ),
    Noun(
        "drains",
        "link",
        (NAME, STATE, ("elements", "elements"), ("ports", "ports"), ("waiting for", "waitingFor"), ("why", "reason")),
        (("message", "message"), ("generation", "generation"), MADE),
        ("drain",),
    ),
    Noun(
        "peerings",
        "link",
        (NAME, STATE, ("plane", "plane"), ("slices", "slices"), ("accepted by", "acceptedBy"), ("key", "isolationKey")),
        (("rules", "securityRules.length"), ("message", "message"), MADE),
        ("peering",),
    ),
    Noun(
        "backup-paths",
        "link",
        (NAME, ("plane", "plane"), ("survives", "protection"), ("protected", "protected"), ("paths", "now.paths")),
        (("states", "alternatives.length"), ("message", "message")),
        ("backup-path",),
    ),
    Noun(
        "link-events",
        "link",
        (("at", "at"), ("type", "type"), ("about", "about"), ("reason", "reason"), ("message", "message")),
        (NAME,),
        ("link-event", "lev"),
        "at",
        whole=True,
        collection="events",
    ),
    Noun(
        "instances",
        "compute",
        (NAME, STATE, ("nodes", "nodes"), ("ready", "readyNodes"), ("spares", "spares"), ("operation", "operation")),
        (
            ("npus", "npus"),
            ("priority", "priority"),
            ("lease ends", "expiresAt"),
            ("repairs", "repairs"),
            ("generation", "generation"),
            ("project", "project"),
            MADE,
        ),
        ("cmi", "instance"),
    ),
    Noun(
        "faults",
        "compute",
        (("instance", "instance"), ("node", "node"), ("reason", "reason"), ("action", "action")),
        (NAME,),
        whole=True,
    ),
    Noun(
        "operations",
        "compute",
        (NAME, ("target", "target"), ("verb", "verb"), ("done", "done"), ("step", "step"), ("progress", "progress")),
        (("error", "error.reason"), ("started", "startedAt"), ("finished", "finishedAt")),
        ("op", "operation"),
        "startedAt",
    ),
    Noun(
        "events",
        "compute",
        (("at", "at"), ("type", "type"), ("instance", "instance"), ("reason", "reason"), ("message", "message")),
        (NAME,),
        ("ev", "event"),
        "at",
        whole=True,
    ),
    Noun(
        "deployments",
        "infer",
        (NAME, STATE, ("instance", "instance"), ("model", "model"), ("endpoint", "endpoint")),
        (("generation", "generation"), MADE),
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
