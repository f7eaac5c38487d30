"""The plan of one who knows the load is the cheapest there is: compared with trying every plan."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixcompute.autoscaling.clairvoyant import cheapest_sizes


def cost(plan, least, change_s, price_s) -> float:
    there = sum(plan) * 5.0 + sum(max(0, after - before) for before, after in pairwise(plan)) * change_s
    return there + sum(price for size, need, price in zip(plan, least, price_s, strict=True) if size < need)


@settings(deadline=None, max_examples=60)
@given(
    least=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    change_s=st.sampled_from([0.0, 4.0, 12.0, 60.0]),
    price_s=st.sampled_from([1.0, 7.0, 30.0]),
)
def test_no_plan_is_cheaper(least, change_s, price_s):
    prices = [price_s] * len(least)
    found = cheapest_sizes(np.array(least), 5.0, change_s, price_s=np.array(prices))
    every = product(range(1, max(least) + 1), repeat=len(least))
    assert cost(found.tolist(), least, change_s, prices) == pytest.approx(
        min(cost(plan, least, change_s, prices) for plan in every)
    )


def test_short_dip_keeps_its_members():
    least = np.array([4] * 10 + [1] * 5 + [4] * 10)
    assert cheapest_sizes(least, 5.0, 60.0).tolist() == [4] * 25
    assert cheapest_sizes(least, 5.0, 10.0).tolist() == least.tolist()


def test_sizes_are_multiples_of_the_step():
    assert cheapest_sizes(np.array([1, 2, 1]), 5.0, 0.0, step=2).tolist() == [2, 4, 2]
