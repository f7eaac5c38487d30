"""QoS classes: what a slice is promised, and who yields first.

Every slice gets its floor and, by weight, a share of what is promised to nobody (guarantee plus share), up to its
ceiling. When capacity is lost, floors are kept in the order of the classes: the last class yields first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from matrixcommon.model.errors import InvalidField


class QosClass(StrEnum):
    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class ClassTerms:
    """The meaning of a class. `rank` orders who keeps a floor when links are lost, lowest first."""

    rank: int
    weight: float
    floor: str  # required, optional, none
    sentence: str


TERMS: dict[QosClass, ClassTerms] = {
    QosClass.GUARANTEED: ClassTerms(0, 4.0, "required", "A floor that is kept before those of other classes."),
    QosClass.BURSTABLE: ClassTerms(1, 2.0, "optional", "A floor if requested, and a share of free capacity."),
    QosClass.BEST_EFFORT: ClassTerms(2, 1.0, "none", "No floor; a share of free capacity."),
}


def class_of_rank(rank: int) -> QosClass:
    """The class of that rank."""
    return next(qos for qos, terms in TERMS.items() if terms.rank == rank)


def check_terms(qos: QosClass, floor_gbps: float, ceiling_gbps: float | None) -> None:
    """Raises InvalidField for a floor or ceiling that the class does not permit."""
    terms = TERMS[qos]
    if terms.floor == "required" and floor_gbps <= 0:
        raise InvalidField(f"{qos} needs a floor above 0", field="floorGbpsPerNpu")
    if terms.floor == "none" and floor_gbps > 0:
        raise InvalidField(f"{qos} has no floor; request Burstable or Guaranteed", field="floorGbpsPerNpu")
    if ceiling_gbps is not None and ceiling_gbps < floor_gbps:
        raise InvalidField("the ceiling is below the floor", field="ceilingGbpsPerNpu")
