"""The emulated nodes in a part of a stack: who is not there is not waited for, and nobody reports to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixlink.client import LinkClient
from matrixresource.client import ResourceClient
from services.chassis.http import http_client
from services.node_agent.fleet.store import FleetStore
from services.node_agent.main import AgentSettings, build_fleet


@pytest.mark.parametrize(
    ("there", "waits"),
    [
        (("resource", "link"), "the first reports of its nodes to link and resource"),
        (("resource",), "the first reports of its nodes to resource"),
        (("link",), "the first reports of its nodes to link"),
        ((), None),
    ],
)
def test_the_nodes_wait_for_the_services_that_there_are(
    there: tuple[str, ...], waits: str | None, tmp_path: Path
) -> None:
    """`matrixctl up --only resource,agents` gives them no address of the others."""
    nobody = http_client("http://nobody")
    settings = AgentSettings(state=tmp_path)
    resource = ResourceClient(nobody) if "resource" in there else None
    link = LinkClient(nobody) if "link" in there else None
    fleet = build_fleet(settings, settings.clock(), FleetStore(None), resource, link)
    assert fleet.waiting_for() == waits
    assert fleet.agent("resource", "sn0-c00-n0") is not None
    assert fleet.agent("link", "sn0-c00-n0") is not None
