"""A recording in virtual time is replayed to the last event, and a difference is shown where it begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.recordings import recording as recordings
from services.recordings.comparison import compare_exactly, compare_states, first_divergence
from services.recordings.recording import Event, Recording
from services.snapshots.archive import UnknownSnapshot
from services.testing import replaying
from services.testing.cloudmatrix import CloudMatrix

INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: llm}
spec: {nodes: 3, spares: 1}
"""


async def recorded(world: CloudMatrix, file: Path) -> Recording:
    """A course of events with a lost node in it."""
    await world.apply(INSTANCE)
    await world.clock.until(lambda world: world.cmi("llm").condition("Ready"), within="20m")
    fault = await world.fault("node-down", "sn0-c00-*", seed=3)
    await world.clock.advance("15m")
    await world.repair(fault)
    await world.clock.advance("90s")
    return await world.record(file)


def test_the_same_events_come_again(tmp_path: Path) -> None:
    file = tmp_path / "lost-node.recording"

    async def record() -> Recording:
        async with CloudMatrix(seed=2) as world:
            return await recorded(world, file)

    before = replaying.run_in_virtual_time(record)
    assert {event.kind for event in before.events} >= {"instance", "allocation", "slice", "node", "operation"}
    assert len(before.events) > 100
    assert replaying.replay_synchronously(file) is None

    # The same requests with another in between are another course of events, and it is said from where on.
    changed = before.model_copy(update={"events": before.events[:-1]})
    difference = compare_exactly(changed.events, before.events)
    assert difference is not None
    assert str(difference).startswith("recorded: no further event\nreplayed: ")


async def test_a_snapshot_is_no_recording(cloudmatrix: CloudMatrix, tmp_path: Path) -> None:
    await cloudmatrix.snapshot(tmp_path / "a.snapshot")
    with pytest.raises(UnknownSnapshot, match="is a snapshot, not a recording"):
        await asyncio.to_thread(recordings.read_recording, tmp_path / "a.snapshot")


def event(revision: int, name: str, state: str, kind: str = "instance", type: str = "MODIFIED") -> Event:
    return Event(
        service="compute",
        revision=revision,
        kind=kind,
        name=name,
        type=type,
        body=f'{{"state":"{state}","n":{revision}}}',
    )


def test_by_object_leaves_out_moments_and_order_between_objects() -> None:
    before = [event(1, "a", "Pending"), event(2, "b", "Pending"), event(3, "a", "Active"), event(4, "b", "Active")]
    now = [event(1, "b", "Pending"), event(2, "b", "Active"), event(3, "a", "Pending"), event(9, "a", "Active")]
    assert compare_states(before, now) is None
    assert compare_exactly(before, now) is not None
    now[2] = event(3, "a", "Failed")
    assert (
        str(compare_states(before, now))
        == "recorded: instance a, state 1: Pending\nreplayed: instance a, state 1: Failed"
    )
    gone = [*before, event(5, "b", "Active", type="DELETED")]
    assert str(compare_states(gone, before)) == "recorded: instance b, state 3: (gone)\nreplayed: no further event"


def test_what_has_come_so_far_contradicts_only_where_it_goes_another_way() -> None:
    recorded = [event(1, "a", "Pending"), event(2, "b", "Pending"), event(3, "a", "Active")]
    assert first_divergence(recorded, []) is None
    assert first_divergence(recorded, [event(5, "b", "Pending"), event(6, "a", "Pending")]) is None, "more may come"
    found = first_divergence(recorded, [event(5, "b", "Pending"), event(6, "a", "Failed")])
    assert str(found) == "recorded: instance a, state 1: Pending\nreplayed: instance a, state 1: Failed"
    more = [event(5, "b", "Pending"), event(6, "b", "Active")]
    assert str(first_divergence(recorded, more)) == "recorded: no further event\nreplayed: instance b, state 2: Active"


def test_a_difference_names_the_fields() -> None:
    assert str(compare_exactly([event(1, "a", "Active")], [event(1, "a", "Failed")])) == (
        'recorded: compute 1: MODIFIED instance a {"state": "Active"}\n'
        'replayed: compute 1: MODIFIED instance a {"state": "Failed"}'
    )
