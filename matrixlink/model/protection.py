"""Protection levels: the single failure that a floor is promised to survive in full.

A protected floor is booked at the most it can take of each link now and in every state covered by its level, so that
the sum of floors stays within every link in all of them: 1/111 instead of 1/112 of a UB floor on each uplink against
the loss of an L2 chip, 1/96 against that of a sub-plane, the whole of an RDMA floor on each of an NPU's two ports.
After a loss, the same is required of what is left; if it no longer fits, the floor stands and its protection is shown
as lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane

NOTHING, CHIP, SUB_PLANE, PORT, SUBNET = "nothing", "chip", "sub-plane", "port", "subnet"
"""What a pair of members loses of its paths in the states that are tried."""


class Protection(StrEnum):
    NONE = "none"
    ANY_CABLE = "anyCable"
    ANY_L2_CHIP = "anyL2Chip"
    ANY_L1_CHIP = "anyL1Chip"
    ANY_SUB_PLANE = "anySubPlane"
    ANY_PORT = "anyPort"
    DISJOINT_PATH = "disjointPath"

    @property
    def fails(self) -> str:
        return LEVELS[self].fails


@dataclass(frozen=True, slots=True)
class ProtectionLevel:
    """One level: the planes that have it, what a pair loses, and the corresponding hardware failure."""

    planes: tuple[Plane, ...]
    fails: str
    sentence: str


LEVELS: dict[Protection, ProtectionLevel] = {
    Protection.NONE: ProtectionLevel(
        tuple(Plane), NOTHING, "The floor holds as long as everything its routes use works."
    ),
    Protection.ANY_CABLE: ProtectionLevel((Plane.UB,), CHIP, "Any one of the members' uplinks to L2 chips."),
    Protection.ANY_L2_CHIP: ProtectionLevel((Plane.UB,), CHIP, "Any one L2 chip, for all nodes at once."),
    Protection.ANY_L1_CHIP: ProtectionLevel(
        (Plane.UB,), SUB_PLANE, "Any one L1 chip of a member, with its dies' links."
    ),
    Protection.ANY_SUB_PLANE: ProtectionLevel((Plane.UB,), SUB_PLANE, "Any one sub-plane, L1 and L2 chips alike."),
    Protection.ANY_PORT: ProtectionLevel(
        (Plane.RDMA,), PORT, "Any one die port: its NPU sends everything over the other one."
    ),
    Protection.DISJOINT_PATH: ProtectionLevel(
        (Plane.RDMA,), SUBNET, "A whole subnet: every NPU has its floor over either."
    ),
}


def check_protection(plane: Plane, protection: Protection, floor_gbps: float) -> None:
    """Raises InvalidField for a level that the plane does not have, or one without a floor to protect."""
    has = [level for level, terms in LEVELS.items() if plane in terms.planes]
    if protection not in has:
        raise InvalidField(f"plane {plane} only has {', '.join(has)}", field="protection")
    if protection != Protection.NONE and floor_gbps <= 0:
        raise InvalidField("there is no floor to protect; ask for floorGbpsPerNpu above 0", field="protection")
