"""Node flapping: a decaying score of losses and returns, and what follows from it (`flap_rules.yaml`). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.yaml_text import packaged_yaml


@dataclass(frozen=True)
class FlapRules:
    """The file's contents. `weights`: what an occurrence adds to the score, by reason.

    `limits`: for each reason to quarantine, how many nodes of a domain may be quarantined before the rule stops adding
    more; `retry_s`: when a node whose stage failed, and that was not quarantined for it, tries again.
    """

    weights: dict[str, float]
    half_life_s: float
    quarantine_at: float
    return_below: float
    together_max: int
    limits: dict[str, dict[str, int]]
    retry_s: float

    def decayed_score(self, score: float, at: float | None, now: float) -> float:
        """What is left at `now` of a score as of `at`."""
        return score if at is None else score * 0.5 ** (max(0.0, now - at) / self.half_life_s)

    def raised_score(self, score: float, at: float | None, now: float, reason: str) -> float:
        """The score after one more occurrence."""
        return self.decayed_score(score, at, now) + self.weights[reason]

    def full_domain(self, reason: str, node: NodeName, quarantined: Iterable[NodeName]) -> str | None:
        """The node's cabinet or supernode if that has reached its limit of quarantines for this reason, else None. A
        cabinet may be quarantined entirely; only the supernode's limit stops that."""
        names, limits = [each for each in quarantined if each != node], self.limits[reason]
        if sum(each.cabinet == node.cabinet for each in names) >= limits["cabinet"]:
            return node.cabinet
        full = sum(each.supernode == node.supernode for each in names) >= limits["supernode"]
        return node.supernode if full else None


@cache
def flap_rules() -> FlapRules:
    document: dict[str, Any] = packaged_yaml("matrixresource.nodes", "flap_rules.yaml")
    return FlapRules(**document)
