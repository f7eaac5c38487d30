"""How long recoveries take, by part, and what they cost an instance over its life. Pure; times are seconds, emulated.

A recovery is measured from the failure, as far as agents' reports show (when a lost agent was last heard, or a fault
was first reported), until the instance is whole again. Its parts follow one another without a gap, so they add up to
the total. A total alone hides where the time goes (NVSentinel's, PR 1789, was spent in a single timer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from matrixcommon.model.empty import empty_dict
from matrixcommon.model.quantities import format_duration
from matrixcommon.model.resource_model import ApiModel

PART_ENDS = {
    "detect": "",
    "fence": "fence_nodes",
    "tell": "tell_workload",
    "drain": "drain_members",
    "replace": "replace_members",
    "boot": "await_nodes",
    "serve": "mark_active",
}
"""Each part, and the step of the repair that ends it. Detection ends when MatrixResource declares the failure; the last
part ends with the recovery, when the workload serves again."""

PARTS = tuple(PART_ENDS)


def parts_so_far(failed_at: float, detected_at: float, trace: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The length of each part that has ended, by name (s). `trace`: when each step finished. The time of a step that
    was skipped counts for the next part; of a step that was repeated for a later failure, the first end counts."""
    ended = {"detect": detected_at}
    for part, step in PART_ENDS.items():
        entry = trace.get(step, {})
        at = entry.get("firstFinishedAt", entry.get("finishedAt"))
        if at is not None:
            ended[part] = at
    found, since = {}, failed_at
    for part in PARTS:
        if part in ended:
            found[part] = max(0.0, ended[part] - since)
            since = max(since, ended[part])
    return found


def final_parts(
    failed_at: float, detected_at: float, trace: Mapping[str, Mapping[str, Any]], now: float
) -> dict[str, float]:
    """The parts of a recovery that ends now. They add up to `now - failed_at`."""
    return parts_so_far(failed_at, detected_at, {**trace, PART_ENDS[PARTS[-1]]: {"finishedAt": now}})


def describe_parts(parts: Mapping[str, float]) -> str:
    """`1m15s: detect 60.1s, fence 210ms, ...`"""
    each = ", ".join(f"{part} {format_duration(seconds)}" for part, seconds in parts.items())
    return f"{format_duration(sum(parts.values()))}: {each}"


class DownTime(ApiModel):
    """What failures have cost an instance since it first became Active; stored with it, in wire form.

    MTTR is the mean time from failure to recovery. ETTR, the effective training time ratio, is productive over
    available wall time (Kokolis et al., arXiv 2410.21680, which counts waiting for nodes as available): here, the share
    of the time the instance should have been on in which every member served. It leaves out the work that a training
    job loses since its last checkpoint (T0 of the incumbent's model, facts 7.6), which only the job knows.
    """

    since: float | None = Field(None, description="when it first became Active")
    off_s: float = Field(0.0, description="how long it was switched off by request")
    off_since: float | None = None
    down_s: float = Field(0.0, description="how long it was missing a member, or waiting for nodes")
    down_since: float | None = None
    recoveries: int = 0
    parts_s: dict[str, float] = Field(default_factory=empty_dict, description="the sum over all recoveries, by part")

    def mark_down(self, at: float) -> DownTime:
        """The record with the instance down since `at`, unless it was down already."""
        if self.down_since is not None or self.off_since is not None or self.since is None:
            return self
        return self.model_copy(update={"down_since": max(at, self.since)})

    def mark_up(self, now: float, on: bool, parts: Mapping[str, float] | None = None) -> DownTime:
        """The record with the instance whole again, on or off. `parts`: of the recovery that made it whole."""
        if self.since is None and not on:
            return self
        changes: dict[str, Any] = {"since": now if self.since is None else self.since}
        if self.down_since is not None:
            changes |= {"down_s": self.down_s + max(0.0, now - self.down_since), "down_since": None}
        if on and self.off_since is not None:
            changes |= {"off_s": self.off_s + max(0.0, now - self.off_since), "off_since": None}
        if not on and self.off_since is None:
            changes["off_since"] = now
        if parts is not None:
            sums = {part: self.parts_s.get(part, 0.0) + parts.get(part, 0.0) for part in PARTS}
            changes |= {"recoveries": self.recoveries + 1, "parts_s": sums}
        return self.model_copy(update=changes)

    @property
    def mttr_s(self) -> float | None:
        """Mean time from failure to recovery; None without recoveries."""
        return sum(self.parts_s.values()) / self.recoveries if self.recoveries else None

    def ettr(self, now: float) -> float | None:
        """Effective training time ratio until now, 0 to 1; None before it was first Active."""
        if self.since is None:
            return None
        off_s = self.off_s + (max(0.0, now - self.off_since) if self.off_since is not None else 0.0)
        available_s = now - self.since - off_s
        return max(0.0, 1 - self.down_until(now) / available_s) if available_s > 0 else 1.0

    def down_until(self, now: float) -> float:
        """Total time down until `now` (s)."""
        return self.down_s + (max(0.0, now - self.down_since) if self.down_since is not None else 0.0)
