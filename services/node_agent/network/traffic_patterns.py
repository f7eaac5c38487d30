"""What a workload offers the network: loads, and who sends how much to whom in each of their patterns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel, ResourceView

Pattern = Literal["all-to-all", "permutation", "ring", "incast"]
Table = Mapping[str, Any]


class Load(ApiModel):
    """What a workload offers: `gbps_per_npu` out of every NPU of the members of a slice, or of an instance's slice on a
    plane, or only of some `members`. all-to-all: to all others alike; permutation: each to one, halfway round; ring:
    each to the next; incast: all to `target` (by default the first)."""

    slice: str | None = Field(None, max_length=253)
    instance: str | None = Field(None, max_length=253)
    plane: Plane = Plane.UB
    pattern: Pattern = "all-to-all"
    gbps_per_npu: float = Field(gt=0, le=1e4)
    target: NodeName | None = None
    members: list[NodeName] | None = Field(None, max_length=4096)

    REFERENCES: ClassVar = ("slice", "instance")

    def means(self, slice: str, table: Table) -> bool:
        """Whether a slice's table is one that this load goes by."""
        if self.slice is not None:
            return slice == self.slice
        return bool(table.get("instance") == self.instance and table.get("plane") == self.plane)


class LoadView(ResourceView):
    """A load, and what moves on the slices it goes by (all loads on them together), GB/s over all members."""

    state: str = "Offered"
    load: Load
    slices: list[str]
    members: int
    offered_gbps: float
    sent_gbps: float
    dropped_gbps: float


def demands(
    pattern: Pattern, members: Sequence[str], gbps: float, target: str | None
) -> Iterator[tuple[str, str, float]]:
    """Who sends how much to whom when each member offers `gbps`. Nobody sends to itself."""
    count = len(members)
    if count < 2:
        return
    if pattern == "incast":
        sink = target if target is not None and target in members else members[0]
        yield from ((member, sink, gbps) for member in members if member != sink)
        return
    steps = {"all-to-all": range(1, count), "permutation": [count // 2], "ring": [1]}[pattern]
    for at, member in enumerate(members):
        for step in steps:
            yield member, members[(at + step) % count], gbps / len(steps)
