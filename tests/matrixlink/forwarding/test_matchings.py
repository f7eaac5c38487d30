"""Colours of planned routes are even at every vertex; a plan around lost cables uses no lost one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixlink.forwarding.clos_shape import NONE
from matrixlink.forwarding.matchings import chips_around_faults, matchings

edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=60)


def degree_max(vertices, colours):
    """The most edges that a vertex has of one colour, by vertex."""
    if not len(vertices):
        return {}
    return {v: np.bincount(colours[vertices == v]).max() for v in set(vertices.tolist())}


@settings(max_examples=300, deadline=None)
@given(edges, st.sampled_from([1, 2, 4, 8, 16]))
def test_every_vertex_has_its_edges_divided_evenly(drawn, chips):
    senders, receivers = np.array(drawn, np.int64).reshape(-1, 2).T
    colours = matchings(senders, receivers, chips)
    assert set(colours.tolist()) <= set(range(chips))
    for vertices in (senders, receivers):
        degree = np.bincount(vertices, minlength=1)
        assert all(found <= -(-degree[v] // chips) for v, found in degree_max(vertices, colours).items())


@pytest.mark.parametrize("seed", range(5))
def test_a_permutation_of_sixteen_dies_per_node_has_sixteen_perfect_matchings(seed):
    target = np.random.default_rng(seed).permutation(768)
    senders, receivers = np.arange(768) // 16, target // 16
    colours = matchings(senders, receivers, 16)
    for vertices in (senders, receivers):
        assert len(set(zip(vertices.tolist(), colours.tolist(), strict=True))) == 768


@settings(max_examples=200, deadline=None)
@given(edges, st.sampled_from([3, 4, 7]), st.randoms(use_true_random=False))
def test_chips_around_faults_are_working_and_unchanged_where_possible(drawn, chips, chance):
    senders, receivers = np.array(drawn, np.int64).reshape(-1, 2).T
    words = np.array([chance.choice([0, 1, 2, 3, (1 << chips) - 1]) for _ in drawn], np.uint32)
    colours = matchings(senders, receivers, chips)
    chosen = chips_around_faults(colours, senders, receivers, words, chips)
    for colour, chip, word in zip(colours.tolist(), chosen.tolist(), words.tolist(), strict=True):
        assert (chip == NONE) == (word == 0)
        assert chip == NONE or word >> chip & 1
        if colour < chips and word >> colour & 1:
            assert chip == colour


def test_one_lost_cable_of_a_full_node_halves_three_flows():
    """Sixteen flows over fifteen cables: two share one of the sender's; the moved one shares one of its receiver's."""
    senders, receivers = np.arange(768) // 16, np.roll(np.arange(768), 16 * 5 + 3) // 16
    colours = matchings(senders, receivers, 16)
    words = np.full(768, 0xFFFF, np.uint32)
    words[senders == 7] ^= 1 << 4
    chosen = chips_around_faults(colours, senders, receivers, words, 16)
    assert (chosen != colours).sum() == 1
    assert np.bincount(senders * 16 + chosen).max() == 2
    assert (np.bincount(senders * 16 + chosen) == 2).sum() == 1
    assert (np.bincount(receivers * 16 + chosen) == 2).sum() == 1
