"""The context cache: prefixes only, least recently used, soft."""

import os
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_workload.ems.context_cache import STORED, ContextCache
from infer_workload.experiments.experiment import generated, run
from infer_workload.experiments.trial import Trial
from infer_workload.traffic.generator import read_trace

NODES = ("sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2")


def put(cache: ContextCache, *hashes: int) -> None:
    cache.promise(hashes, 1)
    cache.keep(hashes, 1)


def test_only_an_unbroken_prefix_is_reused():
    cache = ContextCache(100, 512, NODES)
    put(cache, 1, 2, 3)
    assert cache.match([1, 2, 3, 4], 2000).tokens == 1536
    assert cache.match([9, 2, 3], 1500).blocks == 0
    assert cache.match([1, 2], 700).tokens == 700


def test_a_promised_block_names_who_owes_it():
    cache = ContextCache(100, 512, NODES)
    cache.promise([1, 2], 7)
    assert cache.match([1, 2], 1024).maker == 7
    cache.keep([1, 2], 7)
    assert cache.match([1, 2], 1024).maker == STORED
    cache.promise([3], 7)
    assert cache.break_promises(7) == 1
    assert cache.match([1, 2, 3], 1536).blocks == 2


def test_a_node_takes_its_blocks_with_it():
    cache = ContextCache(10_000, 512, NODES)
    put(cache, *range(3000))
    on_last = cache.move_to(NODES[:2], 10_000)
    assert 600 < on_last < 1400
    assert len(cache) == 3000 - on_last
    assert cache.counts.lost == on_last


def test_a_cache_of_no_blocks_keeps_nothing():
    cache = ContextCache(0, 512, NODES)
    put(cache, 1)
    assert cache.match([1], 512).blocks == 0


def least_recently_used(prompts: list[list[int]], capacity: int) -> int:
    """Prefix hits counted another way: one ordered dictionary, nothing else."""
    current: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for prompt in prompts:
        unbroken = True
        for key in prompt:
            if key not in current:
                unbroken = False
            hits += unbroken
            current[key] = None
            current.move_to_end(key)
            if not unbroken and len(current) > capacity:
                current.popitem(last=False)
    return hits


@given(st.lists(st.lists(st.integers(0, 30), max_size=6, unique=True), max_size=40))
def test_an_unbounded_cache_hits_what_a_plain_count_finds(prompts):
    cache = ContextCache(10**6, 512, NODES)
    hits = 0
    for prompt in prompts:
        hits += cache.match(prompt, len(prompt) * 512).blocks
        put(cache, *prompt)
    assert hits == least_recently_used(prompts, 10**6)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_an_engine_with_a_large_cache_reaches_the_bound_of_its_traffic(seed):
    arrivals = generated(250, seed, 2.0)
    seen: set[int] = set()
    hits = 0
    for arrival in arrivals:
        for key in arrival.blocks:
            if key not in seen:
                break
            hits += 1
        seen.update(arrival.blocks)
    report = run(Trial(generate=250, seed=seed, rate=2.0, nodes=8)).report
    assert report.cache_blocks_hit == hits


TRACE = Path(os.environ.get("CLOUDMATRIX_TRACE", "mooncake_conversation_00-40min.jsonl.gz"))


@pytest.mark.skipif(not TRACE.exists(), reason="set CLOUDMATRIX_TRACE to the Mooncake conversation trace, 40 minutes")
def test_the_real_trace_reaches_its_published_bound():
    report = run(Trial(trace=TRACE)).report
    assert len(read_trace(TRACE)) == report.finished == 7851
    assert report.cache_hit_rate_blocks == pytest.approx(0.351, abs=0.0005)
    assert report.cache_hit_rate_tokens == pytest.approx(0.358, abs=0.0005)


@pytest.mark.skipif(not TRACE.exists(), reason="set CLOUDMATRIX_TRACE to the Mooncake conversation trace, 40 minutes")
@pytest.mark.parametrize(
    ("blocks", "share"), [(1000, 0.044), (3000, 0.065), (10_000, 0.206), (30_000, 0.318), (50_000, 0.345)]
)
def test_a_smaller_cache_hits_the_real_trace_as_published(blocks, share):
    cache, arrivals = ContextCache(blocks, 512, NODES), read_trace(TRACE)
    for arrival in arrivals:
        cache.match(arrival.blocks, arrival.input_tokens)
        put(cache, *arrival.blocks)
    assert cache.counts.block_hit_rate == pytest.approx(share, abs=0.002)
