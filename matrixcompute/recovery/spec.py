"""What a recovery policy says: how far the recovery of an instance may go, and how long its members drain before."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_key import reference
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcompute.recovery.ladder import RecoveryRules, recovery_rules

OnExhausted = Literal["Retry", "Stop"]


class RecoveryPolicySpec(ApiModel):
    """Of one instance, or of all of a project that have none of their own. What it leaves out is as without one."""

    project: str = Field("default", min_length=1, max_length=63, description="whose policy it is; cannot be changed")
    instance: str | None = Field(
        None,
        min_length=1,
        max_length=127,
        description="the instance it is for, which may come later; without it all of the project that have none",
    )
    drain_seconds: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="how long a member that serves may drain (emulated) before it is moved or repaired; 0: not at all",
    )
    rungs: list[str] = Field(
        default_factory=lambda: [*recovery_rules().rungs],
        max_length=16,
        description="which rungs of the ladders may be tried; none: nothing is done about a member that failed",
    )
    on_exhausted: OnExhausted = Field(
        "Retry",
        description="when no rung is left or no node is free: Retry tries again when there may be one, Stop waits for "
        "`:retry`",
    )

    REFERENCES: ClassVar = ("instance",)

    @field_validator("rungs")
    @classmethod
    def _known(cls, rungs: list[str]) -> list[str]:
        known = [*recovery_rules().rungs]
        if unknown := [each for each in rungs if each not in known]:
            raise ValueError(f"no rung {unknown[0]!r}; there are {', '.join(known)}")
        return sorted(set(rungs), key=known.index)

    def shown_to(self, project: str) -> Self:
        """With the name of an instance of the project's own."""
        return self.model_copy(update={"instance": self.instance and reference(self.instance, project)})


class RecoveryPolicyRequest(RecoveryPolicySpec):
    """A policy, with the labels that it bears."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"instance": "qwen", "drainSeconds": 30},)

    labels: dict[str, str] = Field(default_factory=empty_dict)


class RecoveryPolicyView(ResourceView):
    """A policy, and the ladders it leaves."""

    instance: str | None = None
    drain_seconds: float | None = None
    rungs: list[str]
    on_exhausted: OnExhausted
    ladders: dict[str, list[str]] = Field(description="by level of fault: the rungs that are tried, in their order")


class RuleRung(ApiModel):
    """A rung of a ladder."""

    rung: str
    means: str
    timeout_s: float | None = Field(None, description="how long it may take (emulated), if it is done in place")


class RecoveryRuleView(ApiModel):
    """What is done about a member at one level of fault (`recovery_rules.yaml`)."""

    name: str = Field(description="the level")
    ladder: list[RuleRung] = Field(description="tried in this order until one helps; none: nothing is done")
    drain_s: float | None = Field(
        None, description="how long the member may drain before the first rung (emulated); none: its work is broken"
    )


def rule_views(rules: RecoveryRules) -> list[RecoveryRuleView]:
    """The table, level by level, in its order."""
    rungs = {
        each.name: RuleRung(rung=each.name, means=each.means, timeout_s=each.timeout_s) for each in rules.rungs.values()
    }
    return [
        RecoveryRuleView(name=level, ladder=[rungs[each] for each in ladder], drain_s=rules.drains.get(level))
        for level, ladder in rules.ladders.items()
    ]
