"""What a fault means for its chip, its NPU and its node over time.

A fault code has a level of its own. If it is seen often within a window, or lasts long, it is raised to a higher one,
by the incumbent's frequency and duration rules (`fault_levels.yaml`). A record holds, for one code on one component,
just what these rules need. It is updated with each observation, using the caller's clock, so a record that survives a
restart continues as if there had been none.

A fault affects a die, an NPU (both dies), or the node as a whole. Only the last keeps work off the other NPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from matrixcommon.model.quantities import timestamp
from matrixresource.contract.nodes import DieView, FaultView
from matrixresource.nodes.fault_levels import (
    DurationRule,
    FrequencyRule,
    fault_table,
    level_named,
    level_of,
    worst_health,
    worst_level,
)

CHIP_COMPONENT = re.compile(r"(?:rdma-)?npu(?P<npu>[0-7])(?:-die(?P<die>[01]))?(?:-p\d)?")
UPLINK_COMPONENT = re.compile(r"ub-p(?P<sub_plane>\d)-k\d\d")


@dataclass(frozen=True)
class FaultRecord:
    """One code on one component. Times are the clock's seconds.

    `times`: occurrences that still count, oldest first; `since`: when it became present (None: it is absent),
    `gone_at`: when it became absent; `separated_at`: when the frequency rule raised it; `prolonged`: the duration rule
    has raised it.
    """

    times: tuple[float, ...] = ()
    since: float | None = None
    gone_at: float | None = None
    separated_at: float | None = None
    prolonged: bool = False

    @property
    def idle(self) -> bool:
        """Whether the record carries no information any more."""
        return self.since is None and not self.times and self.separated_at is None and not self.prolonged


def after_observation(
    record: FaultRecord, present: bool, now: float, frequency: FrequencyRule | None, duration: DurationRule | None
) -> FaultRecord:
    """The record after one more observation at `now`: the fault is present, or it is not."""
    if frequency is not None:
        record = replace(record, times=tuple(time for time in record.times if time >= now - frequency.window_s))
        if record.separated_at is not None and frequency.release_s is not None:
            expired = now - record.separated_at >= frequency.release_s
            record = replace(record, separated_at=None if expired else record.separated_at)
    if present and record.since is None:
        record = replace(record, since=now, gone_at=None)
        if frequency is not None:
            record = replace(record, times=(*record.times, now))
            if len(record.times) >= frequency.times:
                record = replace(record, times=(), separated_at=now)
    elif not present and record.since is not None:
        record = replace(record, since=None, gone_at=now)
    if duration is None:
        return record
    if record.since is not None:
        return replace(record, prolonged=record.prolonged or now - record.since > duration.lasts_s)
    absent_s = now - record.gone_at if record.gone_at is not None else 0.0
    return replace(record, prolonged=record.prolonged and absent_s < duration.recovers_s)


def after_release(record: FaultRecord) -> FaultRecord:
    """The record after the separation was released manually: counting starts from zero."""
    return replace(record, times=(), separated_at=None)


def fault_view(
    code: str, component: str, record: FaultRecord, own_level: str, since: str, message: str = ""
) -> FaultView | None:
    """The fault at its present level, the worst of its own and those given by rules; None if nothing is left of it."""
    table = fault_table()
    levels = {}
    if record.prolonged and code in table.duration:
        levels["Duration"] = table.duration[code].level
    if record.separated_at is not None:
        levels["Frequency"] = table.frequency[code].level if code in table.frequency else "ManuallySeparate"
    worst = worst_level([*([own_level] if record.since is not None else []), *levels.values()])
    if worst is None:
        return None
    raised = record.since is None or worst != own_level
    return FaultView(
        code=code,
        component=component,
        level=worst,
        since=since,
        message=message,
        active=record.since is not None,
        raised_by=next((rule for rule, level in levels.items() if raised and level == worst), None),
    )


def lost_uplinks(components: Iterable[str], uplinks: int) -> list[str]:
    """The L1 chips (`l1p3`) all of whose `uplinks` ports to L2 chips are among these faulty components."""
    planes = [found["sub_plane"] for name in set(components) if (found := UPLINK_COMPONENT.fullmatch(name))]
    return sorted(f"l1p{plane}" for plane in set(planes) if planes.count(plane) >= uplinks)


# -- places ------------------------------------------------------------------------------------------------------


def dies_of(component: str) -> int:
    """The dies that a component's fault is confined to, as bits 2k and 2k+1 for NPU k; 0 if it affects the whole
    node."""
    found = CHIP_COMPONENT.fullmatch(component)
    if found is None:
        return 0
    both = 3 << 2 * int(found["npu"])
    return both if found["die"] is None else both & (1 << 2 * int(found["npu"]) + int(found["die"]))


class HasFaults(Protocol):
    """A node with faults, as stored in the database."""

    @property
    def faults(self) -> Any: ...


def faults_of(node: HasFaults) -> list[FaultView]:
    """The faults of a node as last evaluated."""
    return [FaultView.from_stored({"level": level_of(fault["code"]).name} | fault) for fault in node.faults or []]


class HasLease(HasFaults, Protocol):
    """A node and what is known of its agent's lease; times are seconds."""

    agent: Any
    heard_at: Any
    lost_at: Any


def failure_times(node: HasLease) -> dict[str, str]:
    """When a lost or unhealthy node failed, as far as reports tell, and when that was detected (RFC 3339)."""
    if node.agent == "Lost":
        times = {"failed_at": node.heard_at, "detected_at": node.lost_at}
        return {name: timestamp(at) for name, at in times.items() if at is not None}
    unhealthy_since = [fault.since for fault in faults_of(node) if level_named(fault.level).health == "Unhealthy"]
    return {"failed_at": min(unhealthy_since), "detected_at": min(unhealthy_since)} if unhealthy_since else {}


def unusable_dies(node: HasFaults) -> int:
    """Dies that cannot take new work although the rest of the node can: bits 2k and 2k+1 for NPU k."""
    mask = 0
    for fault in faults_of(node):
        if not level_named(fault.level).schedulable:
            mask |= dies_of(fault.component)
    return mask


def whole_node_fault(node: HasFaults) -> str | None:
    """Why a fault of the node as a whole keeps new work off all of it; None if none does."""
    blocking = [
        level
        for fault in faults_of(node)
        if not dies_of(fault.component) and not (level := level_named(fault.level)).schedulable
    ]
    if any(level.health == "Unhealthy" for level in blocking):
        return "Unhealthy"
    return "PreSeparated" if blocking else None


def die_numbers(dies: int, per_npu: int) -> list[int]:
    """The numbers, within the node, of these dies. With one die per NPU (`per_npu` 1), that die stands for both bits of
    its NPU."""
    bits = [bit for bit in range(dies.bit_length()) if dies >> bit & 1]
    return sorted({bit // 2 * per_npu + min(bit % 2, per_npu - 1) for bit in bits})


def die_views(npu: int, faults: Sequence[FaultView], per_npu: int) -> list[DieView]:
    """The `per_npu` dies of an NPU, each with its health and worst level, given these faults."""
    both, views = 3 << 2 * npu, []
    for die in die_numbers(both, per_npu):
        bits = both if per_npu == 1 else 1 << die
        levels = [fault.level for fault in faults if dies_of(fault.component) & bits]
        views.append(
            DieView(
                die=die,
                health=worst_health(levels),
                level=worst_level(levels),
                schedulable=all(level_named(level).schedulable for level in levels),
            )
        )
    return views
