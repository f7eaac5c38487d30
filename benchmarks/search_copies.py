"""Cost of a long search outside of the event loop: copying the ledger, and how long the loop is blocked meanwhile.

The machines are full; the search looks for preemption victims for refused requests of the seeded mix. The loop copies
the ledger and a thread searches the copy, as in `matrixcommon/persistence/searches.py`. A task that wakes every
millisecond measures how long the loop was blocked: interpreted code releases the interpreter lock every 5 ms, compiled
code holds it until it ends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from benchmarks import Figure
from benchmarks.allocation_plans import fill_until_refused, generate_refused
from benchmarks.allocator.busy import SHAPES, percentile, run_busy_machine
from matrixcommon.persistence.searches import copy_without_gc
from matrixresource.scheduler import FORM
from matrixresource.scheduler.changes import preemption
from matrixresource.scheduler.ledger import Ledger

SIZES = {"48 nodes": (2000, 60), "1,024 nodes": (4000, 40), "20,736 nodes": (10000, 15)}
COPIES = 20
TICK_S = 0.001


def measure() -> Iterator[Figure]:
    for name, (requests, searches) in SIZES.items():
        found = run_busy_machine(SHAPES[name], requests, constrained=True)
        fill_until_refused(found.ledger, found.now)
        method = f"{FORM.word}; {len(found.ledger.allocations):,} allocations, machine full to the brim"
        yield Figure(f"copy of the ledger at {name}", copy_ms(found.ledger), "ms", f"{method}; in the loop")
        took_ms, stood_ms = asyncio.run(measure_search(found.ledger, found.now, searches))
        method = f"{FORM.word}; {searches} searches for whom to preempt, without the copy"
        for word, share in (("P50", 50), ("longest", 100)):
            yield Figure(f"search in a thread at {name}, {word}", percentile(took_ms, share), "ms", method)
            yield Figure(f"the loop stood still in one at {name}, {word}", percentile(stood_ms, share), "ms", method)


def copy_ms(ledger: Ledger) -> float:
    """Return the median milliseconds of a copy, in CPU time since the machine may be busy with other work."""
    took = list[float]()
    for _ in range(COPIES):
        begun = time.thread_time()
        copy_without_gc(ledger)
        took.append(time.thread_time() - begun)
    return 1000 * sorted(took)[COPIES // 2]


async def measure_search(ledger: Ledger, now: float, count: int) -> tuple[list[float], list[float]]:
    """Return, sorted, the milliseconds of CPU time of each search and the longest time that each blocked the loop."""
    rng = random.Random(13)
    refused = generate_refused(ledger, rng, now)
    loop, took, stood = asyncio.get_running_loop(), list[float](), list[float]()
    for _ in range(count):
        request = replace(next(refused), priority=1)
        find = partial(preemption.victims, request=request, now=now)
        state = copy_without_gc(ledger)
        watching = asyncio.create_task(event_loop_delay_s())
        await asyncio.sleep(0)
        took.append(1000 * await loop.run_in_executor(None, time_call, find, state))
        watching.cancel()
        stood.append(1000 * await watching)
    return sorted(took), sorted(stood)


def time_call(find: Callable[[Ledger], object], ledger: Ledger) -> float:
    """Run a search and return its CPU seconds."""
    begun = time.thread_time()
    find(ledger)
    return time.thread_time() - begun


async def event_loop_delay_s() -> float:
    """Run until cancelled; return the longest delay beyond the requested pause, in seconds."""
    worst_s, seen = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            worst_s, seen = max(worst_s, now - seen - TICK_S), now
    except asyncio.CancelledError:
        return max(worst_s, time.perf_counter() - seen - TICK_S)
