"""next_rung: what is tried next about one member that failed. A pure decision on the table `recovery_rules.yaml`, on
what agents reported and on what was tried before.

A rung in place is under way until the member is ready again. It has failed when it is over and the fault still there,
when it took longer than its timeout, or when the node is gone meanwhile; then the next rung of the ladder follows. A
fault that turned worse continues where its own ladder begins beyond what was tried; nothing is tried twice.
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
    """Something that can be done. `timeout_s` is None for what is not done in place."""

    name: str
    means: str
    timeout_s: float | None = None


@dataclass(frozen=True)
class RecoveryRules:
    """The file: rungs from light to heavy, a ladder of them for each level, and the levels at which a member drains
    first, with the time it has for that (s, emulated)."""

    rungs: Mapping[str, Rung]
    ladders: Mapping[str, tuple[str, ...]]
    drains: Mapping[str, float]

    def ladder(self, level: str) -> tuple[str, ...]:
        """Of a level; one that is not in the table is replaced."""
        return self.ladders.get(level, (REPLACE,))

    def after(self, level: str, rung: str | None, allowed: Collection[str] | None = None) -> str | None:
        """The first rung of a level's ladder, or the first that is heavier than `rung`; in the end another node. None
        where none of those is `allowed`; without that all are."""
        order = [*self.rungs]
        beyond = -1 if rung is None else order.index(rung)
        left = [*(each for each in self.ladder(level) if order.index(each) > beyond), REPLACE]
        return next((each for each in left if allowed is None or each in allowed), None)


class RungTried(ApiModel):
    """A rung that was begun for a member."""

    node: str
    rung: str = Field(description="restart, reset-npu, reboot, replace or degrade")
    at: float = Field(description="when it was begun, s")
    why: str = Field(description="the fault, or why the rung before was not enough")


@dataclass(frozen=True)
class Choice:
    """What to do about a member: begin a `rung`, wait for the one under way, or nothing, since none is left."""

    action: Literal["begin", "wait", "exhausted"]
    rung: str
    why: str


def read_rules(document: Any, source: str = "recovery_rules.yaml") -> RecoveryRules:
    """Rules from a parsed document. Raises InvalidField for a ladder of unknown rungs, one whose rungs do not get
    heavier, or one that does not end in `replace`; and for a drain of a level without a ladder or without time."""
    rungs = {name: Rung(name, **entry) for name, entry in document["rungs"].items()}
    order = [*rungs]
    ladders = {level: tuple(ladder) for level, ladder in document["ladders"].items()}
    for level, ladder in ladders.items():
        field = f"ladders.{level}"
        if unknown := [each for each in ladder if each not in rungs]:
            raise InvalidField(f"{source}: no rung {unknown[0]!r}; there are {', '.join(rungs)}", field=field)
        if [*ladder] != sorted(set(ladder), key=order.index):
            raise InvalidField(f"{source}: rungs go from light to heavy, each once", field=field)
        if ladder and ladder[-1] != REPLACE:
            raise InvalidField(f"{source}: a ladder ends in {REPLACE}", field=field)
    drains = {level: float(seconds) for level, seconds in document.get("drains", {}).items()}
    for level, seconds in drains.items():
        if not ladders.get(level) or seconds <= 0:
            raise InvalidField(f"{source}: a drain needs a ladder and a time above 0", field=f"drains.{level}")
    return RecoveryRules(rungs, ladders, drains)


@cache
def recovery_rules() -> RecoveryRules:
    return read_rules(packaged_yaml("matrixcompute.recovery", "recovery_rules.yaml"))


def level_of_member(member: MemberView) -> str:
    """The level whose ladder is for a member that failed."""
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
    """What to do about a member that failed, for the reason `why`. `tried`: its rungs so far, in their order;
    `allowed`: those that may be tried, without it all. A spare is always replaced."""
    level = level_of_member(member)
    last = rules.rungs.get(tried[-1].rung) if tried else None
    if member.role != "member":
        return Choice("begin", REPLACE, why)
    if level in ("NodeLost", "NodeGone"):
        return _begun(rules.after(level, None, allowed), why)
    if last is None or last.timeout_s is None:
        return _begun(rules.after(level, None if last is None else last.name, allowed), why)
    took_s = now - tried[-1].at
    if not member.ready and took_s < last.timeout_s:
        return Choice("wait", last.name, f"{last.name} is under way")
    failed = "did not help" if member.ready else f"took longer than {last.timeout_s:g} s"
    return _begun(rules.after(level, last.name, allowed), f"{last.name} {failed}: {why}")


def _begun(rung: str | None, why: str) -> Choice:
    if rung is None:
        return Choice("exhausted", "", f"{why}: its recovery policy allows nothing more")
    return Choice("begin", rung, why)
