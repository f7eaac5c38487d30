"""next_rung: choose the next repair to try for a failed member. A pure decision from the table `recovery_rules.yaml`,
from what agents reported and from what was tried before.

An in-place rung is under way until the member is ready again. It has failed if it finished and the fault remains, if it
took longer than its timeout, or if the node disappeared; the next rung of the ladder follows. If the fault gets worse,
the ladder of its new level applies from the first rung heavier than what was tried; nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import Field

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.yaml_text import packaged_yaml
from matrixresource.contract.allocations import MemberView

REPLACE, DEGRADE = "replace", "degrade"


@dataclass(frozen=True)
class Rung:
    """One kind of repair. `timeout_s` (s, emulated) is None for a rung that is not done in place."""

    name: str
    means: str
    timeout_s: float | None = None


@dataclass(frozen=True)
class RecoveryRules:
    """The content of the file: rungs from light to heavy, the ladder of each fault level, and the levels at which a
    member drains first, with the time it has for that (s, emulated)."""

    rungs: Mapping[str, Rung]
    ladders: Mapping[str, tuple[str, ...]]
    drains: Mapping[str, float]

    def ladder(self, level: str) -> tuple[str, ...]:
        """The ladder of a level; a level that is not in the table goes straight to replacement."""
        return self.ladders.get(level, (REPLACE,))

    def next_after(self, level: str, rung: str | None, allowed: Collection[str] | None = None) -> str | None:
        """The first rung of a level's ladder, or the first heavier than `rung`; the last resort is another node. Only
        rungs in `allowed` count (None: all); None if none is left."""
        order = [*self.rungs]
        position = -1 if rung is None else order.index(rung)
        remaining = [*(each for each in self.ladder(level) if order.index(each) > position), REPLACE]
        return next((each for each in remaining if allowed is None or each in allowed), None)


class RungTried(ApiModel):
    """A rung that was begun for a member."""

    node: str
    rung: str = Field(description="restart, reset-npu, reboot, replace or degrade")
    at: float = Field(description="when it was begun, s")
    why: str = Field(description="the fault, or why the previous rung was not enough")


@dataclass(frozen=True)
class Choice:
    """What to do about a member: begin a `rung`, wait for the one under way, or nothing because none is left."""

    action: Literal["begin", "wait", "exhausted"]
    rung: str
    why: str


def read_rules(document: Any, source: str = "recovery_rules.yaml") -> RecoveryRules:
    """Parse the rules. Raises InvalidField for a ladder that names an unknown rung, is not ordered from light to heavy
    or does not end in `replace`, and for a drain whose level has no ladder or whose time is not above 0."""
    rungs = {name: Rung(name, **entry) for name, entry in document["rungs"].items()}
    order = [*rungs]
    ladders = {level: tuple(ladder) for level, ladder in document["ladders"].items()}
    for level, ladder in ladders.items():
        field = f"ladders.{level}"
        if unknown := [each for each in ladder if each not in rungs]:
            raise InvalidField(f"{source}: unknown rung {unknown[0]!r}; known: {', '.join(rungs)}", field=field)
        if [*ladder] != sorted(set(ladder), key=order.index):
            raise InvalidField(f"{source}: rungs must go from light to heavy, each at most once", field=field)
        if ladder and ladder[-1] != REPLACE:
            raise InvalidField(f"{source}: a ladder must end in {REPLACE}", field=field)
    drains = {level: float(seconds) for level, seconds in document.get("drains", {}).items()}
    for level, seconds in drains.items():
        if not ladders.get(level) or seconds <= 0:
            raise InvalidField(f"{source}: a drain needs a ladder and a time above 0", field=f"drains.{level}")
    return RecoveryRules(rungs, ladders, drains)


@cache
def recovery_rules() -> RecoveryRules:
    return read_rules(packaged_yaml("matrixcompute.recovery", "recovery_rules.yaml"))


def level_of_member(member: MemberView) -> str:
    """The level whose ladder applies to a failed member."""
    if member.agent in ("Stale", "Lost"):
        return "NodeLost"
    return "NodeGone" if member.gone else member.level or "Separate"


def next_rung(
    member: MemberView,
    why: str,
    tried: Sequence[RungTried],
    now: float,
    rules: RecoveryRules,
    allowed: Collection[str] | None = None,
) -> Choice:
    """What to do about a member that failed because of `why`. `tried`: the rungs begun so far, in order; `allowed`: the
    rungs that may be tried (None: all). A spare is always replaced."""
    level = level_of_member(member)
    last = rules.rungs.get(tried[-1].rung) if tried else None
    if member.role != "member":
        return Choice("begin", REPLACE, why)
    if level in ("NodeLost", "NodeGone"):
        return _begin_or_exhausted(rules.next_after(level, None, allowed), why)
    if last is None or last.timeout_s is None:
        return _begin_or_exhausted(rules.next_after(level, None if last is None else last.name, allowed), why)
    took_s = now - tried[-1].at
    if not member.ready and took_s < last.timeout_s:
        return Choice("wait", last.name, f"{last.name} is under way")
    failed = "did not help" if member.ready else f"took longer than {last.timeout_s:g} s"
    return _begin_or_exhausted(rules.next_after(level, last.name, allowed), f"{last.name} {failed}: {why}")


def _begin_or_exhausted(rung: str | None, why: str) -> Choice:
    if rung is None:
        return Choice("exhausted", "", f"{why}: its recovery policy allows nothing more")
    return Choice("begin", rung, why)
