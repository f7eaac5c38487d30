"""An accountant who trusts nobody: checks places against a model of its own, die by die, and counts what was completed.

The rules are those of the allocation data set; node, cabinet and supernode are taken from the names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import Any

SIZES = {"node": 3, "cabinet": 2, "supernode": 1}


def domain(node: str, over: str) -> str:
    return "-".join(node.split("-")[: SIZES[over]])


@dataclass
class Tenant:
    event: dict[str, Any]
    place: dict[str, Any]
    since: float

    @property
    def until(self) -> float:
        """When it says it will leave."""
        return float(self.event["t"] + self.event["lease_s"]) if "lease_s" in self.event else inf


@dataclass
class Promise(Tenant):
    """A reservation that waits for its start."""

    start: float
    end: float

    @property
    def until(self) -> float:
        return self.end


@dataclass
class LedgerChecker:
    """`wrong` lists broken rules; `value` is completed weighted NPU-hours."""

    topology: dict[str, Any]
    live: dict[str, Tenant] = field(default_factory=dict)
    promised: dict[str, Promise] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    broken: set[tuple[str, int]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    value: float = 0.0
    moved: float = 0.0

    def dies_of(self, place: dict[str, Any]) -> list[tuple[str, int]]:
        every = range(2 * self.topology["npus"])
        spares = [(node, die) for node in place.get("spare", ()) for die in every]
        members = place.get("npu", {}).items()
        return [(node, die) for node, dies in members for die in (every if dies == "*" else dies)] + spares

    @staticmethod
    def used(place: dict[str, Any]) -> set[str]:
        return {*place.get("npu", {}), *place.get("spare", ()), *place.get("cpu", {}), *place.get("mem", {})}

    def change(self, name: str, event: dict[str, Any], place: dict[str, Any]) -> None:
        """An allocation has become another: checked like a new one, except that it may have kept what it had."""
        tenant = self.live[name]
        self.check(name, event, place, repair=True, before=tenant.place)
        tenant.event, tenant.place = {"op": "alloc"} | event, place

    def check(
        self,
        name: str,
        event: dict[str, Any],
        place: dict[str, Any],
        repair: bool = False,
        before: dict[str, Any] | None = None,
    ) -> None:
        """Everything the request asks for, and nothing anybody else holds; what it had `before` it may have kept."""
        reported = self.wrong.append
        current = {die for other, tenant in self.live.items() if other != name for die in self.dies_of(tenant.place)}
        mine = self.dies_of(place)
        nodes = list(place.get("npu", {}))
        if len(set(mine)) != len(mine) or current & set(mine):
            reported(f"{name}: a die is held twice")
        used = self.used(place)
        stayed = self.used(before) if before else set()
        if (used - stayed) & (self.down | self.closed):
            reported(f"{name}: a node is down")
        if self.broken & set(mine) - set(self.dies_of(before or {})):
            reported(f"{name}: a die is broken")
        if event.get("rest"):
            return  # what is left of a reservation answers no request
        npus = event.get("npus", 0)
        per = event.get("per_node") or min(npus, self.topology["npus"])
        if len(nodes) != (npus / per if npus else 0):
            reported(f"{name}: {len(nodes)} nodes for {npus} NPUs")
        for node, dies in place.get("npu", {}).items():
            listed = range(2 * self.topology["npus"]) if dies == "*" else dies
            if len(listed) != 2 * per or (per >= 1 and Counter(die // 2 for die in listed).most_common(1)[0][1] != 2):
                reported(f"{name}: {node} gives {len(listed)} dies, some of them half NPUs")
        self._pools(name, event, place)
        if (within := event.get("within")) and len({domain(node, within) for node in used}) > 1:
            reported(f"{name}: not inside one {within}")
        spares = len(place.get("spare", ()))
        if spares > event.get("spares", 0) or (spares < event.get("spares", 0) and not repair):
            reported(f"{name}: {len(place.get('spare', ()))} spares")
        if {domain(n, "supernode") for n in place.get("spare", ())} - {domain(n, "supernode") for n in nodes}:
            reported(f"{name}: a spare in a supernode without members")
        blocks = Counter(domain(node, "supernode") for node in nodes)
        if event.get("block") and any(count * per % event["block"] for count in blocks.values()):
            reported(f"{name}: a block is cut")
        cells = Counter(domain(node, "cabinet") for node in nodes)
        if event.get("cell") and any(count * per % event["cell"] for count in cells.values()):
            reported(f"{name}: a cell is cut")
        if spread := event.get("spread"):
            shares = Counter(domain(node, spread.get("over", "cabinet")) for node in nodes)
            if max(shares.values()) > spread["max"]:
                reported(f"{name}: spread broken")
        for key, others, inside in (("apart", "from", False), ("near", "to", True)):
            rule = event.get(key)
            for other in rule[others] if rule else ():
                if other in self.live:
                    over = rule.get("over", "cabinet")
                    theirs = {domain(node, over) for node in self.live[other].place.get("npu", {})}
                    if any((domain(node, over) in theirs) is not inside for node in nodes if node not in stayed):
                        reported(f"{name}: not {key} {other}")

    def _pools(self, name: str, event: dict[str, Any], place: dict[str, Any]) -> None:
        for key, most in (("cpu", self.topology.get("cpus", 0)), ("mem", self.topology.get("mem_gib", 0))):
            if sum(place.get(key, {}).values()) != event.get({"cpu": "cpus", "mem": "mem"}[key], 0):
                self.wrong.append(f"{name}: another amount of {key}")
            taken: Counter[str] = Counter(place.get(key, {}))
            for other, tenant in self.live.items():
                if other != name:
                    taken.update(tenant.place.get(key, {}))
            if any(amount > most for amount in taken.values()):
                self.wrong.append(f"{name}: {key} given twice")

    # ---- reservations

    def promise(self, name: str, promise: Promise) -> None:
        """Checked against those who say they will still be there and what else is promised for that time."""
        now = self.live
        self.live = {other: tenant for other, tenant in now.items() if tenant.until > promise.start}
        for other, each in self.promised.items():
            if self.overlap(promise, each):  # dies only: of sockets and GiB what counts is the time, see `kept`
                dies = {key: value for key, value in each.place.items() if key in ("npu", "spare")}
                self.live[other] = Tenant(each.event, dies, each.since)
        self.check(name, promise.event, promise.place)
        self.live = now
        self.promised[name] = promise

    @staticmethod
    def overlap(one: Promise, other: Promise) -> bool:
        return one.start < other.end and other.start < one.end

    def kept(self) -> list[str]:
        """What is promised and would not be free at its start, if everybody leaves when they reported."""
        wrong = []
        for name, promise in self.promised.items():
            there: dict[str, Tenant] = {o: t for o, t in self.live.items() if t.until > promise.start}
            there |= {o: p for o, p in self.promised.items() if p.start <= promise.start < p.end}
            dies = Counter(die for tenant in there.values() for die in self.dies_of(tenant.place))
            if dies and max(dies.values()) > 1:
                wrong.append(f"{name}: dies are promised and held")
            for key, most in (("cpu", self.topology["cpus"]), ("mem", self.topology["mem_gib"])):
                taken: Counter[str] = Counter()
                for tenant in there.values():
                    taken.update(tenant.place.get(key, {}))
                if any(amount > most for amount in taken.values()):
                    wrong.append(f"{name}: {key} promised and held")
        return wrong

    # ---- events

    def follow(self, event: dict[str, Any], decision: dict[str, Any]) -> None:
        """One event and what was decided about it."""
        op, now, name = event["op"], event.get("t", 0.0), event.get("id", "")
        if op == "held":
            self.live[name] = Tenant(event, event["place"], now)
        elif op == "alloc" and decision.get("place") is not None:
            for other in decision.get("evict", ()):
                loser = self.live.pop(other)
                if not event.get("preempt") or loser.event.get("prio", 0) >= event.get("prio", 0):
                    self.wrong.append(f"{name}: may not evict {other}")
            for other, place in decision.get("move", {}).items():
                tenant = self.live[other]
                per = tenant.event.get("per_node") or min(tenant.event["npus"], self.topology["npus"])
                before = tenant.place.get("npu", {})
                self.moved += per * sum(before.get(node) != dies for node, dies in place["npu"].items())
                tenant.place = place
            for other in decision.get("move", {}):
                self.check(other, self.live[other].event, self.live[other].place)
            self.check(name, event, decision["place"])
            self.live[name] = Tenant(event, decision["place"], now)
        elif op == "fail_node":
            self._lose(event["node"], decision.get("replace", {}))
        elif op == "recover_node":
            self.down.discard(event["node"])
        elif op == "free" and name in self.live:
            self._complete(name, now)
        elif op == "end":
            for name in list(self.live):
                self._complete(name, now)

    def _lose(self, node: str, repaired: dict[str, dict[str, Any]]) -> None:
        self.down.add(node)
        before = {name: tenant.place for name, tenant in self.live.items()}
        for name, tenant in list(self.live.items()):
            place = tenant.place
            members = {*place.get("npu", {}), *place.get("cpu", {}), *place.get("mem", {})}
            if name in repaired:
                tenant.place = repaired[name]
            elif node in members:
                del self.live[name]
            elif node in place.get("spare", ()):
                place["spare"] = [other for other in place["spare"] if other != node]
        for name in repaired:
            self.check(name, self.live[name].event, repaired[name], repair=True, before=before[name])

    def _complete(self, name: str, now: float) -> None:
        tenant = self.live.pop(name)
        if tenant.event["op"] != "held":
            share = tenant.event.get("npus", 0) / self.topology["npus"]
            share += tenant.event.get("cpus", 0) / (self.topology.get("cpus") or 1)
            share += tenant.event.get("mem", 0) / (self.topology.get("mem_gib") or 1)
            weight = tenant.event.get("weight", 1)
            self.value += share * self.topology["npus"] * weight * (now - tenant.since) / 3600
