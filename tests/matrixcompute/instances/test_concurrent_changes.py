"""Two replicas are asked for changes of one instance at once: neither undoes the other's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from matrixcompute.store.store import ComputeStore, InstanceRow
from tests.small_stack import SmallStack

pytestmark = pytest.mark.looptime


class ConcurrentReplica:
    """ConcurrentReplica replica, which writes right before the next transaction of this one begins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed = False
        begin = ComputeStore.transaction

        @contextlib.contextmanager
        def transaction(store: ComputeStore, *args: Any, **more: Any) -> Iterator[Any]:
            if self.armed:
                self.armed = False
                with begin(store) as session:
                    row = session.get_one(InstanceRow, "one")
                    row.spec, row.generation = {**row.spec, "priority": 7}, row.generation + 1
            with begin(store, *args, **more) as session:
                yield session

        monkeypatch.setattr(ComputeStore, "transaction", transaction)


@pytest.mark.parametrize(
    ("path", "body", "changed"),
    [
        ("one:stop", None, {"power": "Off"}),
        ("one:resize?nodes=3", None, {"nodes": 3}),
        ("one:move", {"policy": "spread"}, {"placement": {"policy": "spread"}}),
    ],
)
async def test_changes_through_another_replica_are_kept(tmp_path, monkeypatch, path, body, changed):
    async with SmallStack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        replica = ConcurrentReplica(monkeypatch)
        replica.armed = True
        answer = await stack.http["compute"].post(f"/v1/instances/{path}", json=body)
        assert answer.status_code == 202, answer.text
        assert not replica.armed, "it has written"
        view = answer.json()
        assert view["priority"] == 7
        for field, value in changed.items():
            assert view[field] == value or view[field].items() >= value.items()
