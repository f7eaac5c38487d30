"""Disruption budgets: how many nodes may be out at once, for which reasons, and at which times. Pure.

A maintenance has its own budget of its target; these hold for all maintenances together, in a supernode or in each. Of
several that hold, the strictest counts. The words are those of Karpenter's NodePools.
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
    """How many nodes of a supernode may be out at once while it holds; 0 forbids to begin with any."""

    nodes: str = Field(max_length=5, description="a number of nodes, or a percentage of the supernode's, rounded up")
    supernode: SupernodeName | None = Field(None, description="the one that it is for; without it each of them")
    reasons: list[DisruptionReason] = Field(
        default_factory=lambda: [*get_args(DisruptionReason)],
        min_length=1,
        max_length=8,
        description="the actions of maintenances that it limits; by default all",
    )
    duration_s: float | None = Field(None, ge=60, le=31_536_000, description="how long it holds then (s, emulated)")
    schedule: str | None = Field(
        None,
        max_length=100,
        description="when it begins to hold, as five fields of cron in UTC, emulated; without it, it always holds",
        validate_default=True,
    )

    @field_validator("nodes")
    @classmethod
    def _number(cls, nodes: str) -> str:
        if not re.fullmatch(NODES, nodes):
            raise ValueError('a number such as "3", or a percentage such as "10%"')
        return nodes

    @field_validator("schedule")
    @classmethod
    def _cron(cls, schedule: str | None, given: ValidationInfo) -> str | None:
        if "duration_s" in given.data and (given.data["duration_s"] is None) != (schedule is None):
            raise ValueError("give schedule and durationS both, or neither")
        if schedule is not None:
            try:
                if len(schedule.split()) != 5:
                    raise CronSimError("five fields")
                CronSim(schedule, datetime(2000, 1, 1, tzinfo=UTC))
            except CronSimError as wrong:
                raise ValueError(
                    f"{wrong}: minute, hour, day of month, month and day of week, such as 0 9 * * mon-fri"
                ) from None
        return schedule

    def holds(self, now: float) -> bool:
        """Whether it holds at a moment (s)."""
        if self.schedule is None or self.duration_s is None:
            return True
        moment = datetime.fromtimestamp(now, UTC)
        next_minute = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        began = next(CronSim(self.schedule, next_minute, reverse=True), None)
        return began is not None and (moment - began).total_seconds() < self.duration_s

    def most(self, nodes: int) -> int:
        """How many of so many nodes may be out."""
        return ceil(int(self.nodes[:-1]) * nodes / 100) if self.nodes.endswith("%") else int(self.nodes)


class DisruptionBudgetRequest(DisruptionBudgetSpec):
    """A budget, with the labels that it bears."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"nodes": "10%", "reasons": ["Firmware"]},)

    labels: dict[str, str] = Field(default_factory=empty_dict)


class DisruptionBudgetView(ResourceView, DisruptionBudgetSpec):
    """A budget, whether it holds at present or not."""


@dataclass(frozen=True)
class Limit:
    """A budget as it holds now: of the nodes `within` a supernode, `most` may be out, and `out` are."""

    budget: str
    within: frozenset[str]
    most: int
    out: frozenset[str]


def limits_of(
    budgets: Mapping[str, DisruptionBudgetSpec],
    reason: str,
    nodes: Iterable[NodeView],
    out: Collection[str],
    now: float,
) -> tuple[Limit, ...]:
    """What holds at this moment for a maintenance of that action. `nodes`: all of the supernodes concerned; `out`:
    those that are out, or that some maintenance takes out."""
    by: dict[str, set[str]] = {}
    for node in nodes:
        by.setdefault(node.supernode, set()).add(node.name)
    return tuple(
        Limit(name, frozenset(within), budget.most(len(within)), frozenset(within & {*out}))
        for name, budget in sorted(budgets.items())
        if reason in budget.reasons and budget.holds(now)
        for supernode, within in sorted(by.items())
        if budget.supernode in (None, supernode)
    )
