"""Probes, the link matrix, and traffic by link, switch, node, plane, slice or project: views. Rates are GB/s (10^9
bytes per second) each way."""

from __future__ import annotations

from pydantic import Field

from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel


class ProbeRound(ApiModel):
    """One round of probes, as far as reports on it have arrived."""

    round: int = Field(description="number of the round")
    nodes: int = Field(description="number of nodes whose reports on it have arrived")
    sent: int = Field(description="number of probes that these nodes sent")
    failed: int = Field(description="number of probes that failed")


class SuspicionView(ApiModel):
    """A possible explanation of `witnesses` failed probes in the newest round: any of `parts`, at `share` of its rate.
    A single candidate in two rounds is a finding."""

    parts: list[str] = Field(description="candidates for the fault: links, switches or nodes; at most 20 of them")
    candidates: int = Field(description="number of all candidates, any one of which would explain the failures")
    share: float = Field(description="fraction of its rate that the faulty part would carry, 0 to 1")
    witnesses: int = Field(description="number of failed probes that it explains")


class ProbesView(ApiModel):
    """Results of the probes: rounds, newest first, what the newest points at, and the parts found `at_fault`, each with
    the share of its rate that it carries. A silent fault is found within `detected_within_s` emulated seconds."""

    detected_within_s: float = Field(description="emulated seconds within which a fault that no port reports is found")
    rounds: list[ProbeRound] = Field(description="the last rounds, newest first")
    suspicions: list[SuspicionView] = Field(
        description="what the failures of the newest round point at, those with the most witnesses first"
    )
    at_fault: dict[str, float] = Field(
        description="parts found at fault, each with the fraction of its rate that it carries"
    )


class LinkMatrixView(ApiModel):
    """One plane of one supernode as a matrix of nodes by ports. Column j is port `ports[j]` of every node; where the
    wiring is regular it leads to `switches[j]` (on the first node it always does), which is in cabinet
    `switch_cabinets[j]`. `states` has one letter per port for each node: u up, d degraded, x down, o out of use
    (drained). `utilisation` is the busier direction in percent of what the port carries now; empty for nodes without
    known counters."""

    plane: Plane = Field(description="plane that is shown: ub, rdma or vpc")
    supernode: str = Field(description="supernode that is shown")
    nodes: list[str] = Field(description="nodes of the supernode, one row each")
    cabinets: list[str] = Field(description="cabinet of each node, in the order of the rows")
    ports: list[str] = Field(description="ports of a node on the plane, one column each")
    sub_planes: list[int] = Field(
        description="sub-plane of each port, in the order of the columns; 0 where there is none"
    )
    switches: list[str] = Field(
        description="what each port of the first node leads to, in the order of the columns; empty without a cable"
    )
    switch_cabinets: list[str] = Field(description="cabinet of each of these switches; empty if it is in none")
    states: list[str] = Field(
        description="a text for each node, with a letter for each port: u up, d degraded, x down, o out of use "
        "(drained)"
    )
    utilisation: list[list[int]] = Field(
        description="for each node, the percentage of its present capacity that the busier direction of each port "
        "uses; empty without counters"
    )


class TelemetryView(ApiModel):
    """Traffic over one object: a link (both directions of a node's port), switch, node's plane, plane, slice, or
    project's plane. `capacity_gbps` is what it carries each way now (for a slice, what its members may use),
    `utilisation` the busier direction's share of that, `headroom_gbps` what is promised to nobody. `latency_us` is
    one-way, from probes; `dropped_gbps` is what was sent into ports that carried nothing."""

    name: str = Field(
        description="the link, switch, plane, or key of the slice; `node.plane` of a node, `project.plane` of a project"
    )
    by: str = Field(description="what it is: link, switch, node, plane, slice or project")
    plane: Plane | None = Field(None, description="plane that its traffic uses: ub, rdma or vpc")
    project: str | None = Field(
        None, description="project that the slice belongs to, or whose slices are summed; null for hardware"
    )
    sent_gbps: float = Field(description="GB/s that nodes send over it, from the counters of their ports")
    received_gbps: float = Field(description="GB/s that nodes receive over it, from the counters of their ports")
    dropped_gbps: float = Field(description="GB/s sent into ports that carry nothing")
    capacity_gbps: float = Field(description="GB/s each way that it carries now; for a slice, what its members may use")
    utilisation: float | None = Field(
        None, description="fraction of the capacity that the busier direction uses; null without capacity"
    )
    floors_gbps: float = Field(
        0.0,
        description="GB/s each way that is promised to slices on it; for a slice, the part of its floor that is kept",
    )
    headroom_gbps: float = Field(
        description="GB/s each way that is promised to nobody: capacity less floors, at least 0"
    )
    latency_us: float | None = Field(
        None, description="mean one-way latency between nodes, from probes, in microseconds; null without any"
    )
    sampled_at: str | None = Field(
        None, description="when the newest of its counters was read, in emulated time; null without any"
    )
