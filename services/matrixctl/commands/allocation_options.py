"""The options that say what is requested of MatrixResource, shared by `plan` and `reserve`, and the request they
make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField

Nodes = Annotated[int | None, typer.Option(min=1, help="Members, whole nodes of eight NPUs unless --npus-per-node.")]
Npus = Annotated[float | None, typer.Option(help="NPUs instead: up to 8 lie on one node; 0.5 is a die.")]
NpusPerNode = Annotated[float | None, typer.Option(help="NPUs of each member: 0.5 (a die), or 1 to 8.")]
Cpus = Annotated[int, typer.Option(min=0, help="CPU sockets, pooled from any nodes; they go alone, too.")]
MemoryGib = Annotated[int, typer.Option(min=0, help="GiB of memory, pooled from any nodes; they go alone, too.")]
Spares = Annotated[int, typer.Option(min=0, help="Nodes held beside them for repair.")]
Policy = Annotated[str, typer.Option(help="pack (into few domains) or spread (over many)")]
Level = Annotated[str, typer.Option(help="node, cabinet or supernode: the domain that is meant")]
Required = Annotated[bool, typer.Option("--required", help="Refuse rather than compromise.")]
MaxPerDomain = Annotated[int | None, typer.Option(min=1, help="With spread: members in one domain at most.")]
Blocks = Annotated[
    list[str] | None,
    typer.Option("--block", help="Nodes of a block no supernode's edge cuts; 2@cabinet for a cabinet's."),
]
AffinityOption = Annotated[
    list[str] | None, typer.Option(help="Only where this allocation lies; NAME@node, NAME@supernode.")
]
AntiAffinityOption = Annotated[
    list[str] | None, typer.Option(help="Nowhere where this allocation lies; NAME@node, NAME@supernode.")
]
Priority = Annotated[int, typer.Option(help="Higher ones may put lower ones out.")]
Preempt = Annotated[bool, typer.Option("--preempt", help="It may preempt those of lower priority.")]
LeaseS = Annotated[float | None, typer.Option("--lease", help="Given back after so many emulated seconds.")]
Exclude = Annotated[list[str] | None, typer.Option(help="A node that it shall not have; may be repeated.")]


def request(reported: Mapping[str, Any]) -> dict[str, Any]:
    """The wire request of the options above, by their names; what was not reported is left out.

    Raises InvalidField for what cannot be read.
    """
    placement = {key: reported[key] for key in ("policy", "level", "required")}
    placement |= _given(
        maxPerDomain=reported["max_per_domain"], blocks=[_block(text) for text in reported["block"] or []]
    )
    desired = _given(
        nodes=reported["nodes"],
        npus=reported["npus"],
        npusPerNode=reported["npus_per_node"],
        cpus=reported["cpus"],
        memoryGib=reported["memory_gib"],
        spares=reported["spares"],
        affinity=_affinity(reported["affinity"], "--affinity"),
        antiAffinity=_affinity(reported["anti_affinity"], "--anti-affinity"),
        priority=reported["priority"],
        preemption="LowerPriority" if reported.get("preempt") else "",
        leaseS=reported.get("lease_s"),
        excludeNodes=reported["exclude"],
    )
    return desired | {"placement": placement}


def sized(nodes: int | None, npus: float | None, cpus: int, memory_gib: int) -> bool:
    """Whether any size was given."""
    return nodes is not None or npus is not None or bool(cpus or memory_gib)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _block(text: str) -> dict[str, Any]:
    size, _, level = text.partition("@")
    if not size.isdigit():
        raise InvalidField(f"{text!r} is no block; write 8, or 2@cabinet", field="--block")
    return {"nodes": int(size), "level": level or "supernode"}


def _affinity(words: list[str] | None, flag: str) -> dict[str, Any] | None:
    """Names with one level among them. Raises InvalidField for two."""
    if not words:
        return None
    found = [word.partition("@") for word in words]
    levels = {level for _, _, level in found if level} or {"cabinet"}
    if len(levels) > 1:
        raise InvalidField(f"{flag} takes one level, not {' and '.join(sorted(levels))}", field=flag)
    return {"allocations": [name for name, _, _ in found], "level": levels.pop()}
