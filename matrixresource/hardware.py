"""The emulated hardware of one node: what faults act on and what agents see.

The control plane never looks here. A fault changes the hardware; what the node's agents notice of it, they report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from matrixresource.contract import NodeInventory
from matrixresource.sku import inventory
from matrixresource.topology.deviations import as_built
from matrixresource.topology.layout import Layout
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.names import NodeName
from matrixresource.vocabulary.wire import Wire

FaultKind = Literal[
    "node-down",
    "agent-hang",
    "npu-fault",
    "component-fault",
    "missing-part",
    "link-down",
    "link-degraded",
    "cable-moved",
]

FAULT_KINDS: dict[str, str] = {
    "node-down": "the node loses power; its agents fall silent and its work is gone",
    "agent-hang": "the agents on the Qingtian card fall silent; the node itself goes on",
    "npu-fault": "an NPU or a die of it raises a fault code (parameters: npu 0-7, die 0 or 1, code, default 220001001)",
    "component-fault": "a component raises a fault code (parameters: component, code, severity from hint to critical)",
    "missing-part": "the node lacks a part (parameters: part, e.g. npu5, npu5-die1, cpu3, dimm7, vpc)",
    "link-down": "a port carries nothing (parameters: port, e.g. ub-p3-k11, npu5-die1-p2, rdma-npu5-die0, vpc)",
    "link-degraded": "a port carries a share of its rate (parameters: port, share between 0 and 1)",
    "cable-moved": "a port's cable is plugged in elsewhere (parameters: port, peer, e.g. sn0-l2p3-k12)",
}

UPLINK_DOWN, UPLINK_NARROW, ROCE_DOWN = "0x08520003/L2", "0x00f10509/L2", "81078603"
"""What the incumbent's chips raise (sources in `fault_levels.yaml`)."""

FIRMWARE = "emulated-1"


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
    severities: dict[tuple[str, str], str] = field(default_factory=dict)
    """How severe the component calls them, for those that say."""
    ports: dict[str, float] = field(default_factory=dict)
    """Share of its full rate that a port has left, for ports below 1.0."""
    moved: dict[str, str] = field(default_factory=dict)
    """Ports whose cable leads elsewhere than it was built, and where."""
    missing: frozenset[str] = frozenset()
    """Parts it lacks, by name."""
    power_cycles: int = 0
    spec: SupernodeSpec = field(default_factory=SupernodeSpec.load)

    def __post_init__(self) -> None:
        self.inventory = self._look()
        self._built: dict[str, str | None] = dict(as_built(Layout(self.spec, self.name.supernode), self.name))

    @property
    def responsive(self) -> bool:
        """Whether its agents can report and take orders."""
        return self.powered and self.agents_run

    @property
    def dies(self) -> frozenset[int]:
        """The dies it has, by number within the node: 2k and 2k+1 are NPU k."""
        return frozenset(die for npu in self.inventory.npus for die in npu.dies)

    @property
    def peers(self) -> dict[str, str | None]:
        """Who answers at each port; None where nobody does. Of a part that is missing nothing is seen."""
        dark = {port: None for port, share in self.ports.items() if share == 0}
        return self._built | {port: peer for port, peer in (self.moved | dark).items() if port in self._built}

    def _look(self) -> NodeInventory:
        return inventory(self.spec, self.missing, serial=f"cm384-{self.name}", firmware=FIRMWARE)

    def suffer(self, faults: list[InjectedFault]) -> None:
        """Take on exactly the state these faults leave; what is no longer among them is mended."""
        mine = [fault for fault in faults if fault.target == self.name]
        powered = not any(fault.kind == "node-down" for fault in mine)
        if self.powered and not powered:
            self.power_cycles += 1
        self.powered = powered
        self.agents_run = not any(fault.kind == "agent-hang" for fault in mine)
        raised = [fault for fault in mine if fault.kind in ("npu-fault", "component-fault")]
        self.severities = {
            _code(each): str(each.parameters["severity"]) for each in raised if "severity" in each.parameters
        }
        missing = frozenset(lacking(fault) for fault in mine if fault.kind == "missing-part")
        if missing != self.missing:
            self.missing = missing
            self.inventory = self._look()
        self.moved = {
            str(each.parameters["port"]): str(each.parameters["peer"]) for each in mine if each.kind == "cable-moved"
        }
        self.ports = {}
        for fault in mine:
            if fault.kind in ("link-down", "link-degraded"):
                share = 0.0 if fault.kind == "link-down" else float(fault.parameters["share"])
                port = str(fault.parameters["port"])
                self.ports[port] = min(share, self.ports.get(port, 1.0))
        self.codes = list(dict.fromkeys([*map(_code, raised), *_port_codes(self.ports)]))


def _code(fault: InjectedFault) -> tuple[str, str]:
    code = str(fault.parameters.get("code", "220001001"))
    if fault.kind == "npu-fault":
        npu = f"npu{int(fault.parameters.get('npu', 0))}"
        return code, f"{npu}-die{int(fault.parameters['die'])}" if "die" in fault.parameters else npu
    return code, str(fault.parameters.get("component", "node"))


def lacking(fault: InjectedFault) -> str:
    """The part that a `missing-part` fault takes away; also told by a port's name or an NPU's number."""
    given = fault.parameters
    if "part" in given or "port" in given:
        return str(given.get("part", given.get("port")))
    return f"npu{given.get('npu', 0)}"


def _port_codes(ports: dict[str, float]) -> list[tuple[str, str]]:
    """What ports below their rate make their chips raise: an L1 chip for its uplinks, a die for its RDMA port."""
    codes = []
    for port, share in sorted(ports.items()):
        if port.startswith("ub-"):
            codes.append((UPLINK_DOWN if share == 0 else UPLINK_NARROW, port))
        elif port.startswith("rdma-") and share == 0:
            codes.append((ROCE_DOWN, port.removeprefix("rdma-")))
    return codes
