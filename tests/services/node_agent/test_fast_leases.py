"""A heartbeat and a lease that are asked for are had, also below the floors that fast emulated time has."""

from __future__ import annotations

from pathlib import Path

from matrixcommon.model.hardware_names import NodeName
from matrixlink.client import LinkClient
from matrixresource.client import ResourceClient
from services.chassis.http import http_client
from services.node_agent.fleet.store import FleetStore
from services.node_agent.main import AgentSettings, build_fleet


def test_a_lease_that_is_asked_for_is_reported(tmp_path: Path) -> None:
    nobody = http_client("http://nobody")
    settings = AgentSettings(state=tmp_path, heartbeat=0.1, lease=0.3)
    fleet = build_fleet(settings, settings.clock(), FleetStore(None), ResourceClient(nobody), LinkClient(nobody))
    agent = fleet.agent("resource", NodeName("sn0-c00-n0"))
    assert agent.report().lease_s == 0.3
