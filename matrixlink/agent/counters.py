"""The counters of a node's ports in the form of a report: whole megabytes, and only drops that occurred."""

from __future__ import annotations

from matrixlink.contract.link_reports import ReportedCounters
from matrixlink.ports import CounterSample


def reported_counters(counted: CounterSample | None) -> ReportedCounters | None:
    """None if nothing ever moved."""
    if counted is None:
        return None
    return ReportedCounters(
        at=counted.at,
        sent=[int(gb * 1000) for gb in counted.sent_gb],
        received=[int(gb * 1000) for gb in counted.received_gb],
        dropped={port: int(gb * 1000) for port, gb in enumerate(counted.dropped_gb) if gb > 0},
        slices={
            slice: (int(sent * 1000), int(received * 1000), int(dropped * 1000))
            for slice, (sent, received, dropped) in counted.slices.items()
        },
    )
