"""Replay a recording in this process and in virtual time: an hour of it takes seconds.

A recording made in virtual time must give exactly the same events at the same moments; otherwise the first difference
is returned, which shows what changed between two versions of the code. One from a stack of processes is compared by
object.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from services.recordings import recording as recordings
from services.recordings.comparison import Difference, compare_exactly, compare_states
from services.recordings.journals import events_since
from services.recordings.recording import Action
from services.testing.cloudmatrix import CloudMatrix
from services.testing.virtual_time import run_in_virtual_time

LATENESS_S_MAX = 600.0
"""How much later than in the recording of real processes an event may occur here; emulated seconds. The order in which
leases and periods expire differs, and a recording ends whenever it is stopped."""
POLL_PERIOD_S = 10.0


async def replay(file: Path) -> Difference | None:
    """Replay in a loop with virtual time and return the first difference, or None. The recorded time scale is used,
    because leases have floors in wall time.

    Raises InvalidField, UnknownSnapshot.
    """
    recorded = recordings.read_recording(file)
    about = recorded.about
    async with CloudMatrix(seed=about.seed or 1, time_scale=about.time_scale, snapshot=file) as world:
        for action in recorded.actions:
            if not about.exact:
                await world.recorder.sleep(max(0.0, action.at_s - world.recorder.now_s()))
            await _repeat(world, action)
        if about.exact:
            return compare_exactly(recorded.events, events_since(world.stack.folder, world.recorder.since))
        await world.recorder.sleep(max(0.0, about.length_s - world.recorder.now_s()))
        while True:
            found = compare_states(recorded.events, events_since(world.stack.folder, world.recorder.since))
            if found is None or found.replayed is not None or world.recorder.now_s() > about.length_s + LATENESS_S_MAX:
                return found
            await world.recorder.sleep(POLL_PERIOD_S)


async def _repeat(world: CloudMatrix, action: Action) -> httpx.Response | None:
    if action.sleep_s is not None:
        await world.recorder.sleep(action.sleep_s)
        return None
    client = world.kubernetes_http if action.service == "kube" else world.http[action.service]
    return await client.request(
        action.method, action.path, headers=action.headers, content=action.body.encode("latin-1")
    )


def replay_synchronously(file: Path) -> Difference | None:
    """`replay` for a caller without an event loop."""
    found: Difference | None = run_in_virtual_time(lambda: replay(file))
    return found
