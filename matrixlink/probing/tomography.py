"""localise: which part explains all failed probes of a round.

The method is Boolean network tomography (Duffield, "Network tomography of binary network performance characteristics",
IEEE Trans. Inf. Theory 2006; the smallest consistent failure set, found greedily): a part on a probe that passed is
cleared; of the others, the part that explains the most failed probes is taken, and so on until all are explained. Parts
that explain exactly the same probes form one suspicion with several candidates: a single round with few witnesses may
not distinguish them, and the next round, with other paths, will (`confirmed`). A probe that came through at a share of
its rate only clears parts up to that share. Deterministic: ties go to the smaller part (link, then switch, then node),
then to the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixlink.probing.plan import Parts

PASS_SHARE = 0.999
"""A probe with this share of its rate counts as passed: rates are measured with an error."""
SHARE_TOLERANCE = 0.02
"""Shares this close are equal."""
SUSPICIONS_MAX = 64
"""If more than this is broken at once, the parts that explain the most come first and the others in later rounds."""

Shares = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ProbeOutcomes:
    """Probes of a round: a row of part numbers for each (-1: none), and the share of its rate that came through (0:
    lost)."""

    parts: Parts
    shares: Shares

    def best(self, part: int) -> float:
        """The best share of any probe over a part; 0 if there is none."""
        over = (self.parts == part).any(axis=1)
        return float(self.shares[over].max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A possible explanation of `witnesses` failed probes: any one of `parts`, at `share` of its rate."""

    parts: frozenset[int]
    share: float
    witnesses: int

    @property
    def part(self) -> int:
        """The first of the candidates."""
        return min(self.parts)


@dataclass(frozen=True, slots=True)
class LocalisationResult:
    """The conclusions from a round: suspicions, those with the most witnesses first, and the number of unexplained
    failures."""

    suspicions: tuple[Suspicion, ...]
    unexplained: int = 0


def localise(outcomes: ProbeOutcomes) -> LocalisationResult:
    """The fewest parts that explain the failed probes of one round."""
    failing = outcomes.shares < PASS_SHARE
    if not failing.any():
        return LocalisationResult(())
    best = _best_shares(outcomes)
    parts, shares = outcomes.parts[failing], outcomes.shares[failing]
    explains = (parts >= 0) & (best[parts] <= shares[:, None] + SHARE_TOLERANCE)
    row, column = np.nonzero(explains)
    suspect = parts[row, column]  # one entry for each failed probe and part that would explain it
    suspicions: list[Suspicion] = []
    left = np.ones(len(parts), bool)
    while len(suspect) and len(suspicions) < SUSPICIONS_MAX:
        count = np.bincount(suspect, minlength=1)
        first = int(count.argmax())  # the lowest number among those: the smallest part
        witnesses = row[suspect == first]
        same = _equivalent_parts(suspect, row, count, first, witnesses)
        suspicions.append(Suspicion(same, float(best[first]), len(witnesses)))
        left[witnesses] = False
        still = left[row]
        suspect, row = suspect[still], row[still]
    return LocalisationResult(tuple(suspicions), int(left.sum()))


def _best_shares(outcomes: ProbeOutcomes) -> Shares:
    """By part number, the best share of any probe over it: the least that the part carries."""
    best = np.zeros(int(outcomes.parts.max()) + 1)
    current = outcomes.parts >= 0
    np.maximum.at(best, outcomes.parts[current], np.repeat(outcomes.shares, current.sum(axis=1)))
    return best


def _equivalent_parts(
    suspect: NDArray[np.int32],
    row: NDArray[np.int64],
    count: NDArray[np.int64],
    first: int,
    witnesses: NDArray[np.int64],
) -> frozenset[int]:
    """The parts of the same kind that explain exactly the same probes. Only parts of the smallest kind are
    candidates: a switch that explains no more than one of its links is no better explanation, nor is a node compared
    to its switch."""
    rivals = np.flatnonzero(count == len(witnesses))
    wanted = set(witnesses.tolist())
    return frozenset(int(each) for each in rivals if each == first or set(row[suspect == each].tolist()) == wanted)


def confirmed_suspicions(rounds: Sequence[LocalisationResult]) -> list[Suspicion]:
    """Suspicions of the newest round that the previous rounds share, narrowed to their common candidates; only those
    with a single part left. `rounds` are newest first, at least two."""
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
