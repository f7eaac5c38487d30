"""Members dealt to cabinets: what the quick way and the thorough way find, held against every possibility."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.placement import block_distribution
from matrixresource.scheduler.placement.block_distribution import CabinetCapacity, distribute

CABINETS = 2  # of a supernode


@st.composite
def machines(draw: st.DrawFn) -> dict[int, CabinetCapacity]:
    """Three supernodes of two cabinets."""
    found = {}
    for cabinet in range(3 * CABINETS):
        whole, started, first = draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.sampled_from([0, 0, 0, 1]))
        most = first + draw(st.integers(0, whole + started))
        found[cabinet] = CabinetCapacity(most, whole, started, first)
    return found


def left(rooms: dict[int, CabinetCapacity], takes: dict[int, int]) -> int:
    """Whole nodes beside the members, in the supernodes that have any."""
    homes = {cabinet // CABINETS for cabinet, count in takes.items() if count}
    used = (
        max(0, takes.get(c, 0) - room.present - room.partly_used) for c, room in rooms.items() if c // CABINETS in homes
    )
    return sum(room.whole for c, room in rooms.items() if c // CABINETS in homes) - sum(used)


@settings(max_examples=200, deadline=None)
@given(machines(), st.integers(1, 9), st.integers(0, 8), st.sampled_from([1, 1, 2]), st.sampled_from([1, 1, 2, 4]))
def test_members_are_distributed_whenever_possible(
    rooms: dict[int, CabinetCapacity], wanted: int, spares: int, cell: int, block: int
) -> None:
    def sound(takes: dict[int, int]) -> bool:
        homes = [sum(takes.get(s * CABINETS + c, 0) for c in range(CABINETS)) for s in range(3)]
        counts = (
            room.present <= takes.get(c, 0) <= room.members_max and not takes.get(c, 0) % cell
            for c, room in rooms.items()
        )
        return sum(homes) == wanted and not any(n % block for n in homes) and all(counts)

    all_takes = (
        dict(enumerate(counts)) for counts in product(*(range(room.members_max + 1) for room in rooms.values()))
    )
    most = max((left(rooms, takes) for takes in all_takes if sound(takes)), default=-1)
    event("fits" if most >= spares else "does not fit")
    for effort in (block_distribution.DIVISIONS_MAX, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(block_distribution, "DIVISIONS_MAX", effort)
            found = distribute(
                rooms, wanted, spares, cabinet_block=cell, supernode_block=block, most=9, cabinets=CABINETS
            )
        if found is not None:
            assert sound(found)
            assert left(rooms, found) >= spares
        assert found is not None or most < spares or not effort  # the quick way may miss one


def test_a_gang_of_thousands_with_spares() -> None:
    """Every division would be too many; the emptiest supernodes hold it."""
    ledger = Ledger(ClusterShape(120, 12, 4))
    place, _ = ledger.allocate("gang", PlacementRequest(4800, spares=60, cpus=1), 0.0)
    assert place is not None
    assert sum(mask.bit_count() for _, mask in place.spares) == 60
    homes = {cabinet // 12 for cabinet, _ in place.whole}
    assert homes >= {cabinet // 12 for cabinet, _ in place.spares}
    assert len(homes) == 102
