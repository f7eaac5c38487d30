"""Starts the emulated nodes: `python -m services.node_agent --help`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastapi import APIRouter, FastAPI
from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import NodeName
from matrixlink.agent import link_stages
from matrixlink.client import LinkClient
from matrixlink.fabric.condition.fabric import Fabric
from matrixresource.agent.agent import node_stages
from matrixresource.client import ResourceClient
from matrixresource.topology.loading import load_spec
from matrixresource.topology.supernode import Supernode
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.http import http_client
from services.chassis.http_server.serving import serve
from services.chassis.logging import configure_logging
from services.chassis.periodic import Periodic, follow
from services.chassis.settings import Settings
from services.chassis.tracing import configure_tracing
from services.node_agent.access import ACCESS
from services.node_agent.agents.agent_channels import LEASE_S, link_agents, resource_agents
from services.node_agent.api.faults import fault_routes
from services.node_agent.api.hardware import hardware_routes
from services.node_agent.api.process_faults import process_fault_routes
from services.node_agent.api.traffic import traffic_routes
from services.node_agent.channels.report_pace import LEASE_PERIODS
from services.node_agent.fleet.fleet import HEARTBEAT_S, Fleet
from services.node_agent.fleet.store import FleetStore
from services.node_agent.fleet.wiring import RackWiring
from services.process_faults.executor import ProcessExecutor
from services.recordings.write_log import RecordingMiddleware

WIRING_PERIOD_S = 10.0


class AgentSettings(Settings):
    """The emulated nodes of the supernodes, with a resource agent and a link agent on each."""

    EVENT_LOOP = "asyncio"

    supernodes: int = Field(1, ge=1, le=8, description="supernodes to emulate")
    spec: Path | None = Field(
        None,
        description="YAML file with the numbers of a supernode, or the name of a built-in machine; by default "
        "CloudMatrix384",
    )
    stages: Path | None = Field(None, description="YAML file with stages of node work that replaces the built-in one")
    link_stages: Path | None = Field(None, description="the same for the programming of routes")
    heartbeat: float = Field(
        HEARTBEAT_S, ge=0.1, le=600, description="emulated seconds between reports of a node without changes"
    )
    lease: float = Field(
        LEASE_S,
        ge=0.3,
        le=3600,
        description="lease of a report in emulated seconds, at least three heartbeats; an agent is lost after two "
        "leases",
    )
    resource_url: str = Field("http://127.0.0.1:8401", description="URL of MatrixResource; empty: none")
    link_url: str = Field("http://127.0.0.1:8402", description="URL of MatrixLink; empty: none")

    @field_validator("lease")
    @classmethod
    def _check_outlives_lost_reports(cls, lease: float, others: ValidationInfo) -> float:
        heartbeat = others.data.get("heartbeat", HEARTBEAT_S)
        if lease < LEASE_PERIODS * heartbeat - 1e-9:
            raise ValueError(f"must be at least {LEASE_PERIODS:g} heartbeats of {heartbeat:g} s")
        return lease


def node_names(settings: AgentSettings) -> list[NodeName]:
    spec = load_spec(settings.spec)
    supernodes = [Supernode(f"sn{index}", spec) for index in range(settings.supernodes)]
    return [NodeName(name) for supernode in supernodes for name in supernode.nodes()]


def all_routes(fleet: Fleet, state: Path) -> list[APIRouter]:
    """All routes. `state`: the state folder; if it is a stack's, its services can be given faults."""
    return [
        hardware_routes(fleet),
        fault_routes(fleet),
        traffic_routes(fleet),
        process_fault_routes(ProcessExecutor(state, "agents")),
    ]


def build(fleet: Fleet, settings: AgentSettings) -> FastAPI:
    """The application for a fleet with its agents."""
    return create_app(
        "agents",
        "Emulated nodes",
        all_routes(fleet, settings.state),
        ACCESS,
        tokens=Tokens(settings.tokens),
        tasks=fleet.tasks(),
        ready=fleet.waiting_for,
        fences=fleet.fences,
    )


def build_fleet(
    settings: AgentSettings,
    clock: Clock,
    store: FleetStore,
    resource: ResourceClient | None,
    link: LinkClient | None,
) -> Fleet:
    """All nodes with both agents on each. The agents of a service that is None do not report, and readiness does not
    wait for it."""
    fleet = Fleet(node_names(settings), store, clock, settings.seed, load_spec(settings.spec), settings.heartbeat)
    resource_agents(fleet, resource, node_stages(settings.stages), settings.lease)
    built = Fabric([Supernode("sn0", load_spec(settings.spec))]).built
    link_agents(fleet, link, link_stages(settings.link_stages), built, settings.lease)
    if resource is None:
        return fleet
    wiring = RackWiring(fleet, resource)
    wiring_watcher = Periodic("wiring", wiring.reconcile, clock, period_s=WIRING_PERIOD_S)
    wiring.newest.changed = wiring_watcher.nudge
    versions = partial(follow, partial(resource.watch, "topology-versions"), wiring.newest.handle_event)
    fleet.background += [wiring_watcher.run, versions]
    return fleet


def main(argv: Sequence[str] | None = None) -> None:
    settings = AgentSettings.load("agents", argv)
    configure_logging("agents", settings.log_level)
    configure_tracing("agents")
    resource = ResourceClient(http_client(settings.resource_url, settings.token)) if settings.resource_url else None
    link = LinkClient(http_client(settings.link_url, settings.token)) if settings.link_url else None
    with settings.reporting_invalid_settings("agents"):
        store = FleetStore(settings.state / "agents.db")
        clock = settings.clock()
        app = build(build_fleet(settings, clock, store, resource, link), settings)
    serve(RecordingMiddleware(app, settings.state, "agents"), settings, clock)
