"""Reports of link agents (programs, ports, probes, counters), and their answers. Rates are GB/s (10^9 bytes per second)
each way."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from matrixcommon.api.reports import Count, ItemsValidatedSeparately
from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_model import ApiModel
from matrixlink.contract.programs import DesiredProgram
from matrixlink.contract.slices import Rate

GENERATION_MAX = 2**31 - 2
"""The largest generation accepted: one less than the tables can hold, so that one more can follow."""


class ReportedProgram(ApiModel):
    """An agent's progress with one slice. `Programming`: it is still working on it."""

    slice: str = Field(max_length=253, description="key of the slice")
    generation: int = Field(ge=0, le=GENERATION_MAX, description="newest generation that the agent was asked to hold")
    status: Literal["Programming", "Programmed", "Cleared", "Failed"] = Field(
        description="Programming while it works on that generation; then Programmed, Cleared or Failed"
    )
    message: str = Field("", max_length=300, description="why it failed; else empty")
    digest: str | None = Field(
        None, max_length=64, description="digest of the table as it was read back, once it is Programmed; else null"
    )
    drifts: Count = Field(0, description="how often the agent found the table different from what it had written")


class ReportedPort(ApiModel):
    """A port below its full rate, and the rate it still carries."""

    port: str = Field(max_length=40, description="port within the node, such as ub-p3-k11")
    gbps: Rate = Field(description="GB/s that it still carries, each way; 0 if it is down")


class FailedProbe(ApiModel):
    """A probe, by its number in the plan, that achieved less than the rate of its path; `share` 0 means it was lost."""

    probe: int = Field(ge=0, lt=4096, description="number of the probe in the round's plan")
    share: float = Field(ge=0, lt=1, description="fraction of its rate that the probe achieved; 0 if it was lost")


class ReportedProbes(ApiModel):
    """One round of probes. The plan says what they were; only failures are reported, without those that crossed a
    port of this node that the report names anyway. `latency_us` is the mean over the probes that were answered, per
    plane."""

    round: Count = Field(description="number of the round, the same for all nodes at a time")
    sent: int = Field(ge=0, le=4096, description="number of probes sent in the round")
    failed: list[FailedProbe] = Field(
        default_factory=empty_list,
        max_length=4096,
        description="probes that failed, except those over ports that the report names anyway",
    )
    latency_us: dict[Plane, Annotated[float, Field(ge=0)]] = Field(
        default_factory=empty_dict, description="mean one-way latency of the answered probes by plane, in microseconds"
    )


Megabytes = Count


class ReportedCounters(ApiModel):
    """Port counters as of emulated second `at`: 10^6 bytes since the node started, in the order of the probe plan's
    paths (UB uplinks by sub-plane and L2 chip, RDMA ports, the card). `dropped` only names ports that have dropped
    something; `slices` has bytes sent, received and dropped for each slice."""

    at: float = Field(description="when the counters were read, in emulated seconds since the epoch")
    sent: list[Megabytes] = Field(
        max_length=4096, description="megabytes (10^6 bytes) that each port sent since the node started"
    )
    received: list[Megabytes] = Field(
        max_length=4096, description="megabytes (10^6 bytes) that each port received since the node started"
    )
    dropped: dict[int, Megabytes] = Field(
        default_factory=empty_dict,
        max_length=4096,
        description="megabytes (10^6 bytes) dropped, by number of the port; only ports that dropped any",
    )
    slices: dict[str, tuple[Megabytes, Megabytes, Megabytes]] = Field(
        default_factory=empty_dict,
        max_length=1024,
        description="megabytes (10^6 bytes) sent, received and dropped by the node, by key of the slice",
    )


class LinkReport(ApiModel):
    """A link agent's report on its node: every slice it holds, only ports below full rate, and failed probes. `epoch`
    counts the agent's restarts and `sequence` its reports since the last one; a report older than the newest is
    refused."""

    node: NodeName = Field(description="node that the agent runs on")
    epoch: Count = Field(description="incremented when the agent restarts; reports of an earlier epoch are refused")
    sequence: Count = Field(description="number of the report since then; a number not above the newest is refused")
    lease_seconds: float = Field(
        gt=0, le=86_400, description="emulated seconds until the agent counts as unreachable unless it reports again"
    )
    programs: list[ReportedProgram] = Field(
        default_factory=empty_list, max_length=1024, description="every slice that the agent holds or works on"
    )
    ports: list[ReportedPort] = Field(
        default_factory=empty_list, max_length=1024, description="ports below their full rate, and no others"
    )
    probes: ReportedProbes | None = Field(
        None, description="results of the present round of probes; null if the agent sends none"
    )
    counters: ReportedCounters | None = Field(None, description="counters of its ports; null if nothing has moved yet")


class LinkReports(ApiModel):
    """A batch of reports: the agents of a fleet share one connection."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"reports": [{"node": "sn0-c00-n0", "epoch": 1_099_511_627_776, "sequence": 1, "leaseSeconds": 30}]},
    )

    reports: list[Annotated[LinkReport, ItemsValidatedSeparately]] = Field(
        max_length=4096, description="one report for each node, answered in this order"
    )


class LinkReportAnswer(ApiModel):
    """Whether the report was accepted, and everything the node should hold: a lost watch event does no lasting harm."""

    node: str = Field(description="node whose report is answered")
    accepted: bool = Field(description="whether the report was accepted")
    reason: str | None = Field(
        None, description="why it was refused, in one word, such as StaleReport; null if it was accepted"
    )
    message: str = Field("", description="why it was refused, in a sentence; empty if it was accepted")
    desired: list[DesiredProgram] = Field(
        default_factory=empty_list,
        description="every slice that the node is to hold or to clear; empty if the report was refused",
    )


class LinkReportAnswers(ApiModel):
    answers: list[LinkReportAnswer] = Field(description="one answer for each report, in the order of the reports")
