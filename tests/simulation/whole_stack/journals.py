"""Journals: what the services' databases say of every resource, followed commit by commit, judged by the accountant.

A service writes the view of whatever it changes into its journal in the same commit. These views are those that REST
shows, so the same `audit` judges them after every event, for what one query and a few dictionaries cost. What REST
works out from several (counts of supernodes, links) is judged where the accountant reads REST itself.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from matrixcommon.model.resource_key import key_of, project_of
from matrixresource.nodes.states import NODE_STATES
from tests.accounting import Acknowledged, audit
from tests.accounting_promises import NPUS, npus_promised, within_quotas
from tests.rest_lists import LISTS, Item, Lists

COLLECTIONS = {"scaling policy": "scaling-policies"}
"""Of kinds whose collection is not their name with an s, which the accountant who reads REST leaves out."""


class Journals:
    """`follow` after each commit; `broken` says which promises what was followed so far breaks."""

    def __init__(self, folder: Path) -> None:
        self._read = {name: sqlite3.connect(folder / f"{name}.db", isolation_level=None) for name in LISTS}
        self._rv = dict.fromkeys(LISTS, 0)
        self._of: dict[str, dict[str, Item]] = {f"{noun}s": {} for nouns in LISTS.values() for noun in _singular(nouns)}
        self._illegal: list[str] = []
        self._changed = True
        self._before: Lists | None = None
        self._granted: set[str] = set()
        """Allocations that were to move when their project's quota was set: what they come to was granted before."""
        self.commits = 0
        self.hash = hashlib.sha256()
        """Of every change there was."""
        self.planes: list[Item] = []
        self._of |= {collection: {} for collection in COLLECTIONS.values()}
        del self._of["supernodes"]  # which are counted from their nodes
        for name in LISTS:
            self.follow(name)
        self.commits, self._illegal = 0, []

    def close(self) -> None:
        for connection in self._read.values():
            connection.close()

    def follow(self, service: str) -> None:
        """Take in what this service has committed since."""
        rows = self._read[service].execute(
            "SELECT rv, kind, name, type, body FROM changes WHERE rv > ? ORDER BY rv", (self._rv[service],)
        ).fetchall()  # fmt: skip
        for rv, kind, name, type_, body in rows:
            self._rv[service] = rv
            self.hash.update(f"{service} {rv} {kind} {name} {type_} {body}\n".encode())
            if kind == "quota":  # until here the one before it held, and from here on what is held already may stay
                self._illegal += within_quotas(self.lists, self._before)
            self._take(kind, name, None if type_ == "DELETED" else orjson.loads(body))
            if kind == "quota":
                self._note_quotas(self.lists)
                self._granted |= {key for key, each in self._of["allocations"].items() if _moves(each)}
        self._changed = self._changed or bool(rows)
        self.commits += bool(rows)

    def _take(self, kind: str, name: str, shown: Item | None) -> None:
        """A resource as it is from now on; None: it is gone."""
        current = self._of.get(COLLECTIONS.get(kind, f"{kind}s"))
        if current is None:
            return
        if shown is None:
            current.pop(name, None)
            return
        if kind == "node" and name in current:  # others are moved by their tables; a node's state is worked out
            before, after = current[name]["state"], shown["state"]
            if before != after and after not in NODE_STATES.moves[before]:
                self._illegal.append(f"node {name} went from {before} to {after}")
        if kind == "allocation" and name in self._granted and not _moves(shown):
            self._granted.discard(name)
            grown = _npus_charged(shown) - _npus_charged(current[name])
            for quota in self._before["quotas"] if self._before is not None else ():
                if quota["name"] == shown["project"]:
                    quota["usedNpus"] += max(0.0, grown)
        current[name] = shown

    def _note_quotas(self, lists: Lists) -> None:
        """What each project holds, to tell later who went above a quota from who was above it when it was set."""
        self._before = Lists({"quotas": [dict(quota) for quota in lists["quotas"]]})

    @property
    def lists(self) -> Lists:
        """As REST would show them."""
        lists = Lists({collection: list(current.values()) for collection, current in self._of.items()})
        lists.of["planes"] = self.planes
        used = _npus_used(lists["allocations"], lists["reservations"])
        for quota in lists["quotas"]:
            quota |= {"usedNpus": used[quota["name"]], "usedCpus": 0, "usedMemoryGib": 0}
        return lists

    def broken(self, acknowledged: Acknowledged) -> list[str]:
        """Every promise that does not hold now; nothing is looked at twice."""
        if not self._changed:
            return []
        self._changed = False
        lists = self.lists
        found = self._illegal + audit(lists, acknowledged=acknowledged, before=self._before)
        if lists["quotas"]:
            self._note_quotas(lists)
        return found

    def unsettled(self, acknowledged: Acknowledged) -> list[str]:
        """What is still to come once nothing disturbs any more."""
        return audit(self.lists, settled=True, acknowledged=acknowledged)

    def left(self) -> list[str]:
        """What has not been given back yet."""
        names = ("instances", "slices", "programs", "peerings", "allocations", "scaling-policies")
        return [f"{name} {key} is left" for name in names for key in self._of[name]]


def _singular(nouns: tuple[str, ...]) -> Iterator[str]:
    return (noun.removesuffix("s") for noun in nouns)


def _npus_used(allocations: list[Item], reservations: list[Item]) -> Counter[str]:
    """By project, what it holds and what is promised to it, which counts from the promise on: a reservation that comes
    to be held adds nothing. Sockets and memory are left to the accountant who reads REST."""
    used: Counter[str] = Counter()
    for allocation in allocations:
        project = project_of(key_of(allocation["project"], allocation["name"]))
        used[project] += _npus_charged(allocation)  # type: ignore[assignment]
    for reservation in reservations:
        used[reservation["project"]] += npus_promised(reservation)  # type: ignore[assignment]
    return used


def _npus_charged(allocation: Item) -> float:
    if allocation["state"] == "Releasing":
        return 0.0
    spares = sum(member["role"] == "spare" for member in allocation["members"])
    # A spare that took a member's place counts until another is found.
    charged = float(NPUS * max(0, (allocation.get("spares") or 0) - spares))
    for member in allocation["members"]:
        whole = member.get("npus") is None and member["role"] != "pool"
        dies: Any = range(16) if whole else member.get("dies") or ()
        charged += len(dies) / 2 if member["role"] != "successor" else 0
    return charged


def _moves(allocation: Item) -> bool:
    """Whether it has somebody to step in. What its change asks for is charged from then on, which only quotas show."""
    return any(member["role"] == "successor" for member in allocation["members"])
