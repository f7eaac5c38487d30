"""The two lines between agents and their services: whose reports go where, and whose specs come from there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from random import Random

from matrixcommon.api.client import WatchEvent
from matrixcommon.emulation.stages import Stages
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixlink.agent import AgentProbing, LinkAgent
from matrixlink.client import LinkClient
from matrixlink.contract.slices import ProgramView
from matrixlink.probing.plan import ROUND_FLOOR_WALL_S, ROUND_S, probe_plan
from matrixresource.agent.agent import ResourceAgent
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.client import ResourceClient
from matrixresource.contract.agents import AssignmentView, NodeReport, ReportAnswer
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.network.probe_network import EmulatedWires

log = logging.getLogger(__name__)

LEASE_S, LEASE_FLOOR_WALL_S = 30.0, 2.0
"""A lease of 30 s (the incumbent's HCCL heartbeat is lost at 30 s: Ascend/mind-cluster documentation); in wall time
never below the floor."""

REPORTS_A_CALL = 48
"""A report that tells an inventory and all ports takes 14 KB; a body may have 1 MiB."""


class ResourceLine:
    """The line between resource agents and MatrixResource."""

    name = "resource"

    def __init__(self, fleet: Fleet, client: ResourceClient) -> None:
        self._fleet = fleet
        self._client = client

    async def send(self, nodes: list[str]) -> None:
        for start in range(0, len(nodes), REPORTS_A_CALL):
            there = (self._fleet.agent("resource", node) for node in nodes[start : start + REPORTS_A_CALL])
            agents: list[ResourceAgent] = [agent for agent in there if agent is not None]
            reports = [agent.report() for agent in agents]
            for agent, report, answer in zip(agents, reports, await self._client.report(reports), strict=True):
                if not answer.accepted:
                    log.warning("report refused", extra={"node": answer.node, "reason": answer.reason})
                elif agent.node.responsive:
                    self._answered(agent, report, answer)

    def _answered(self, agent: ResourceAgent, report: NodeReport, answer: ReportAnswer) -> None:
        try:
            agent.handle_reply(report, answer)
        except MatrixError as refused:
            log.warning("spec refused", extra={"node": answer.node, "why": refused.message})

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return self._client.watch("assignments", since)

    async def take_up(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            self._ensure(AssignmentView.model_validate(event.view))

    def _ensure(self, request: AssignmentView) -> None:
        agent = self._fleet.agent("resource", request.name)
        if agent is None or not agent.node.responsive:
            return
        try:
            agent.ensure(request)
        except MatrixError as refused:
            log.warning("spec refused", extra={"node": request.name, "why": refused.message})


def resource_agents(fleet: Fleet, client: ResourceClient, stages: Stages) -> None:
    """Put a resource agent on every node and join them to MatrixResource."""
    lease_s = fleet.clock.at_least_wall(LEASE_S, LEASE_FLOOR_WALL_S)
    fleet.add_agents(
        "resource", lambda node, random, changed: ResourceAgent(node, stages, fleet.clock, random, changed, lease_s)
    )
    fleet.connect("resource", ResourceLine(fleet, client))


class LinkLine:
    """The line between link agents and MatrixLink."""

    name = "link"

    def __init__(self, fleet: Fleet, client: LinkClient) -> None:
        self._fleet = fleet
        self._client = client

    async def send(self, nodes: list[str]) -> None:
        for start in range(0, len(nodes), REPORTS_A_CALL):
            await self._send_some(nodes[start : start + REPORTS_A_CALL])

    async def _send_some(self, nodes: list[str]) -> None:
        there = ((node, self._fleet.agent("link", node)) for node in nodes)
        agents: dict[str, LinkAgent] = {node: agent for node, agent in there if agent is not None}
        answers = await self._client.report([agent.report() for agent in agents.values()])
        for answer in answers:
            if not answer.accepted:
                log.warning("report refused", extra={"node": answer.node, "reason": answer.reason})
            elif self._responsive(answer.node):
                agents[answer.node].take_answer(answer.desired)

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return self._client.watch("programs", since)

    async def take_up(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            return  # the answer to the next report says what is no longer requested
        program = ProgramView.model_validate(event.view)
        agent = self._fleet.agent("link", program.node)
        if agent is None or not self._responsive(program.node):
            return
        try:
            agent.ensure(program)
        except MatrixError as refused:
            log.warning("spec refused", extra={"node": program.node, "why": refused.message})

    def _responsive(self, name: str) -> bool:
        node = self._fleet.nodes.get(NodeName(name))
        return node is not None and node.responsive


def link_agents(fleet: Fleet, client: LinkClient, stages: Stages, built_gbps: dict[str, float]) -> None:
    """Put a link agent on every node, wire the nodes together, and join the agents to MatrixLink. `built_gbps`: a
    port's full rate, by its name."""
    lease_s = fleet.clock.at_least_wall(LEASE_S, LEASE_FLOOR_WALL_S)
    round_s = fleet.clock.at_least_wall(ROUND_S, ROUND_FLOOR_WALL_S)
    wires = EmulatedWires(fleet.nodes, fleet.spec)

    def agent(node: EmulatedNode, random: Random, changed: Callable[[], None]) -> LinkAgent:
        probing = AgentProbing(str(node.name), lambda: probe_plan(node.supernode), wires, round_s)
        return LinkAgent(node, built_gbps, stages, fleet.clock, random, changed, lease_s, probing, fleet.traffic)

    fleet.add_agents("link", agent)
    fleet.connect("link", LinkLine(fleet, client))
