"""CATALOGUE: every kind of fault, what it affects, the incumbent's level for it, and how it is detected.

Faults of the hardware and of agents' messages are put on the emulated nodes (`hardware.py`, the fleet's uplinks).
Faults of processes and databases are carried out by matrixctl, on a stack on its own machine. None of them tells the
control plane anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from matrixcommon.model.errors import InvalidField

FaultScope = Literal["node", "cabinet", "switch", "service"]

FaultKind = Literal[
    "node-down",
    "agent-hang",
    "cabinet-power",
    "npu-fault",
    "hbm-fault",
    "component-fault",
    "missing-part",
    "stage-failure",
    "slow-node",
    "vpc-card-fault",
    "rdma-nic-fault",
    "link-down",
    "link-degraded",
    "link-flapping",
    "cable-moved",
    "link-silent",
    "link-slow",
    "switch-down",
    "switch-silent",
    "tables-lost",
    "tables-corrupted",
    "messages-lost",
    "messages-delayed",
    "messages-doubled",
]
"""Faults of the emulated nodes."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `level`: the incumbent's, if it has one; `detected_by`: what tells the control plane, if
    anything; `parameters`: the parameters it accepts."""

    scope: FaultScope
    description: str
    level: str
    detected_by: str
    parameters: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The types of scenario target that it can have: a fault of nodes may affect a whole cabinet."""
        return ("node", "cabinet") if self.scope == "node" else (self.scope,)

    @property
    def is_process_fault(self) -> bool:
        return self.scope == "service"


LEASES = "silence for two leases of 30 s"
CODES = "the fault code in the next report"
PORTS = "the port's rate in the next report"
PROBES = "failed probes, localised by tomography"
READBACK = "the digest of the table that was read back"

CATALOGUE: dict[str, Fault] = {
    "node-down": Fault(
        "node", "the node loses power; its agents fall silent and its work is gone", "Separate (NodeLost)", LEASES
    ),
    "agent-hang": Fault(
        "node",
        "the agents on the Qingtian card fall silent; the node itself continues",
        "Separate (NodeLost)",
        LEASES,
    ),
    "cabinet-power": Fault(
        "cabinet",
        "a cabinet loses power, and with it all its nodes (target: a cabinet, e.g. sn0-c03)",
        "Separate (NodeLost)",
        f"{LEASES}, on all of its nodes",
    ),
    "npu-fault": Fault(
        "node",
        "an NPU or one of its dies raises a fault code (parameters: npu 0-7, die 0 or 1, code, default 220001001; "
        "endsWith: the repair in place that ends it, restart, reset-npu, reboot or none, by default as its level says)",
        "by the code; Separate by default",
        CODES,
        parameters=("npu", "die", "code", "severity", "endsWith"),
    ),
    "hbm-fault": Fault(
        "node",
        "a multi-bit ECC error in the HBM of a die (parameters: npu 0-7, die 0 or 1; handling: isolate, by default, "
        "is code 020001001, restart is 010001002)",
        "Separate (isolate), SubHealth (restart)",
        CODES,
        parameters=("npu", "die", "handling", "severity", "endsWith"),
    ),
    "component-fault": Fault(
        "node",
        "a component raises a fault code (parameters: component, code, severity from hint to critical)",
        "by the code and the severity",
        CODES,
        parameters=("component", "code", "severity", "endsWith"),
    ),
    "missing-part": Fault(
        "node",
        "the node lacks a part (parameters: part, e.g. npu5, npu5-die1, cpu3, dimm7, vpc)",
        "-",
        "the inventory in the next report",
        parameters=("part", "npu", "port"),
    ),
    "stage-failure": Fault(
        "node",
        "a stage of the node's work fails every time (parameters: stage, e.g. npu-self-test, why)",
        "-",
        "the stage and its reason in the next report",
        parameters=("stage", "why"),
    ),
    "slow-node": Fault(
        "node",
        "the node's work takes longer (parameters: factor, default 2), and it raises code 110001010",
        "SubHealth",
        CODES,
        parameters=("factor", "severity"),
    ),
    "vpc-card-fault": Fault(
        "node",
        "the Qingtian card dies: its VPC port is dark and the agents on it are silent; the node itself continues",
        "Separate (NodeLost)",
        LEASES,
    ),
    "rdma-nic-fault": Fault(
        "node",
        "the RDMA ports of both dies of an NPU are dark (parameters: npu 0-7); the dies raise code 81078603",
        "NotHandle; PreSeparate after 20 s",
        f"{PORTS}, {CODES} and the rule of duration",
        parameters=("npu",),
    ),
    "link-down": Fault(
        "node",
        "a port carries nothing (parameters: port, e.g. ub-p3-k11, npu5-die1-p2, rdma-npu5-die0, vpc; or a pattern for "
        "a bundle of cables, e.g. ub-p*-k0?)",
        "NotHandle; Separate for all uplinks of a plane",
        PORTS,
        parameters=("port",),
    ),
    "link-degraded": Fault(
        "node",
        "a port carries a share of its rate (parameters: port, share between 0 and 1)",
        "NotHandle",
        PORTS,
        parameters=("port", "share"),
    ),
    "link-flapping": Fault(
        "node",
        "a port goes dark and comes back, over and over (parameters: port; periodS, default 20: half of it dark)",
        "NotHandle; an RDMA port 5 times a day: ManuallySeparate",
        f"{PORTS}; damped",
        parameters=("port", "periodS"),
    ),
    "cable-moved": Fault(
        "node",
        "a port's cable is plugged in elsewhere (parameters: port, peer, e.g. sn0-l2p3-k12)",
        "-",
        "the neighbour at the port, in the next report",
        parameters=("port", "peer"),
    ),
    "link-silent": Fault(
        "node",
        "a port reports that it is up, but carries nothing (parameters: port)",
        "-",
        PROBES,
        parameters=("port",),
    ),
    "link-slow": Fault(
        "node",
        "a port reports its full rate, but carries only a share of it (parameters: port, share)",
        "-",
        PROBES,
        parameters=("port", "share"),
    ),
    "switch-down": Fault(
        "switch",
        "a switch chip dies: every port that leads to it loses light (target: a switch, e.g. sn0-l2p3-k11)",
        "NotHandle for each uplink",
        PORTS,
    ),
    "switch-silent": Fault(
        "switch",
        "a switch chip drops everything, but its ports keep light (target: a switch, e.g. sn0-l2p3-k11)",
        "-",
        PROBES,
    ),
    "tables-lost": Fault(
        "node",
        "a switch table is emptied behind the agent's back (parameters: slice; by default all slices)",
        "-",
        READBACK,
        parameters=("slice",),
    ),
    "tables-corrupted": Fault(
        "node",
        "a switch table sends everything the wrong way (parameters: slice; by default all slices)",
        "-",
        READBACK,
        parameters=("slice",),
    ),
    "messages-lost": Fault(
        "node",
        "reports of the node's agents are lost in transit (parameters: share, default 1)",
        "Separate (NodeLost) where all are lost",
        LEASES,
        parameters=("share",),
    ),
    "messages-delayed": Fault(
        "node",
        "reports of the node's agents arrive late (parameters: delayS, default 20)",
        "-",
        "not detected if shorter than a lease; reports that arrive out of order are refused by sequence",
        parameters=("delayS",),
    ),
    "messages-doubled": Fault(
        "node",
        "reports of the node's agents arrive twice (parameters: share, default 1)",
        "-",
        "not detected: the second is refused by its sequence",
        parameters=("share",),
    ),
    "service-killed": Fault(
        "service",
        "a process of the control plane is killed (kill -9); the supervisor starts it again",
        "-",
        "the supervisor, when its child exits; clients, by refused connections",
    ),
    "service-paused": Fault(
        "service",
        "a process of the control plane hangs (SIGSTOP) until cleared, or until the supervisor replaces it",
        "-",
        "the supervisor, after 60 s of wall-clock time; clients, by their deadlines",
    ),
    "database-readonly": Fault(
        "service",
        "a service's database refuses writes but answers reads (SQLite)",
        "-",
        "failed writes, which are retried",
    ),
    "database-stalled": Fault(
        "service",
        "a service's database delays writes (parameters: stallS, wall-clock seconds each time, default 2; SQLite)",
        "-",
        "slow requests",
        parameters=("stallS",),
    ),
}


def check_parameters(kind: str, given: Iterable[str]) -> None:
    """Raises InvalidField for a parameter that the kind does not accept, instead of ignoring it."""
    takes = CATALOGUE[kind].parameters
    for name in given:
        if name not in takes:
            raise InvalidField(
                f"{kind} has no parameter {name[:40]!r}; it takes {', '.join(takes) or 'none'}",
                field=f"parameters.{name[:40]}",
            )


FAULT_KINDS: dict[str, str] = {kind: CATALOGUE[kind].description for kind in get_args(FaultKind)}
"""Faults that can be put on the emulated nodes, and their effects."""
PROCESS_KINDS: tuple[str, ...] = tuple(kind for kind, each in CATALOGUE.items() if each.is_process_fault)
"""Faults of the processes of a stack that `matrixctl up` runs."""

PORT_KINDS = ("link-down", "link-degraded", "link-flapping", "cable-moved", "link-silent", "link-slow")
SWITCH_KINDS = ("switch-down", "switch-silent")
CABINET_KINDS = ("cabinet-power",)
TABLE_KINDS = ("tables-lost", "tables-corrupted")
MESSAGE_KINDS = ("messages-lost", "messages-delayed", "messages-doubled")

SEVERITIES = ("hint", "minor", "major", "critical")
"""Severities that a component can give its fault, lowest first."""

FLAP_PERIOD_S, DELAY_S, SLOW_FACTOR = 20.0, 20.0, 2.0
"""The severity of a fault that does not state one."""
