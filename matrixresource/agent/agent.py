"""ResourceAgent: MatrixResource's software on one node's Qingtian card.

It holds the newest spec for its node, works towards it stage by stage, reports its progress, and keeps its memory
across restarts. It refuses a spec older than the one it holds: that fences a node that was given up while nobody could
reach it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from matrixcommon.emulation.stages import Stage, Stages, load_stages
from matrixcommon.model.clock import Clock, Seconds, resolve_seconds
from matrixcommon.model.errors import StaleGeneration
from matrixcommon.telemetry.trace import record_span
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.agent.partitions import Partitions
from matrixresource.contract.agents import AssignmentView, NodeReport, ReportAnswer, ReportedFault
from matrixresource.contract.nodes import IN_PLACE, NodeInventory, NodeTask, Power

STATUS_BY_ROLE = {"Clean": "Clean", "Spare": "Spare", "Member": "Active"}
"""The status that fulfils a spec with this role."""
PERSISTED_ATTRIBUTES = (
    "epoch", "status", "holds", "desired_role", "desired_power", "allocation", "generation", "deployed", "task",
    "task_generation", "done_generation", "firmware", "failed", "message",
)  # fmt: skip
"""The attributes that the card remembers, besides the parts."""


def target_status(desired_role: str, power: Power) -> str:
    """The status that fulfils a spec, for a node that is to be on or off."""
    return "Off" if power == "Off" and desired_role != "Clean" else STATUS_BY_ROLE[desired_role]


@dataclass(frozen=True)
class AgentTask:
    """One piece of work: its name in the stages file, and the status and holder that it ends with."""

    name: str
    final_status: str
    allocation: str | None


def next_task(
    status: str,
    holds: str | None,
    desired_role: str,
    allocation: str | None,
    deployed: bool = False,
    power: Power = "On",
    task: NodeTask | None = None,
) -> AgentTask | None:
    """The work that brings a node closer to the spec; None if it is fulfilled. A pure decision.

    `status` and `holds`: the node's status, and whose work is on it; `deployed`: whether a complete image is on its
    disk, so that after a loss of power it only has to boot and join; `task`: to be done once, when the node is clean
    or, for an in-place repair, while it serves. A node that changes hands is cleaned first.
    """
    if task in IN_PLACE:
        if (desired_role, power, status) == ("Member", "On", "Active") and holds == allocation:
            return AgentTask(task, "Active", allocation)
    elif task is not None and desired_role == "Clean" and holds is None and status != "Cleaning":
        return AgentTask(task, "Clean", None)
    if status in ("Verifying", "Inspecting"):
        return AgentTask("enrol", "Clean", None)
    if status == target_status(desired_role, power) and holds == allocation:
        return None
    if status == "Cleaning" or desired_role == "Clean" or (status != "Clean" and holds != allocation):
        return AgentTask("clean", "Clean", None)
    if power == "Off":
        return AgentTask("shut-down", "Off", allocation)
    if desired_role == "Spare":
        used = status == "Active" or deployed
        return AgentTask("clean", "Clean", None) if used else AgentTask("prepare", "Spare", allocation)
    if status == "Spare":
        return AgentTask("promote", "Active", allocation)
    if deployed and status in ("Off", "Stopping"):
        return AgentTask("start", "Active", allocation)
    return AgentTask("rejoin" if deployed and status == "Deploying" else "deploy", "Active", allocation)


class ResourceAgent:
    """One node's agent. `changed` is called whenever a report would have something new."""

    def __init__(
        self,
        node: EmulatedNode,
        stages: Stages,
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
        lease_s: Seconds,
    ) -> None:
        self.node = node
        self._stages = stages
        self._clock = clock
        self._random = random
        self._changed = changed
        self._lease_s = lease_s
        self._assignment_changed = asyncio.Event()
        self.epoch = 1
        self.sequence = 0
        self.status = "Verifying"
        self.stage: str | None = None
        self.holds: str | None = None
        self.desired_role = "Clean"
        self.desired_power: Power = "On"
        self.allocation: str | None = None
        self.generation = 0
        self.deployed = False
        self.task: NodeTask | None = None
        self.task_generation = self.done_generation = 0
        """The generations of its present task and of the last one that it finished."""
        self.firmware: str | None = None
        """The version that the task `update` writes."""
        self.failed: tuple[int, str] | None = None
        """The generation whose work failed, and the stage."""
        self.message = ""
        self._traceparent: str | None = None
        self._requested_ns = 0
        """The trace in which the current spec was requested, and when it arrived (ns, wall clock)."""
        self._reported_inventory: NodeInventory | None = None
        self._reported_ports: Mapping[str, str | None] = {}
        self.parts = Partitions(stages, clock, random, changed, lambda: self.enrolled, lambda: node.dies)

    @property
    def enrolled(self) -> bool:
        """Whether the node has proved its identity and its parts; before that nothing is deployed on it."""
        return self.status not in ("Verifying", "Inspecting")

    # -- orders --------------------------------------------------------------------------------------------------

    def ensure(self, assignment: AssignmentView) -> None:
        """Accept a spec. Raises StaleGeneration if it is older than the current one; the same one again changes
        nothing."""
        if assignment.generation < self.generation:
            raise StaleGeneration(f"{self.node.name} holds generation {self.generation}, not {assignment.generation}")
        if assignment.generation == self.generation:
            return
        self.generation = assignment.generation
        self.desired_role, self.desired_power = assignment.desired_role, assignment.power
        self.allocation = assignment.allocation
        self.task, self.task_generation = assignment.task, assignment.task_generation
        self.firmware = assignment.firmware
        self._traceparent, self._requested_ns = assignment.traceparent, time.time_ns()
        self.parts.ensure(assignment.parts)
        self._assignment_changed.set()
        self._changed()

    def _next_task(self) -> AgentTask | None:
        if self.status == "Failed" and self.failed is not None and self.failed[0] == self.generation:
            return None  # until something else is requested
        task = self.task if self.task_generation > self.done_generation else None
        wanted, power = self.desired_role, self.desired_power
        return next_task(self.status, self.holds, wanted, self.allocation, self.deployed, power, task)

    @property
    def reported_status(self) -> str:
        """The status to report: pending work counts as begun, so that no report shows the old state for the new
        spec."""
        work = self._next_task()
        return self.status if work is None or self.stage is not None else self._stages[work.name][0].status

    # -- work ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work towards the newest spec forever. Ends only by cancellation: loss of power, or end of the process."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_whole_node())
            group.create_task(self.parts.run())

    async def _run_whole_node(self) -> None:
        """Work on the node as a whole; its parts run concurrently."""
        while True:
            self._assignment_changed.clear()
            work = self._next_task()
            if work is None:
                await self._assignment_changed.wait()
            else:
                await self._perform(work)

    async def _perform(self, work: AgentTask) -> None:
        if work.allocation is not None:
            self.holds = work.allocation
        task_generation = self.task_generation if work.name == self.task else self.done_generation
        firmware = self.firmware
        for stage in self._stages[work.name]:
            self.status, self.stage, self.message = stage.status, stage.stage, stage.message
            self._changed()
            error = await self._run_stage(stage)
            if self._assignment_changed.is_set() and work.name != "clean" and self._is_superseded(work):
                self.stage, self.message = None, ""
                return
            if error is not None:
                self.status, self.stage, self.message = "Failed", None, error[:300]
                self.failed = self.generation, stage.stage
                self.done_generation = task_generation
                self._changed()
                return
        if work.name in IN_PLACE:
            self.node.on_repaired(
                work.name
            )  # if this cannot be recorded now, the repair does not count and is repeated
        self.status, self.stage, self.message, self.holds = work.final_status, None, "", work.allocation
        self.done_generation = task_generation
        if work.name == "inspect":
            self._reported_inventory, self._reported_ports = None, {}
        elif work.name == "update" and firmware is not None:
            self.node.flash(firmware)
        self.deployed = work.final_status == "Active" or (work.final_status == "Off" and self.deployed)
        self.parts.wake()
        name = f"agent {work.name}"
        record_span(self._traceparent, name, self._requested_ns, node=self.node.name, status=self.status)
        self._traceparent = None
        self._changed()

    async def _run_stage(self, stage: Stage) -> str | None:
        """Run a stage, retrying while it has attempts left. Return why it failed for good, or None."""
        for attempt in range(1, stage.attempts + 1):
            await self._clock.sleep(stage.takes_s(self._random) * self.node.slowdown)
            failure = self.node.failing.get(stage.stage)
            if not stage.fails(self._random) and failure is None:
                return None
            self.message = f"{failure or stage.why} (attempt {attempt} of {stage.attempts})"
            self._changed()
        return self.message

    def _is_superseded(self, work: AgentTask) -> bool:
        """Whether the newest spec makes this work pointless; checked between stages, as on a real machine."""
        return (target_status(self.desired_role, self.desired_power), self.allocation) != (
            work.final_status,
            work.allocation,
        )

    def power_lost(self) -> None:
        """Lose what was in memory, but not the disk. When power returns, a deployed node has to boot and join."""
        self.stage = None
        self.parts.power_lost()
        if self.status in ("Active", "Spare", "Deploying", "Preparing"):
            self.status = "Deploying" if self.status in ("Active", "Deploying") else "Preparing"
        elif self.status == "Stopping":
            self.status = "Off"

    # -- reports and memory --------------------------------------------------------------------------------------

    def report(self) -> NodeReport:
        """The agent's report on its node now; each call is the next in sequence."""
        self.sequence += 1
        found, known = self.node.inventory, self._reported_inventory
        peers, reported = self.node.peers, self._reported_ports
        changed_ports: dict[str, str | None] = {}
        if peers is reported or peers == reported:
            self._reported_ports = peers  # hundreds of ports, usually the same object as last time
        else:
            changed_ports = {p: peer for p, peer in peers.items() if p not in reported or reported[p] != peer}
            # Until the answer arrives, it is unknown whether this was accepted: such a port is reported again next
            # time.
            self._reported_ports = {p: peer for p, peer in reported.items() if p not in changed_ports}
        if not (unchanged := found is known or found == known):
            self._reported_inventory = None
        return NodeReport(
            node=self.node.name,
            epoch=self.epoch,
            sequence=self.sequence,
            lease_s=resolve_seconds(self._lease_s),
            power="Off" if self.status == "Off" else "On",
            status=self.reported_status,
            generation=self.generation,
            allocation=self.holds,
            stage=self.failed[1] if self.status == "Failed" and self.failed else self.stage,
            message=self.message,
            parts=self.parts.reports(),
            inventory=None if unchanged else found,
            ports=changed_ports or None,
            faults=[
                ReportedFault.model_validate(
                    {"code": code, "component": component, "severity": self.node.severities.get((code, component))}
                )
                for code, component in self.node.codes
            ],
        )

    def handle_reply(self, report: NodeReport, answer: ReportAnswer) -> None:
        """Record what MatrixResource knows, according to its answer. Raises StaleGeneration for a spec that came too
        late."""
        if not answer.accepted:
            return
        if report.ports:
            self._reported_ports = {**self._reported_ports, **report.ports}
        if report.inventory is not None:
            self._reported_inventory = report.inventory
        elif answer.inventory_wanted:
            self._reported_inventory, self._reported_ports = None, {}
            self._changed()
        if answer.desired is not None and answer.desired.generation > self.generation:
            self.ensure(answer.desired)

    def memory(self) -> dict[str, Any]:
        """What the agent keeps on its card across restarts."""
        return {key: getattr(self, key) for key in PERSISTED_ATTRIBUTES} | {
            "parts": self.parts.memory(),
            "installed": self.node.firmware,
        }

    def restore(self, memory: dict[str, Any]) -> None:
        """Start again where the last run ended: with the next epoch, and work in progress from its first stage."""
        for key in PERSISTED_ATTRIBUTES:
            setattr(self, key, memory.get(key, getattr(self, key)))
        if (installed := memory.get("installed", self.node.firmware)) != self.node.firmware:
            self.node.flash(installed)
        self.epoch += 1
        self.sequence = 0
        self.stage = None
        self.message = self.message if self.status == "Failed" else ""
        self._reported_inventory, self._reported_ports = None, {}
        self.parts.restore(memory["parts"])


def node_stages(path: Path | None = None) -> Stages:
    """How long a node agent's work takes: the built-in file, with the entries of `path` replacing it."""
    return load_stages("matrixresource.agent", "node_stages.yaml", path)
