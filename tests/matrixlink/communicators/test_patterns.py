"""Who sends to whom in each pattern, and how fast one pair may go."""

from __future__ import annotations

import numpy as np
import pytest

from matrixlink.communicators.patterns import ceilings, transfers
from matrixlink.contract.communicators import Pattern


@pytest.mark.parametrize(
    ("pattern", "more", "pairs"),
    [
        (Pattern.RING, {}, [(0, 1), (1, 2), (2, 3), (3, 0)]),
        (Pattern.PERMUTATION, {"shift": 3}, [(0, 3), (1, 0), (2, 1), (3, 2)]),
        (Pattern.INCAST, {}, [(1, 0), (2, 0), (3, 0)]),
        (Pattern.PULL, {}, [(0, 2), (1, 3)]),
        (Pattern.PULL, {"holders": 1}, [(0, 1), (0, 2), (0, 3)]),
        (Pattern.PULL, {"holders": 9}, [(0, 3)]),
    ],
)
def test_patterns(pattern, more, pairs):
    assert list(zip(*(ends.tolist() for ends in transfers(pattern, 4, **more)), strict=True)) == pairs


def test_random_permutations_and_all_to_all():
    source, target = transfers(Pattern.PERMUTATION, 50, seed=4)
    assert len(set(target.tolist())) == len(target) >= 45
    assert not (source == target).any()
    assert (transfers(Pattern.PERMUTATION, 50, seed=4)[1] == target).all()
    source, target = transfers(Pattern.ALL_TO_ALL, 5)
    assert len(set(zip(source.tolist(), target.tolist(), strict=True))) == 20
    assert ceilings(source, 8.0).tolist() == [2.0] * 20
    assert np.isinf(ceilings(source, None)).all()
    assert [len(transfers(pattern, ranks)[0]) for pattern in Pattern for ranks in (0, 1)] == [0] * 10
