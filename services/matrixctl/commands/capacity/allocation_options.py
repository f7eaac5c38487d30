"""Options that describe a request to MatrixResource, shared by `plan` and `reserve`, and the request they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField


@dataclass
class AllocationOptions:
    """What is requested."""

    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of members: whole nodes of eight NPUs, unless --npus-per-node is given."),
    ] = None
    npus: Annotated[float | None, typer.Option(help="NPUs instead of nodes: up to 8, on one node; 0.5 is a die.")] = (
        None
    )
    npus_per_node: Annotated[float | None, typer.Option(help="NPUs of each member: 0.5 (a die), or 1 to 8.")] = None
    cpus: Annotated[int, typer.Option(min=0, help="CPU sockets, pooled from any nodes; may be requested alone.")] = 0
    memory_gib: Annotated[
        int, typer.Option(min=0, help="GiB of memory, pooled from any nodes; may be requested alone.")
    ] = 0
    spares: Annotated[int, typer.Option(min=0, help="Spare nodes held for repair.")] = 0
    policy: Annotated[str, typer.Option(help="pack (into few domains) or spread (over many)")] = "pack"
    level: Annotated[str, typer.Option(help="domain of the policy: node, cabinet or supernode")] = "cabinet"
    required: Annotated[bool, typer.Option("--required", help="Refuse if the policy cannot be met.")] = False
    max_per_domain: Annotated[int | None, typer.Option(min=1, help="With spread: maximum members per domain.")] = None
    block: Annotated[
        list[str] | None,
        typer.Option(help="Size in nodes of blocks that must not span supernodes; 2@cabinet: must not span cabinets."),
    ] = None
    affinity: Annotated[
        list[str] | None,
        typer.Option(help="Only in the cabinets of this allocation; NAME@node, NAME@supernode for other domains."),
    ] = None
    anti_affinity: Annotated[
        list[str] | None,
        typer.Option(help="Not in the cabinets of this allocation; NAME@node, NAME@supernode for other domains."),
    ] = None
    priority: Annotated[int, typer.Option(help="Higher priorities may preempt lower ones.")] = 0
    exclude: Annotated[list[str] | None, typer.Option(help="Node to exclude; repeatable.")] = None

    @property
    def sized(self) -> bool:
        """Whether any size was given."""
        return self.nodes is not None or self.npus is not None or bool(self.cpus or self.memory_gib)

    def request(self, **more: Any) -> dict[str, Any]:
        """The wire request of these options plus `more` fields; options not given are left out.

        Raises InvalidField for malformed options.
        """
        placement = {"policy": self.policy, "level": self.level, "required": self.required}
        placement |= _given(maxPerDomain=self.max_per_domain, blocks=[_block(text) for text in self.block or []])
        desired = _given(
            nodes=self.nodes,
            npus=self.npus,
            npusPerNode=self.npus_per_node,
            cpus=self.cpus,
            memoryGib=self.memory_gib,
            spares=self.spares,
            affinity=_affinity(self.affinity, "--affinity"),
            antiAffinity=_affinity(self.anti_affinity, "--anti-affinity"),
            priority=self.priority,
            excludeNodes=self.exclude,
            **more,
        )
        return desired | {"placement": placement}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _block(text: str) -> dict[str, Any]:
    size, _, level = text.partition("@")
    if not size.isdigit():
        raise InvalidField(f"{text!r} is not a block; use 8, or 2@cabinet", field="--block")
    return {"nodes": int(size), "level": level or "supernode"}


def _affinity(words: list[str] | None, flag: str) -> dict[str, Any] | None:
    """Parse names that may carry a level, at most one in all. Raises InvalidField for two."""
    if not words:
        return None
    found = [word.partition("@") for word in words]
    levels = {level for _, _, level in found if level} or {"cabinet"}
    if len(levels) > 1:
        raise InvalidField(f"{flag} takes one level, not {' and '.join(sorted(levels))}", field=flag)
    return {"allocations": [name for name, _, _ in found], "level": levels.pop()}
