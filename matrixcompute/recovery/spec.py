"""The wire contract of recovery policies: how far an instance's recovery may go, and how long members drain first."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.resource_key import reference_to
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcompute.recovery.ladder import RecoveryRules, recovery_rules

OnExhausted = Literal["Retry", "Stop"]


class RecoveryPolicySpec(ApiModel):
    """Applies to one instance, or to all instances of a project without one of their own. Omitted fields keep the
    defaults."""

    project: str = Field(
        "default", min_length=1, max_length=63, description="the project that owns it; cannot be changed"
    )
    instance: str | None = Field(
        None,
        min_length=1,
        max_length=127,
        description="the instance it applies to, which need not exist yet; by default all of the project that have "
        "no policy of their own",
    )
    drain_seconds: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="how long a serving member may drain before it is moved or repaired (s, emulated); 0: not at all",
    )
    rungs: list[str] = Field(
        default_factory=lambda: [*recovery_rules().rungs],
        max_length=16,
        description="the rungs that may be tried; an empty list: failed members are not repaired",
    )
    on_exhausted: OnExhausted = Field(
        "Retry",
        description="when no rung is left or no node is free: Retry tries again later, Stop waits for `:retry`",
    )

    REFERENCES: ClassVar = ("instance",)

    @field_validator("rungs")
    @classmethod
    def _known(cls, rungs: list[str]) -> list[str]:
        known = [*recovery_rules().rungs]
        if unknown := [each for each in rungs if each not in known]:
            raise ValueError(f"unknown rung {unknown[0]!r}; known: {', '.join(known)}")
        return sorted(set(rungs), key=known.index)

    def shown_to(self, project: str) -> Self:
        """The spec as `project` sees it: an instance of the project's own is named without its project."""
        return self.model_copy(update={"instance": self.instance and reference_to(self.instance, project)})


class RecoveryPolicyRequest(RecoveryPolicySpec):
    """A policy, and its labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = ({"instance": "qwen", "drainSeconds": 30},)

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")


class RecoveryPolicyView(ResourceView):
    """A policy, and the ladders that result from it."""

    instance: str | None = Field(
        None, description="the instance it applies to; null: all of the project that have no policy of their own"
    )
    drain_seconds: float | None = Field(
        None,
        description="how long a serving member may drain (s, emulated); 0: not at all; null: as the rules have it",
    )
    rungs: list[str] = Field(description="the rungs that may be tried; empty: failed members are not repaired")
    on_exhausted: OnExhausted = Field(
        description="when no rung is left or no node is free: Retry tries again later, Stop waits for `:retry`"
    )
    ladders: dict[str, list[str]] = Field(description="the rungs that are tried, in order, by fault level")


class RuleRung(ApiModel):
    """A rung of a ladder."""

    rung: str = Field(description="restart, reset-npu, reboot, replace or degrade")
    means: str = Field(description="what it does, in words")
    timeout_s: float | None = Field(None, description="how long it may take (s, emulated), if it is done in place")


class RecoveryRuleView(ApiModel):
    """How a fault of one level is repaired (`recovery_rules.yaml`)."""

    name: str = Field(description="the fault level")
    ladder: list[RuleRung] = Field(description="tried in this order until one helps; empty: no repair")
    drain_s: float | None = Field(
        None,
        description="how long the member may drain before the first rung (s, emulated); absent: its work is broken "
        "already, so it does not drain",
    )


def rule_views(rules: RecoveryRules) -> list[RecoveryRuleView]:
    """The table, one view per level, in the table's order."""
    rungs = {
        each.name: RuleRung(rung=each.name, means=each.means, timeout_s=each.timeout_s) for each in rules.rungs.values()
    }
    return [
        RecoveryRuleView(name=level, ladder=[rungs[each] for each in ladder], drain_s=rules.drains.get(level))
        for level, ladder in rules.ladders.items()
    ]
