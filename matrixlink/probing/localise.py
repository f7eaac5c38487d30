"""localise: which part explains all failed probes of a round.

The method is Boolean network tomography (Duffield, "Network tomography of binary network performance characteristics",
IEEE Trans. Inf. Theory 2006; the smallest consistent failure set, found greedily): a part on a probe that passed is
cleared; of what is left, the part that explains the most failed probes is taken, and so on until all are explained.
Where several parts explain exactly the same probes they are one suspicion with several candidates: a single round of
few witnesses may not tell them apart, and the next round, whose paths cross differently, will (`confirmed`). A probe
that came through at a share of its rate clears parts only as far as that share. Deterministic: ties go to the smaller
part (link, then switch, then node), then to the name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from matrixlink.probing.plan import Probe

WHOLE = 0.999
"""A probe with this share of its rate counts as passed: measuring a rate has an error."""
TOLERANCE = 0.02
"""Shares this close are one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A probe and the share of its rate that came through; 0 is a lost one."""

    probe: Probe
    share: float


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What would explain `witnesses` failed probes: any one of `parts`, at `share` of its rate."""

    parts: frozenset[str]
    share: float
    witnesses: int

    @property
    def part(self) -> str:
        """The first of the candidates."""
        return min(self.parts, key=_rank)


@dataclass(frozen=True, slots=True)
class Localised:
    """What a round says: suspicions, the most telling first; how many failed probes nothing explains."""

    suspicions: tuple[Suspicion, ...]
    unexplained: int = 0


def localise(outcomes: Iterable[Outcome]) -> Localised:
    """The fewest parts that explain the failed probes of one round."""
    known = list(outcomes)
    failed = [outcome for outcome in known if outcome.share < WHOLE]
    if not failed:
        return Localised(())
    suspects = {part for outcome in failed for part in outcome.probe.parts}
    best = best_shares(known, suspects)
    explained_by: dict[str, set[int]] = {}
    for number, outcome in enumerate(failed):
        for part in outcome.probe.parts:
            if best[part] <= outcome.share + TOLERANCE:
                explained_by.setdefault(part, set()).add(number)
    suspicions, left = [], set(range(len(failed)))
    while left and explained_by:
        explains = {part: numbers & left for part, numbers in explained_by.items() if numbers & left}
        if not explains:
            break
        first = min(explains, key=lambda part: (-len(explains[part]), _rank(part)))
        same = frozenset(part for part, numbers in explains.items() if numbers == explains[first])
        suspicions.append(Suspicion(_smallest(same), best[first], len(explains[first])))
        left -= explains[first]
    return Localised(tuple(suspicions), len(left))


def best_shares(outcomes: Iterable[Outcome], parts: Collection[str]) -> dict[str, float]:
    """For each of the parts, the best share that any probe over it got: what it carries at least."""
    best = dict.fromkeys(parts, 0.0)
    for outcome in outcomes:
        for part in outcome.probe.parts:
            if part in best and outcome.share > best[part]:
                best[part] = outcome.share
    return best


def confirmed(rounds: Sequence[Localised]) -> list[Suspicion]:
    """Suspicions of the newest round that the rounds before share, narrowed to the candidates common to them; only
    those where a single part is left. `rounds` are newest first, at least two."""
    if len(rounds) < 2:
        return []
    found = []
    for suspicion in rounds[0].suspicions:
        parts, seen, witnesses = suspicion.parts, 1, suspicion.witnesses
        for earlier in rounds[1:]:
            match = next((each for each in earlier.suspicions if each.parts & parts), None)
            if match is None:
                break
            parts, seen, witnesses = parts & match.parts, seen + 1, witnesses + match.witnesses
        if seen >= 2 and len(parts) == 1:
            found.append(Suspicion(parts, suspicion.share, witnesses))
    return found


def _smallest(parts: frozenset[str]) -> frozenset[str]:
    """Of parts that explain the same, a switch is no better an explanation than the one link to it that failed; and a
    node none than its switch."""
    least = min(_rank(part)[0] for part in parts)
    return frozenset(part for part in parts if _rank(part)[0] == least)


def _rank(part: str) -> tuple[int, str]:
    """Links, then switches, then nodes."""
    if "." in part:
        return 0, part
    return (1 if "-l1p" in part or "-l2p" in part or "-leaf" in part else 2), part
