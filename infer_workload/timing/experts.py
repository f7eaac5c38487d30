"""How a pool's experts are placed on its dies, and how much work the busiest die has.

There are two published layouts. With a die for every expert (decode at EP288 and above) some dies hold copies of the
shared expert, 256 hold the routed ones and the rest hold redundant copies. With fewer dies, every die holds the shared
expert and an equal number of routed slots; redundant copies fill the slots left over where 256 does not divide evenly.
`routing` computes how uneven the load is.
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import ServedModel


@dataclass(frozen=True)
class ExpertLayout:
    """Expert placement of one pool. `routed_slots` includes redundant copies; `shared_dies` is 0 if every die holds the
    shared expert itself."""

    dies: int
    routed_per_die: int
    routed_slots: int
    shared_dies: int
    shared_per_die: int = 1

    @property
    def experts_per_die(self) -> int:
        return self.routed_per_die if self.shared_dies else self.routed_per_die + self.shared_per_die

    @property
    def routed_dies(self) -> int:
        return self.dies - self.shared_dies

    def redundant(self, routed_experts: int) -> int:
        """Redundant copies: slots beyond one for each routed expert."""
        return self.routed_slots - routed_experts

    def routed_rows(self, tokens: float, top_k: int, imbalance: float) -> float:
        """Rows that the busiest die computes in routed experts when every die sends `tokens` tokens."""
        return tokens * top_k * self.dies * self.routed_per_die / self.routed_slots * imbalance

    def shared_rows(self, tokens: float) -> float:
        """Rows that a die holding the shared expert computes in it when every die sends `tokens` tokens."""
        return tokens * self.dies / self.shared_dies if self.shared_dies else tokens


def place_experts(dies: int, model: ServedModel, redundant_per_die: int = 0) -> ExpertLayout:
    """Place the experts on `dies` dies, every routed one at least once. `redundant_per_die` adds slots for EPLB copies.

    Raises ValueError if `dies` is less than 1.
    """
    if dies < 1:
        raise ValueError("a pool needs at least one die")
    if model.dense:
        return ExpertLayout(dies, 0, 0, 0, 0)
    copies = load_calibration().shared_copies_min
    if model.shared_experts and dies >= model.routed_experts + copies:
        shared = max(copies, dies // 10)
        return ExpertLayout(dies, 1, dies - shared, shared)
    per_die = -(-model.routed_experts // dies) + redundant_per_die
    return ExpertLayout(dies, per_die, per_die * dies, 0, model.shared_experts)
