"""How often a node came and went, as a score that fades, and what follows from it (`flap_rules.yaml`). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.yaml_text import packaged_yaml


@dataclass(frozen=True)
class FlapRules:
    """The file. `weights`: what an occurrence adds, by its reason.

    `limits`: by the reason for which a rule quarantines, of each kind of domain, how many nodes may be quarantined
    before it adds no more; `retry_s`: when a node whose stage failed and that is not quarantined for it tries again.
    """

    weights: dict[str, float]
    half_life_s: float
    quarantine_at: float
    return_below: float
    together_max: int
    limits: dict[str, dict[str, int]]
    retry_s: float

    def faded(self, score: float, at: float | None, now: float) -> float:
        """What is left of a score as of `at`."""
        return score if at is None else score * 0.5 ** (max(0.0, now - at) / self.half_life_s)

    def after(self, score: float, at: float | None, now: float, reason: str) -> float:
        """The score after one more occurrence."""
        return self.faded(score, at, now) + self.weights[reason]

    def full_domain(self, reason: str, node: NodeName, quarantined: Iterable[NodeName]) -> str | None:
        """The domain of a node of which no more may be quarantined for this reason; None where it may. A cabinet of
        which nothing is left is no reason to stop: that is the supernode's limit."""
        names, limits = [each for each in quarantined if each != node], self.limits[reason]
        if sum(each.cabinet == node.cabinet for each in names) >= limits["cabinet"]:
            return node.cabinet
        full = sum(each.supernode == node.supernode for each in names) >= limits["supernode"]
        return node.supernode if full else None


@cache
def flap_rules() -> FlapRules:
    document: dict[str, Any] = packaged_yaml("matrixresource.nodes", "flap_rules.yaml")
    return FlapRules(**document)
