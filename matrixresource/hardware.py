"""The emulated hardware of one node: what faults act on and what agents see.

The control plane never looks here. A fault changes the hardware; what the node's agents notice of it, they report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.names import NodeName
from matrixresource.vocabulary.wire import Wire

FaultKind = Literal["node-down", "agent-hang", "npu-fault", "component-fault", "link-down", "link-degraded"]

FAULT_KINDS: dict[str, str] = {
    "node-down": "the node loses power; its agents fall silent and its work is gone",
    "agent-hang": "the agents on the Qingtian card fall silent; the node itself goes on",
    "npu-fault": "an NPU raises a fault code (parameters: npu 0-7, code, default 220001001)",
    "component-fault": "a component raises a fault code (parameters: component, code)",
    "link-down": "a port carries nothing (parameters: port, e.g. ub-p3-k11, npu5-die1-p2, rdma-npu5-die0, vpc)",
    "link-degraded": "a port carries a share of its rate (parameters: port, share between 0 and 1)",
}


class InjectedFault(Wire):
    """A fault put on one node's hardware by name."""

    name: str
    kind: FaultKind
    target: NodeName
    parameters: dict[str, Any] = Field(default_factory=dict)


@dataclass
class EmulatedNode:
    """One node: powered or not, its agents running or not, the fault codes it raises, the ports below full rate."""

    name: NodeName
    powered: bool = True
    agents_run: bool = True
    codes: list[tuple[str, str]] = field(default_factory=list)
    """Fault codes raised, each with its component."""
    ports: dict[str, float] = field(default_factory=dict)
    """Share of its full rate that a port has left, for ports below 1.0."""
    power_cycles: int = 0

    @property
    def responsive(self) -> bool:
        """Whether its agents can report and take orders."""
        return self.powered and self.agents_run

    @property
    def dies(self) -> frozenset[int]:
        """The dies it has, by number within the node: 2k and 2k+1 are NPU k."""
        return frozenset(range(SupernodeSpec.load().node.dies))

    def suffer(self, faults: list[InjectedFault]) -> None:
        """Take on exactly the state these faults leave; what is no longer among them is mended."""
        mine = [fault for fault in faults if fault.target == self.name]
        powered = not any(fault.kind == "node-down" for fault in mine)
        if self.powered and not powered:
            self.power_cycles += 1
        self.powered = powered
        self.agents_run = not any(fault.kind == "agent-hang" for fault in mine)
        self.codes = [_code(fault) for fault in mine if fault.kind in ("npu-fault", "component-fault")]
        self.ports = {}
        for fault in mine:
            if fault.kind in ("link-down", "link-degraded"):
                share = 0.0 if fault.kind == "link-down" else float(fault.parameters["share"])
                port = str(fault.parameters["port"])
                self.ports[port] = min(share, self.ports.get(port, 1.0))


def _code(fault: InjectedFault) -> tuple[str, str]:
    code = str(fault.parameters.get("code", "220001001"))
    if fault.kind == "npu-fault":
        return code, f"npu{int(fault.parameters.get('npu', 0))}"
    return code, str(fault.parameters.get("component", "node"))
