"""Where the experts of a pool live, and how much the busiest die has to do.

Two published layouts meet here. With a die for every expert (decode at EP288 and above) some dies hold copies of the
shared expert, 256 hold the routed ones and the rest redundant copies. With fewer dies every die holds the shared
expert and an equal number of routed slots, copies filling what 256 does not divide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.model import ServedModel

SHARED_COPIES_MIN = 32
"""Copies of the shared expert with a die each: 32 of 288 (xDeepServe) and 32 of 320 (the paper)."""

PREFILL_ROUTED_PER_DIE = 9
"""Routed slots of a die in the paper's prefill instance: 8 and 1 redundant (EP32)."""


@dataclass(frozen=True)
class ExpertLayout:
    """The experts of one pool. `routed_slots` counts redundant copies; `shared_dies` is 0 where each has its own."""

    dies: int
    routed_per_die: int
    routed_slots: int
    shared_dies: int

    @property
    def experts_per_die(self) -> int:
        return self.routed_per_die if self.shared_dies else self.routed_per_die + 1

    def redundant(self, routed_experts: int) -> int:
        """Copies beyond the first of a routed expert."""
        return self.routed_slots - routed_experts

    def busiest_tokens(self, tokens: float, top_k: int, imbalance: float) -> float:
        """Expert rows the busiest die computes when every die sends `tokens` tokens."""
        routed = tokens * top_k * self.dies * self.routed_per_die / self.routed_slots * imbalance
        if self.shared_dies:
            return max(routed, tokens * self.dies / self.shared_dies)
        return routed + tokens


def lay_experts(dies: int, model: ServedModel, redundant_per_die: int = 0) -> ExpertLayout:
    """Experts on `dies` dies, every routed one at least once. `redundant_per_die` adds slots for EPLB copies.

    Raises ValueError for no dies.
    """
    if dies < 1:
        raise ValueError("a pool needs at least one die")
    if dies >= model.routed_experts + SHARED_COPIES_MIN:
        shared = max(SHARED_COPIES_MIN, dies // 10)
        return ExpertLayout(dies, 1, dies - shared, shared)
    per_die = -(-model.routed_experts // dies) + redundant_per_die
    return ExpertLayout(dies, per_die, per_die * dies, 0)


def imbalance_of(routed_per_die: int, calibration: Calibration) -> float:
    """Hottest die over the mean for that many routed slots a die.

    More experts on a die even out. The law `1 + a n^-b` goes through the two fitted values, one slot a die (decode)
    and nine (prefill); between and beyond them it is an assumption.
    """
    one, nine = calibration.decode_imbalance - 1.0, calibration.prefill_imbalance - 1.0
    if one <= 0 or nine <= 0:
        return 1.0
    ratio: float = (nine / one) ** (log(routed_per_die) / log(PREFILL_ROUTED_PER_DIE))
    return 1.0 + one * ratio
