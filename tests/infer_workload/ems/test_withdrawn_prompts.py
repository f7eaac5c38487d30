"""What prompts in the queues of prefill instances count on of the context cache, where those that would have computed it
are withdrawn, or it is lost with a node."""

from __future__ import annotations

from math import inf

from infer_workload.layout.recovery import plan_change
from tests.infer_workload.test_engine import ObservedEngine

SHARED = tuple(range(1, 9))


def test_the_cache_keeps_what_a_prompt_computes_that_begins_as_a_cancelled_one():
    observed = ObservedEngine()
    first, second = (observed.submit(number, 4500, 2, SHARED) for number in (1, 2))
    assert (first.cached, second.cached) == (0, 8 * 512), "it counts on the one before it"
    observed.engine.cancel(second)
    observed.engine.advance(inf)
    assert observed.submit(3, 4500, 2, SHARED).cached_first == 8 * 512


def test_a_prompt_computes_itself_what_it_counted_on_a_cancelled_one_for():
    alone = ObservedEngine().submit(1, 4500, 2, SHARED)
    observed = ObservedEngine()
    first, second, third = (observed.submit(number, 4500, 2, SHARED) for number in (1, 2, 3))
    instance = second.instance
    observed.engine.cancel(first)
    assert (second.cached, second.cached_first, third.cached) == (0, 0, 8 * 512), "one computes it, once"
    assert instance.backlog_tokens == 4500 + (4500 - 8 * 512)
    observed.engine.advance(inf)
    assert (alone.cached_first, third.cached_first) == (0, 8 * 512)
    assert instance.prefilled_tokens == 4500 + (4500 - 8 * 512)
    assert instance.backlog_tokens == 0
    assert observed.submit(4, 4500, 2, SHARED).cached_first == 8 * 512


def test_prompts_in_the_queue_compute_themselves_what_a_lost_node_had_of_them():
    """Also what they had been told of it, and for those that come after them."""
    observed = ObservedEngine(6)
    engine = observed.engine
    blocks = tuple(range(1, 61))
    observed.submit(0, 60 * 512, 2, blocks)
    engine.advance(inf)
    busy = [observed.submit(number, 150_000, 2) for number in range(1, 1 + len(engine.prefill.instances))]
    first, second = (observed.submit(number, 60 * 512 + 100, 2, blocks) for number in (10, 11))
    assert first.cached == second.cached == 60 * 512
    assert first.prefill_started_at < 0
    lost = engine.deployment.pools.decode[-1]
    change = plan_change(engine.deployment, engine.deployment.fabric.without([lost]))
    engine.apply_layout(change.deployment, change.pause_s, change.start_s)
    waits = first.instance
    assert waits in {request.instance for request in busy}, "its instance is still there"
    assert engine.cache.counts.lost > 0
    assert first.cached == first.cached_first < 60 * 512
    rebuilt = first.cached
    assert first.cached % 512 == 0
    assert second.cached == 60 * 512, "behind the first, which computes it again"
    backlog = sum(each.prompt - each.prefilled for each in engine.in_flight.values() if each.instance is waits)
    assert waits.backlog_tokens == backlog
    engine.advance(inf)
    assert all(instance.backlog_tokens == 0 for instance in engine.prefill.instances)
    counts = engine.cache.counts
    assert counts.tokens_hit == rebuilt + 60 * 512, "what was computed after all was no hit"
    assert counts.blocks_hit == rebuilt // 512 + 60
    assert counts.tokens_asked == 60 * 512 + len(busy) * 150_000 + 2 * (60 * 512 + 100)
    assert observed.submit(20, 60 * 512, 2, blocks).cached_first == 60 * 512


def test_of_prompts_that_share_a_beginning_and_are_lost_together_nothing_is_kept():
    observed = ObservedEngine()
    requests = [observed.submit(number, 4500, 2, SHARED) for number in range(4)]
    observed.submit(4, 4500, 2, (77, 77, 77))  # a recorder's mistake
    for request in requests:
        observed.engine.cancel(request)
    observed.engine.cancel(observed.engine.in_flight[4])
    assert len(observed.engine.cache) == 0
    assert all(instance.backlog_tokens == 0 for instance in observed.engine.prefill.instances)
