"""The context cache: prefixes only, least recently used, soft."""

import os
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.ems.context_cache import STORED, ContextCache, WarmResult
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import generate_arrivals, healthy_fabric, run
from infer_workload.experiments.trial import Trial
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from infer_workload.traffic.generator import Arrival, blocks_of, read_trace

NODES = ("sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2")


def put(cache: ContextCache, *hashes: int) -> None:
    cache.add_in_flight(hashes, 1)
    cache.store(hashes, 1)


def test_only_an_unbroken_prefix_is_reused():
    cache = ContextCache(100, 512, NODES)
    put(cache, 1, 2, 3)
    assert cache.match([1, 2, 3, 4], 2000).tokens == 1536
    assert cache.match([9, 2, 3], 1500).blocks == 0
    assert cache.match([1, 2], 700).tokens == 700


def test_an_in_flight_block_names_its_producer():
    cache = ContextCache(100, 512, NODES)
    cache.add_in_flight([1, 2], 7)
    assert cache.match([1, 2], 1024).producer == 7
    cache.store([1, 2], 7)
    assert cache.match([1, 2], 1024).producer == STORED
    cache.add_in_flight([3], 7)
    assert cache.drop_producer(7) == 1
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
    arrivals = generate_arrivals(250, seed, 2.0)
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
    cache, arrivals, hits = ContextCache(blocks, 512, NODES), read_trace(TRACE), 0
    for arrival in arrivals:
        hits += cache.match(arrival.blocks, arrival.input_tokens).blocks
        put(cache, *arrival.blocks)
    assert hits / sum(len(arrival.blocks) for arrival in arrivals) == pytest.approx(share, abs=0.002)


def test_what_memory_has_no_room_for_lies_on_solid_state_until_it_is_used():
    cache = ContextCache(3, 512, NODES, ssd_capacity=4)
    put(cache, 1, 2, 3)
    put(cache, 10, 11, 12)
    assert (len(cache), cache.counts.demoted, cache.counts.evicted) == (6, 3, 0)
    again = cache.match([1, 2, 3], 1536)
    assert (again.tokens, again.ssd_tokens) == (1536, 1536)
    assert cache.match([1, 2, 3], 1536).ssd_tokens == 0, "it is in memory from then on"
    put(cache, 20, 21, 22)
    assert len(cache) == 7
    assert cache.counts.evicted == 2, "solid state is full too"
    lost = cache.move_to(NODES[:1], 3)
    assert lost + len(cache) == 7


def test_in_flight_blocks_are_not_demoted():
    cache = ContextCache(2, 512, NODES, ssd_capacity=10)
    cache.add_in_flight([1, 2], 1)
    put(cache, 3, 4)
    assert cache.counts.demoted == 0
    assert cache.match([1], 512).blocks == 0


def test_by_cost_the_end_of_a_prompt_goes_before_its_beginning():
    by_use, by_cost = (ContextCache(6, 512, NODES, policy=policy) for policy in ("lru", "cost"))
    for cache in (by_use, by_cost):
        put(cache, 1, 2, 3, 4)
        put(cache, 10, 11, 12)
        assert len(cache) == 6
    assert by_use.match([1, 2, 3, 4], 2048).blocks == 0, "without its first block the others are of no use"
    assert by_cost.match([1, 2, 3, 4], 2048).blocks == 3


def test_by_cost_more_is_reused_than_by_use_alone():
    """Conversations that grow, in a memory that holds a part of them."""
    hits = dict.fromkeys(("lru", "cost"), 0)
    for policy in ("lru", "cost"):
        cache = ContextCache(600, 512, NODES, policy=policy)
        turns = [(session, turn) for turn in range(1, 9) for session in range(40)]
        for session, turn in turns:
            prompt = [*range(-8, 0), *(session * 1000 + block for block in range(turn * 4))]
            hits[policy] += cache.match(prompt, len(prompt) * 512).blocks
            put(cache, *prompt)
    assert hits["cost"] > hits["lru"]


@pytest.mark.parametrize(("block_tokens", "least"), [(256, 0.97), (200, 400 / 512), (128, 0.97)])
def test_smaller_blocks_find_as_much_of_recorded_prompts(block_tokens, least):
    """The hashes of a trace stand for 512 tokens, whatever the size of the cache's blocks is; of what is shared, only
    whole blocks are found."""
    whole, fine = (run(Trial(generate=300, nodes=8, seed=3, block_tokens=size)).report for size in (512, block_tokens))
    assert least <= fine.cache_hit_rate_tokens / whole.cache_hit_rate_tokens < 1.03


def test_prompts_share_smaller_blocks_as_far_as_they_share_a_traces():
    one, other = (blocks_of(Arrival(0.0, 1100, 1, blocks), 256) for blocks in ((7, 8, 9), (7, 18, 19)))
    assert len(one) == len(other) == 5
    assert one[:2] == other[:2]
    assert not set(one[2:]) & set(other[2:])
    assert len(set(one)) == 5
    assert len(blocks_of(Arrival(0.0, 1100, 1, (7,)), 200)) == 3, "no more than there are hashes for"
    assert blocks_of(Arrival(0.0, 1100, 1, ()), 200) == ()


def test_a_namespace_holds_no_more_than_its_share():
    cache = ContextCache(100, 512, NODES, share=0.5)
    for block in range(0, 80, 4):
        cache.add_in_flight(range(block, block + 4), 1, "greedy")
    cache.add_in_flight(range(1000, 1040), 1, "modest")
    assert cache.match(range(1000, 1040), 40 * 512).blocks == 40
    assert len(cache) == 90
    assert cache.counts.evicted == 30
    assert cache.match(range(76, 80), 4 * 512).blocks == 4, "what it used last stays"


def test_of_its_share_a_namespace_keeps_what_it_uses():
    """The beginning that all its prompts have is its oldest, and used by each of them."""
    cache = ContextCache(20, 512, NODES, share=0.5)
    for prompt in range(10, 90, 4):
        blocks = [1, 2, *range(prompt, prompt + 4)]
        found = cache.match(blocks, 512 * len(blocks))
        assert found.blocks == (0 if prompt == 10 else 2)
        cache.add_in_flight(blocks, 1, "red")
        cache.store(blocks, 1)


def test_a_block_that_is_computed_again_lies_in_one_tier():
    """Solid state has the end of a prompt whose beginning is gone, so that it is computed again."""
    cache = ContextCache(3, 512, NODES, ssd_capacity=2)
    put(cache, 1, 2, 3)
    put(cache, 10, 11, 12)
    assert cache.match([1, 2, 3], 1536).tokens == 0, "solid state had no room for the first"
    cache.move_to(NODES, 3, ssd_capacity=10)
    put(cache, 1, 2, 3)
    assert sorted(block.key for block in cache.list_stored()) == [1, 2, 3, 10, 11, 12]
    assert len(cache) == 6


def test_what_comes_back_from_solid_state_counts_to_the_share():
    cache = ContextCache(8, 512, NODES, ssd_capacity=20, share=0.5)

    def asks(of: str, *hashes: int) -> int:
        found = cache.match(hashes, 512 * len(hashes))
        cache.add_in_flight(hashes, 1, of)
        cache.store(hashes, 1)
        return found.ssd_tokens // 512

    asks("greedy", 1, 2, 3, 4)
    asks("modest", 11, 12, 13, 14)
    asks("other", 21, 22, 23, 24)
    asks("greedy", 5, 6, 7, 8)
    assert asks("greedy", 1, 2, 3, 4) == 4
    in_memory = [block for block in cache.list_stored() if not block.ssd]
    assert sorted(block.key for block in in_memory if block.namespace == "greedy") == [1, 2, 3, 4]
    assert not [block for block in in_memory if not block.namespace]


def test_a_cache_imports_the_blocks_of_another():
    before = ContextCache(4, 512, NODES, ssd_capacity=4)
    put(before, 1, 2, 3)
    put(before, 10, 11, 12)
    before.add_in_flight([20], 7)
    exported = before.list_stored()
    assert sorted(block.key for block in exported) == [1, 2, 3, 10, 11, 12]
    assert [block.key for block in exported[:3]] == [12, 11, 10], "the latest used first"
    assert {block.key for block in exported if block.ssd} == {1, 2, 3}, "memory has room for four, one is promised"
    after = ContextCache(10, 512, NODES, ssd_capacity=4)
    assert after.warm(exported, dry_run=True).taken == 6
    assert len(after) == 0, "it was only asked"
    assert after.warm(exported) == WarmResult(taken=6)
    assert after.warm(exported) == WarmResult(known=6)
    assert after.list_stored() == exported, "in the same tiers and order"
    assert after.match([10, 11, 12], 1536).tokens == 1536
    fewer = ContextCache(10, 512, NODES[:1], ssd_capacity=4).warm(exported)
    assert fewer.taken == sum(block.node == NODES[0] for block in exported), "what lies elsewhere is left out"
    assert fewer.taken + fewer.elsewhere == 6


def test_imported_blocks_evict_nothing_and_are_evicted_first():
    other = ContextCache(10, 512, NODES)
    put(other, 1, 2, 3, 4)
    cache = ContextCache(4, 512, NODES)
    put(cache, 50, 51)
    assert cache.warm(other.list_stored()) == WarmResult(taken=2, no_room=2)
    put(cache, 60)
    assert {50, 51, 60} < {block.key for block in cache.list_stored()}, "what was here is younger"


def test_imported_blocks_count_towards_the_shares():
    other = ContextCache(10, 512, NODES, share=0.9)
    other.add_in_flight([1, 2, 3], 0, "red")
    other.add_in_flight([4], 0, "blue")
    other.store([1, 2, 3, 4], 0)
    cache = ContextCache(4, 512, NODES, share=0.5)
    assert cache.warm(other.list_stored()) == WarmResult(taken=3, no_room=1), "red holds two of four at most"


def test_imported_blocks_are_evicted_first_within_a_share():
    other = ContextCache(10, 512, NODES, share=0.9)
    other.add_in_flight([1, 2], 0, "red")
    other.store([1, 2], 0)
    cache = ContextCache(8, 512, NODES, share=0.5)
    cache.add_in_flight([50, 51], 0, "red")
    assert cache.warm(other.list_stored()).taken == 2
    cache.add_in_flight([60, 61], 0, "red")
    assert cache.match([50, 51], 1024).blocks == 2, "what was here is younger"
    assert cache.match([1, 2], 1024).blocks == 0


def test_a_second_tier_is_slower_than_memory_and_faster_than_computing_again():
    """One conversation after another comes back after others have filled the memory."""

    def first_token_s(gb=2.0, **shape):
        spec = DeploymentShape(cache_gb_per_node=gb, **shape)
        engine = Engine(lay_out(healthy_fabric(8), load_model(), load_calibration(), spec))
        blocks = 27
        for number in [*range(40), 0]:
            request = InferenceRequest(
                number, engine.now, blocks * 512 + 100, 2, tuple(number * 1000 + at for at in range(blocks))
            )
            engine.submit(request)
            engine.advance(engine.now + 100)
        return request.ttft_s, request.cached_first

    nothing, solid = first_token_s(), first_token_s(cache_ssd_gb_per_node=100.0)
    assert nothing[1] == 0
    assert solid[1] > 0
    memory = first_token_s(gb=100.0)
    assert memory[1] == solid[1]
    assert memory[0] < solid[0] < nothing[0] + 5.0
