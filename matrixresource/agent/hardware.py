"""The emulated hardware of one node: what faults change and what agents see.

The control plane never looks here. A fault changes the hardware; the node's agents report what they notice of it.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import CabinetName, NodeName, SwitchName
from matrixcommon.model.resource_model import ApiModel
from matrixresource.agent.fault_catalogue import (
    CABINET_KINDS,
    DELAY_S,
    MESSAGE_KINDS,
    PORT_KINDS,
    SEVERITIES,
    SLOW_FACTOR,
    SWITCH_KINDS,
    TABLE_KINDS,
    FaultKind,
)
from matrixresource.contract.nodes import IN_PLACE, NodeInventory
from matrixresource.nodes.expected_inventory import build_inventory, port_names
from matrixresource.nodes.fault_levels import level_of
from matrixresource.topology.deviations import as_built
from matrixresource.topology.loading import load_spec
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.topology.supernode import Supernode

UPLINK_DOWN, UPLINK_NARROW, ROCE_DOWN = "0x08520003/L2", "0x00f10509/L2", "81078603"
"""The codes that the incumbent's chips raise (sources in `fault_levels.yaml`)."""

SLOW_NODE, HBM_ISOLATE, HBM_RESTART = "110001010", "020001001", "010001002"
"""The incumbent's public fault codes for these (same file)."""

FIRMWARE = "emulated-1"


class InjectedFault(ApiModel):
    """A fault put on one node's hardware, on a cabinet, or on a switch between nodes, by name."""

    name: str
    kind: FaultKind
    target: NodeName | SwitchName | CabinetName
    parameters: dict[str, Any] = Field(default_factory=empty_dict)


@dataclass(frozen=True)
class MessageFaults:
    """What happens to the reports of a node's agents: the shares that are lost or duplicated, and the delay of all of
    them."""

    lost: float = 0.0
    duplicated: float = 0.0
    delay_s: float = 0.0


@functools.lru_cache(maxsize=64)
def _standard_supernode(supernode: str, spec: SupernodeSpec) -> Supernode:
    """The supernode of that name wired as the spec says, shared by all its nodes."""
    return Supernode(supernode, spec)


@dataclass
class EmulatedNode:
    """One node: powered or not, its agents running or not, the fault codes it raises, its ports and switch tables."""

    name: NodeName
    powered: bool = True
    agents_run: bool = True
    codes: list[tuple[str, str]] = field(default_factory=list)
    """Fault codes raised, each with its component."""
    severities: dict[tuple[str, str], str] = field(default_factory=dict)
    """The severities of those codes whose component states one."""
    ports: dict[str, float] = field(default_factory=dict)
    """The share of its full rate that a port reports, for ports below 1.0."""
    unreported_losses: dict[str, float] = field(default_factory=dict)
    """The share that a port actually carries, where that is less than it reports."""
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The forwarding state of the node's switches, by slice. The link agent writes it; it is lost with the power."""
    moved: dict[str, str] = field(default_factory=dict)
    """Ports whose cable leads elsewhere than it was built, and where to."""
    missing: frozenset[str] = frozenset()
    """Parts it lacks, by name."""
    messages: MessageFaults | None = None
    """What happens to the agents' reports; None: they arrive."""
    slowdown: float = 1.0
    """The factor by which its work takes longer."""
    failing: dict[str, str] = field(default_factory=dict)
    """Stages of work that fail on it, and why."""
    power_cycles: int = 0
    firmware: str = FIRMWARE
    on_repaired: Callable[[str], None] = lambda repair: None
    """Called when an in-place repair is done, so that whoever injected faults can remove those that the repair ends."""
    spec: SupernodeSpec = field(default_factory=load_spec)
    racked: Supernode | None = None
    """The supernode it is wired into; by default as the spec says."""

    def __post_init__(self) -> None:
        self.inventory = self._read_inventory()
        self.rack(self.racked or _standard_supernode(self.name.supernode, self.spec))
        self._corrupted_by: frozenset[str] = frozenset()

    def rack(self, supernode: Supernode) -> None:
        """Wire the node as that supernode's graph says. Ports without a cable have no neighbour and carry nothing."""
        self.supernode = self.racked = supernode
        self._links = supernode.own_links(self.name)
        self._built_peers: dict[str, str | None] = dict(as_built(self._links))
        self.port_destinations = supernode.rewired.get(self.name, {})

    @property
    def responsive(self) -> bool:
        """Whether its agents can report and accept specs."""
        return self.powered and self.agents_run

    @property
    def dies(self) -> frozenset[int]:
        """The dies it has, by number within the node: 2k and 2k+1 are NPU k, both even where the NPU is a single
        die."""
        if self.spec.npu.dies == 1:
            return frozenset(2 * npu.npu + half for npu in self.inventory.npus for half in (0, 1))
        return frozenset(die for npu in self.inventory.npus for die in npu.dies)

    @property
    def ports_with_cables(self) -> list[str]:
        """Ports with a cable, in the order of a regular node, which may have more."""
        return [port for port in port_names(self.spec) if port in self._built_peers]

    @property
    def peers(self) -> Mapping[str, str | None]:
        """The neighbour at each port; None for a dark port. Missing parts make no difference here."""
        if not self.ports and not self.moved:
            return self._built_peers
        dark = {port: None for port, share in self.ports.items() if share == 0}
        return self._built_peers | {
            port: peer for port, peer in (self.moved | dark).items() if port in self._built_peers
        }

    def port_share(self, port: str) -> float:
        """The share of its rate that a port actually carries; 0 without power or without a cable."""
        if not self.powered or port not in self._built_peers:
            return 0.0
        return min(self.ports.get(port, 1.0), self.unreported_losses.get(port, 1.0))

    def destination_share(self, port: str) -> float:
        """The same for all ports that lead where this one does on a regular machine."""
        if not self.port_destinations:
            return self.port_share(port)
        shares = [self.port_share(port)] if self.port_destinations.get(port, port) == port else []
        return sum(
            [
                *shares,
                *(
                    self.port_share(other)
                    for other, destination in self.port_destinations.items()
                    if destination == port and other != port
                ),
            ]
        )

    @property
    def ports_healthy(self) -> bool:
        """Whether every port carries its full rate."""
        return self.powered and not self.ports and not self.unreported_losses

    def _read_inventory(self) -> NodeInventory:
        return build_inventory(self.spec, self.missing, serial=f"cm384-{self.name}", firmware=self.firmware)

    def flash(self, firmware: str) -> None:
        """Install another firmware."""
        self.firmware = firmware
        self.inventory = self._read_inventory()

    def apply_faults(self, faults: list[InjectedFault]) -> None:
        """Take on exactly the state that these faults cause; faults no longer listed are repaired."""
        mine = [fault for fault in faults if fault.target == self.name]
        powered = not any(fault.kind == "node-down" for fault in mine) and not any(
            fault.kind in CABINET_KINDS and fault.target == self.name.cabinet for fault in faults
        )
        if self.powered and not powered:
            self.power_cycles += 1
        self.powered = powered
        self.agents_run = not any(fault.kind in ("agent-hang", "vpc-card-fault") for fault in mine)
        slow = [float(each.parameters.get("factor", SLOW_FACTOR)) for each in mine if each.kind == "slow-node"]
        self.slowdown = max(slow, default=1.0)
        self.messages = _message_faults([fault for fault in mine if fault.kind in MESSAGE_KINDS])
        raised = [fault for fault in mine if fault.kind in CODE_RAISING_KINDS]
        self.severities = _severities(raised)
        missing = frozenset(missing_part(fault) for fault in mine if fault.kind == "missing-part")
        if missing != self.missing:
            self.missing = missing
            self.inventory = self._read_inventory()
        self.moved = {
            str(each.parameters["port"]): str(each.parameters["peer"]) for each in mine if each.kind == "cable-moved"
        }
        self.failing = {
            str(each.parameters["stage"]): str(each.parameters.get("why", "it fails on this node"))
            for each in mine
            if each.kind == "stage-failure"
        }
        self.ports, self.unreported_losses = {}, {}
        for fault in faults:
            for port, share in self._impaired_by(fault).items():
                current = (
                    self.unreported_losses
                    if fault.kind in ("link-silent", "link-slow", "switch-silent")
                    else self.ports
                )
                current[port] = min(share, current.get(port, 1.0))
        self._corrupt_tables([fault for fault in mine if fault.kind in TABLE_KINDS])
        self.codes = list(dict.fromkeys([*map(_code, raised), *self._port_codes()]))

    def _impaired_by(self, fault: InjectedFault) -> dict[str, float]:
        """The ports of this node that a fault reduces, and the share of their rate that is left."""
        if fault.kind in SWITCH_KINDS:
            return dict.fromkeys(self._ports_to(fault.target), 0.0)
        if fault.target != self.name:
            return {}
        if fault.kind == "vpc-card-fault":
            return {"vpc": 0.0}
        if fault.kind == "rdma-nic-fault":
            npu = int(fault.parameters.get("npu", 0))
            return dict.fromkeys(fnmatch.filter(self._built_peers, f"rdma-npu{npu}-die*"), 0.0)
        if fault.kind not in PORT_KINDS or fault.kind == "cable-moved":
            return {}
        whole = fault.kind in ("link-down", "link-silent", "link-flapping")
        ports = fnmatch.filter(self._built_peers, str(fault.parameters["port"]))
        return dict.fromkeys(ports, 0.0 if whole else float(fault.parameters["share"]))

    def _port_codes(self) -> list[tuple[str, str]]:
        """The codes that ports below their rate make their chips raise: an L1 chip for its uplinks, a die for its RDMA
        port."""
        links, codes = {link.port: link for link in self._links}, []
        for port, share in sorted(self.ports.items()):
            link = links.get(port)
            if link is not None and link.kind == "l1-l2":
                codes.append((UPLINK_DOWN if share == 0 else UPLINK_NARROW, port))
            elif link is not None and link.kind == "die-leaf" and share == 0:
                codes.append((ROCE_DOWN, link.ends[0].removeprefix(f"{self.name}-")))
        return codes

    def _ports_to(self, switch: str) -> list[str]:
        """The ports that end at a switch, or go through it on their way out of the node; a moved cable ends
        elsewhere."""
        built = [link.port for link in self._links if switch in link.ends and link.port not in self.moved]
        return built + [port for port, peer in self.moved.items() if peer == switch]

    def _corrupt_tables(self, faults: list[InjectedFault]) -> None:
        """Corrupt each table once, when the fault appears; the agent may rewrite it while the fault is still listed.
        Tables are replaced, never modified in place."""
        for fault in faults:
            if fault.name in self._corrupted_by:
                continue
            wanted = fault.parameters.get("slice")
            for slice in [each for each in self.tables if wanted in (None, each)]:
                if fault.kind == "tables-lost":
                    del self.tables[slice]
                else:
                    self.tables[slice] = self.tables[slice] | {"stripes": [], "isolation_key": 0}
        self._corrupted_by = frozenset(fault.name for fault in faults)


CODE_RAISING_KINDS = ("npu-fault", "hbm-fault", "component-fault", "slow-node")
"""Kinds of fault that make a component raise a code."""


REPAIR_BY_LEVEL = {
    "RestartRequest": "restart",
    "RestartBusiness": "restart",
    "FreeRestart": "reset-npu",
    "Restart": "reset-npu",
}
"""The lightest in-place repair that ends a fault of each level, after the incumbent's names of the levels. Faults that
call for separation are not ended by any."""


def is_repaired_by(fault: InjectedFault, repair: str) -> bool:
    """Whether an in-place repair ends a fault: by its parameter `endsWith` (or `none`), else by the level of its code.
    A heavier repair ends everything that a lighter one does."""
    if fault.kind not in CODE_RAISING_KINDS or fault.kind == "slow-node":
        return False
    ended_by = fault.parameters.get("endsWith", REPAIR_BY_LEVEL.get(level_of(_code(fault)[0]).name, "none"))
    return ended_by in IN_PLACE and IN_PLACE.index(ended_by) <= IN_PLACE.index(repair)


def _message_faults(faults: list[InjectedFault]) -> MessageFaults | None:
    if not faults:
        return None
    shares = {
        kind: max((float(each.parameters.get("share", 1.0)) for each in faults if each.kind == kind), default=0.0)
        for kind in ("messages-lost", "messages-doubled")
    }
    late = [float(each.parameters.get("delayS", DELAY_S)) for each in faults if each.kind == "messages-delayed"]
    return MessageFaults(shares["messages-lost"], shares["messages-doubled"], max(late, default=0.0))


def _severities(faults: list[InjectedFault]) -> dict[tuple[str, str], str]:
    """The severity of each code, the worst that any fault gives it; a fault without a severity counts as major."""
    worst: dict[tuple[str, str], str | None] = {}
    for each in faults:
        code, severity = _code(each), each.parameters.get("severity")
        if code not in worst or _SEVERITY_RANKS[severity] > _SEVERITY_RANKS[worst[code]]:
            worst[code] = severity
    return {code: severity for code, severity in worst.items() if severity is not None}


_SEVERITY_RANKS: dict[str | None, float] = {severity: rank for rank, severity in enumerate(SEVERITIES)}
_SEVERITY_RANKS[None] = _SEVERITY_RANKS["major"] - 0.5


def _code(fault: InjectedFault) -> tuple[str, str]:
    code = str(fault.parameters.get("code", "220001001"))
    if fault.kind == "slow-node":
        return SLOW_NODE, "node"
    if fault.kind == "hbm-fault":
        code = HBM_RESTART if fault.parameters.get("handling") == "restart" else HBM_ISOLATE
        return code, f"npu{int(fault.parameters.get('npu', 0))}-die{int(fault.parameters.get('die', 0))}"
    if fault.kind == "npu-fault":
        npu = f"npu{int(fault.parameters.get('npu', 0))}"
        return code, f"{npu}-die{int(fault.parameters['die'])}" if "die" in fault.parameters else npu
    return code, str(fault.parameters.get("component", "node"))


def missing_part(fault: InjectedFault) -> str:
    """The part that a `missing-part` fault removes; it may also be given by a port's name or an NPU's number."""
    given = fault.parameters
    if "part" in given or "port" in given:
        return str(given.get("part", given.get("port")))
    return f"npu{given.get('npu', 0)}"
