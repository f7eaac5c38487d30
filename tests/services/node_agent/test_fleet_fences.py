"""The emulated hardware obeys no leader older than the newest it has heard, also after its process was restarted."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import StaleLeader
from matrixcommon.model.fencing import REQUEST_FENCE, Fence
from services.node_agent.fleet.fences import FleetFences
from services.node_agent.fleet.store import FleetStore


def test_older_leader_is_refused_after_a_restart(tmp_path: Path) -> None:
    FleetFences(FleetStore(tmp_path / "agents.db")).record_leader(Fence("operator-a", 2))
    restarted = FleetFences(FleetStore(tmp_path / "agents.db"))
    with pytest.raises(StaleLeader):
        restarted.record_leader(Fence("operator-a", 1))
    restarted.record_leader(Fence("operator-a", 2))
    restarted.record_leader(Fence("operator-b", 1))


def test_request_of_an_older_leader_is_refused_while_it_is_being_read() -> None:
    fences = FleetFences(FleetStore(None))
    fences.record_leader(Fence("operator-a", 1))
    REQUEST_FENCE.set(Fence("operator-a", 1))
    fences.check()
    fences.record_leader(Fence("operator-a", 2))
    with pytest.raises(StaleLeader):
        fences.check()
    REQUEST_FENCE.set(None)
    fences.check()
