"""Disruption budgets: how many nodes may be out at once, for which reasons, and at which times. Pure.

A maintenance has its own budget for its target; disruption budgets limit all maintenances together, in one supernode or
in each. If several are in force, the strictest applies. The vocabulary is that of Karpenter's NodePools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any, ClassVar, Literal, get_args

from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import SupernodeName
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixresource.contract.nodes import NodeView

DisruptionReason = Literal["Service", "Firmware"]
NODES = r"(100|[0-9]{1,2})%|[0-9]{1,5}"


class DisruptionBudgetSpec(ApiModel):
    """How many nodes of a supernode may be out at once while the budget is in force; 0 allows no new disruption."""

    nodes: str = Field(max_length=5, description="a number of nodes, or a percentage of the supernode's, rounded up")
    supernode: SupernodeName | None = Field(None, description="the supernode it applies to; by default each one")
    reasons: list[DisruptionReason] = Field(
        default_factory=lambda: [*get_args(DisruptionReason)],
        min_length=1,
        max_length=8,
        description="the maintenance actions it limits; by default all",
    )
    duration_s: float | None = Field(
        None, ge=60, le=31_536_000, description="with schedule: how long it is in force each time (s, emulated)"
    )
    schedule: str | None = Field(
        None,
        max_length=100,
        description="when it comes into force, as five cron fields in UTC, emulated; by default it always is in force",
        validate_default=True,
    )

    @field_validator("nodes")
    @classmethod
    def _number(cls, nodes: str) -> str:
        if not re.fullmatch(NODES, nodes):
            raise ValueError('give a number such as "3", or a percentage such as "10%"')
        return nodes

    @field_validator("schedule")
    @classmethod
    def _cron(cls, schedule: str | None, given: ValidationInfo) -> str | None:
        if "duration_s" in given.data and (given.data["duration_s"] is None) != (schedule is None):
            raise ValueError("give both schedule and durationS, or neither")
        if schedule is not None:
            try:
                if len(schedule.split()) != 5:
                    raise CronSimError("five fields")
                CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC))
            except CronSimError as error:
                raise ValueError(
                    f"{error}: minute, hour, day of month, month and day of week, such as 0 9 * * mon-fri"
                ) from None
        return schedule

    def in_force(self, now: float) -> bool:
        """Whether the budget is in force at `now` (s)."""
        if self.schedule is None or self.duration_s is None:
            return True
        moment = datetime.fromtimestamp(now, UTC)
        next_minute = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        began = next(CronSim(self.schedule, next_minute, reverse=True), None)
        return began is not None and (moment - began).total_seconds() < self.duration_s

    def nodes_max(self, nodes: int) -> int:
        """How many out of `nodes` nodes may be out."""
        return ceil(int(self.nodes[:-1]) * nodes / 100) if self.nodes.endswith("%") else int(self.nodes)


class DisruptionBudgetRequest(DisruptionBudgetSpec):
    """A budget, and its labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": "10%", "reasons": ["Firmware"]},)

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")


class DisruptionBudgetView(ResourceView, DisruptionBudgetSpec):
    """A budget as stored, inside or outside its time window."""

    state: str = Field("", description="Active, or Inactive while the supernode that it names does not exist")
    message: str = Field("", description="why it limits nothing; empty while it is Active")


@dataclass(frozen=True)
class Limit:
    """A budget that is in force now: of the nodes `nodes` a supernode `out_max` may be out, and `out` are."""

    budget: str
    nodes: frozenset[str]
    out_max: int
    out: frozenset[str]


def limits_of(
    budgets: Mapping[str, DisruptionBudgetSpec],
    reason: str,
    nodes: Iterable[NodeView],
    out: Collection[str],
    now: float,
) -> tuple[Limit, ...]:
    """The limits in force at `now` for a maintenance with action `reason`. `nodes`: all nodes of the supernodes
    concerned. `out`: those that are out, or that some maintenance is taking out."""
    nodes_by_supernode: dict[str, set[str]] = {}
    for node in nodes:
        nodes_by_supernode.setdefault(node.supernode, set()).add(node.name)
    return tuple(
        Limit(name, frozenset(nodes_within), budget.nodes_max(len(nodes_within)), frozenset(nodes_within & {*out}))
        for name, budget in sorted(budgets.items())
        if reason in budget.reasons and budget.in_force(now)
        for supernode, nodes_within in sorted(nodes_by_supernode.items())
        if budget.supernode in (None, supernode)
    )
