"""Who is left in the degraded shape, and which size a workflow asks for meanwhile."""

from __future__ import annotations

import pytest

from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import limit_to_allocated
from matrixcompute.model.observation import conditions_of
from matrixcompute.model.whole_blocks import whole_blocks
from matrixcompute.recovery.policy import Recovery
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.requested_capacity import Block
from tests.matrixcompute.test_decisions import Observed, allocation, member, slices


def ranked(*nodes: str) -> list[MemberView]:
    return [member(node).model_copy(update={"rank": rank}) for rank, node in enumerate(nodes)]


A, B, C, D = (f"sn0-c00-n{number}" for number in range(4))
E, F = "sn0-c01-n0", "sn0-c01-n1"
G, H = "sn1-c00-n0", "sn1-c00-n1"


@pytest.mark.parametrize(
    ("sentence", "blocks", "left", "kept"),
    [
        ("without blocks all that are left", {}, [A, C, G], {A, C, G}),
        ("pairs in a cabinet", {"cabinet": 2}, [A, B, C, E], {A, B}),
        ("pairs in each", {"cabinet": 2}, [A, B, E, F, G], {A, B, E, F}),
        ("fours in a supernode, of whichever cabinets", {"supernode": 4}, [A, B, C, E, F, G, H], {A, B, C, E}),
        ("fours of pairs, no pair cut", {"cabinet": 2, "supernode": 4}, [A, B, C, E, F, G, H], {A, B, E, F}),
        ("nothing where no block is whole", {"supernode": 8}, [A, B, C], set()),
    ],
)
def test_only_whole_blocks_are_kept(sentence, blocks, left, kept):
    wanted = [Block.model_validate({"nodes": nodes, "level": level}) for level, nodes in blocks.items()]
    assert whole_blocks(ranked(*left), wanted) == kept, sentence


def present(nodes: int, spares: int = 0) -> AllocationView:
    return AllocationView.model_construct(nodes=nodes, spares=spares)


@pytest.mark.parametrize(
    ("sentence", "asked", "applied", "there", "size"),
    [
        ("it stays as small as it is", 4, 4, present(3), (3, 0)),
        ("a spare it has it keeps", 4, 4, present(3, 1), (3, 1)),
        ("whole it is as asked", 4, 4, present(4, 1), (4, 2)),
        ("another size is asked for", 5, 4, present(3), (5, 2)),
        ("below its floor it is no shape of it", 4, 4, present(1), (4, 2)),
        ("nothing was active yet", 4, None, present(3), (4, 2)),
        ("nothing is there", 4, 4, None, (4, 2)),
    ],
)
def test_shape_is_limited_to_the_allocated_size(sentence, asked, applied, there, size):
    shape = InstanceRequest(nodes=asked, min_nodes=2, spares=2)
    before = None if applied is None else InstanceRequest(nodes=applied, min_nodes=2, spares=2)
    found = limit_to_allocated(shape, before, there)
    assert (found.nodes, found.spares) == size, sentence


def test_conditions_show_missing_members():
    observed = Observed(allocation(ranked(A, B)), slices())
    found = conditions_of(
        [], observed, Recovery("keep"), state="Active", shape=InstanceRequest(nodes=4, min_nodes=2), nodes=4, spares=1,
        generation=1, now=0,
    )  # fmt: skip
    shown = {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}
    assert shown["Degraded"] == (
        "True",
        "MembersMissing",
        "it has 2 of 4 members, and its floor is 2: there was no node for the others",
    )
    assert shown["NodesReady"] == ("False", "MembersMissing", "2 of 4 members are active")
    assert shown["SparesAvailable"][:2] == ("False", "SparesMissing")
    assert shown["Ready"] == ("True", "Ready", "serves with 2 of 4 nodes")
