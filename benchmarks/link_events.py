"""Loss of an L2 chip through MatrixLink's API: from 48 ports reported down in one batch to new tables and changed
flows.

The service runs in this process over ASGI with its SQLite file on this disk, for a whole supernode: real link agents
on 48 nodes hold the program of one slice, and a communicator sends a random permutation of 768 dies as 5,376 flows. One
request reports the loss for all nodes. It is answered when the reports are on disk and tables, flows and rates are
updated; the changes are then checked. Not timed are the report of the repair and the rerouting of the slice, which a
watcher does after the response. The first five rounds are warm-up. A C kernel is used if a compiler is available.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Figure
from matrixlink.contract.communicators import CommunicatorRequest
from matrixlink.contract.link_reports import LinkReports
from matrixresource.topology import Supernode
from tests.matrixlink.fleet import LinkStack, slice_request

LOSSES, WARM_UP = 100, 5
CHIPS = [(chip % 7, chip // 7) for chip in range(WARM_UP + LOSSES)]
"""(sub-plane, L2 chip) of each loss, all different, so that no port flaps and every link is recorded for the first
time."""
JSON = {"Content-Type": "application/json"}


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="cm-bench-") as folder:
        batches, changes, moved = asyncio.run(measure_losses(Path(folder)))
    text = f"{LOSSES} batches of 48 reports, {moved} flows on other paths; OpenSM 250 ms a sub-plane, 1,900 ms joined"
    yield Figure("L2 chip lost through the API, P50", statistics.median(batches), "ms", text, 20)
    yield Figure("the same, P99", sorted(batches)[LOSSES * 99 // 100 - 1], "ms", "", 50)
    yield Figure("list of the changed flows, P50", statistics.median(changes), "ms", "GET .../changes, all pages")


async def measure_losses(folder: Path) -> tuple[list[float], list[float], int]:
    """Return the milliseconds of each batch and of each list of changes, and how many flows the last batch rerouted."""
    nodes = Supernode().nodes()
    stack = LinkStack(folder, nodes)
    await stack.active(request=slice_request(members=nodes))
    await stack.client.ensure_communicator("p", CommunicatorRequest(slice="a-ub", pattern="permutation", seed=1))
    gc.collect()
    gc.freeze()  # as `services.link` does once it is built: what is there now stays
    batches, changes = [], []
    for event in range(2 * len(CHIPS)):
        share = float(event % 2)
        for node in stack.hardware.values():
            node.ports["ub-p{}-k{:02d}".format(*CHIPS[event // 2])] = share
        body = json.dumps(LinkReports(reports=[agent.report() for agent in stack.agents.values()]).wire())
        begun = time.perf_counter()
        answer = await stack.http.post("/v1/link-reports", content=body, headers=JSON)
        took = (time.perf_counter() - begun) * 1e3
        assert all(each["accepted"] for each in answer.json()["answers"]), answer.text[:300]
        if share == 0:
            batches.append(took)
            begun = time.perf_counter()
            listed = await stack.client.communicator_changes("p")
            changes.append((time.perf_counter() - begun) * 1e3)
            assert {change.sub_plane for change in listed} == {CHIPS[event // 2][0]}
        view = await stack.client.find_communicator("p")
        assert view is not None
        assert view.traffic is not None
        assert view.traffic.last_change is not None
        assert (view.traffic.last_change.event, view.traffic.last_change.ports) == (event + 1, len(nodes))
        repathed = view.traffic.last_change.repathed
    return batches[WARM_UP:], changes[WARM_UP:], repathed
