"""The two channels between agents and services: resource agents to MatrixResource, link agents to MatrixLink."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from matrixcommon.emulation.stages import Stages
from matrixcommon.model.clock import Seconds, with_wall_floor
from matrixlink.agent import AgentProbing, LinkAgent
from matrixlink.client import LinkClient
from matrixlink.contract.link_reports import LinkReport, LinkReportAnswer
from matrixlink.contract.programs import ProgramView
from matrixlink.probing.plan import ROUND_FLOOR_WALL_S, ROUND_S, probe_plan
from matrixresource.agent.agent import ResourceAgent
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.client import ResourceClient
from matrixresource.contract.agents import LOST_AFTER_LEASES, AssignmentView
from services.node_agent.channels.agent_gateway import Channel
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.network.probe_network import EmulatedProbeTransport

LEASE_S, LEASE_FLOOR_WALL_S = 30.0, 2.0
"""A lease of 30 s (the incumbent's HCCL heartbeat is lost at 30 s: Ascend/mind-cluster documentation), in wall time
never below the floor, unless the setting is shorter."""


def resource_agents(fleet: Fleet, client: ResourceClient | None, stages: Stages, lease_s: float = LEASE_S) -> None:
    """Put a resource agent on every node and connect them to MatrixResource, if there is one."""
    lease = _lease(fleet, lease_s)
    fleet.add_agents(
        "resource", lambda node, random, changed: ResourceAgent(node, stages, fleet.clock, random, changed, lease)
    )
    if client is not None:
        channel = ("assignments", AssignmentView, "name", ResourceAgent.handle_reply)
        fleet.connect(Channel("resource", client, *channel, leases_until_lost=LOST_AFTER_LEASES))


def link_agents(
    fleet: Fleet, client: LinkClient | None, stages: Stages, built_gbps: dict[str, float], lease_s: float = LEASE_S
) -> None:
    """Put a link agent on every node, wire the nodes together, and connect the agents to MatrixLink, if there is one.
    `built_gbps`: the full rate of each port, by name."""
    lease = _lease(fleet, lease_s)

    def round_period_s(now: float) -> float:
        return fleet.clock.periods(ROUND_S, ROUND_FLOOR_WALL_S)

    probe_transport = EmulatedProbeTransport(fleet.nodes, fleet.spec)

    def agent(node: EmulatedNode, random: Random, changed: Callable[[], None]) -> LinkAgent:
        probing = AgentProbing(str(node.name), lambda: probe_plan(node.supernode), probe_transport, round_period_s)
        return LinkAgent(node, built_gbps, stages, fleet.clock, random, changed, lease, probing, fleet.traffic)

    fleet.add_agents("link", agent)
    if client is not None:
        fleet.connect(Channel("link", client, "programs", ProgramView, "node", _handle_answer, "lease_seconds"))


def _lease(fleet: Fleet, lease_s: float) -> Seconds:
    return lambda: with_wall_floor(fleet.clock, lease_s, LEASE_FLOOR_WALL_S)


def _handle_answer(agent: LinkAgent, report: LinkReport, answer: LinkReportAnswer) -> None:
    agent.apply_answer(answer.desired)
