"""Names of links, in order and from any name on: what pages of thousands of links are cut from."""

from __future__ import annotations

import pytest

from matrixlink.fabric.condition.fabric import Fabric
from matrixresource.topology import Supernode


@pytest.mark.parametrize("plane", [None, "ub", "rdma", "vpc"])
def test_names_after_equals_the_sorted_list(plane):
    fabric = Fabric([Supernode(name) for name in ("sn0", "sn10", "sn1", "sn2")])
    names = sorted(link.name for link in fabric.links(None, plane))
    assert [*fabric.link_names_after("", plane)] == names
    for after in (names[0], names[-1], names[len(names) // 3], "a", "sn1", "sn1-", "sn10", "sn11-c00", "sn2.", "z"):
        assert [*fabric.link_names_after(after, plane)] == [name for name in names if name > after]
