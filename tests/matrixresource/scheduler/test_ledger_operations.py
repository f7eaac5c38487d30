"""Whatever is asked, changed, lost and brought back: nothing is held twice, rules hold, the index is as made anew."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from benchmarks.allocator.ledger_verbs import (
    activate_due,
    cancel,
    claim,
    expire,
    extend,
    grow,
    move,
    rebuild_index,
    reserve,
    shrink,
)
from benchmarks.placement import Replay, request_of
from matrixresource.scheduler.model.request import Placement
from tests.matrixresource.scheduler.checker import LedgerChecker, Promise, Tenant

TOPOLOGY = {"supernodes": 3, "cabinets": 3, "nodes": 4, "npus": 8, "cpus": 4, "mem_gib": 1536}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request with any rules beside one another."""
    asked: dict[str, Any] = {}
    kind = draw(st.sampled_from(["part", "gang", "partial gang", "pool"]))
    if kind == "part":
        asked["npus"] = draw(st.sampled_from([0.5, 1, 2, 3, 4, 6, 8]))
    elif kind == "gang":
        asked["npus"] = 8 * draw(st.integers(2, 20))
        if draw(st.booleans()):
            asked["block"] = draw(st.sampled_from([16, 32]))
        if draw(st.integers(0, 2)) == 0:
            asked["cell"] = draw(st.sampled_from([16, 24, 32]))
    elif kind == "partial gang":
        asked["per_node"] = draw(st.sampled_from([1, 2, 4]))
        asked["npus"] = asked["per_node"] * draw(st.integers(2, 6))
    if kind == "pool" or draw(st.integers(0, 4)) == 0:
        asked["cpus"] = draw(st.integers(1, 20))
        asked["mem"] = draw(st.integers(1, 9000))
    if draw(st.integers(0, 2)) == 0:
        asked["within"] = draw(st.sampled_from(["cabinet", "supernode"]))
    if asked.get("npus", 0) > 8 and draw(st.integers(0, 2)) == 0:
        asked["spread"] = {"over": "cabinet", "max": draw(st.integers(1, 3))}
    if asked.get("npus", 0) >= 8 and draw(st.integers(0, 2)) == 0:
        asked["spares"] = draw(st.integers(1, 2))
    if draw(st.booleans()):
        asked["lease_s"] = draw(st.integers(1, 40))
    if draw(st.integers(0, 2)) == 0:
        asked |= {"prio": draw(st.integers(0, 2)), "preempt": True}
    return asked


class LedgerOperations(RuleBasedStateMachine):
    """Random life of a small machine, watched by an accountant with a model of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = Replay(TOPOLOGY)
        self.accountant = LedgerChecker(TOPOLOGY)
        self.count = 0
        self.now = 0.0

    def follow(self, event: dict[str, Any]) -> None:
        self.now += 1.0
        event["t"] = self.now
        decisions = list(self.replay.run([event]))
        self.accountant.follow(event, decisions[0] if decisions else {})

    @rule(asked=requests(), near=st.integers(0, 5), key=st.sampled_from(["", "", "affinity", "anti_affinity"]))
    def allocate(self, asked: dict[str, Any], near: int, key: str) -> None:
        living = sorted(self.accountant.live)
        if key and living and asked.get("npus"):
            asked[key] = {
                "over": "cabinet",
                {"affinity": "to", "anti_affinity": "from"}[key]: [living[near % len(living)]],
            }
        self.count += 1
        self.follow({"op": "alloc", "id": f"j{self.count}"} | asked)

    @precondition(lambda self: self.accountant.live)
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        living = sorted(self.accountant.live)
        self.follow({"op": "free", "id": living[which % len(living)]})

    @rule(node=st.integers(0, 35))
    def fail(self, node: int) -> None:
        if self.replay.names[node] not in self.accountant.down:
            self.follow({"op": "fail_node", "node": self.replay.names[node]})

    @rule(node=st.integers(0, 35))
    def recover(self, node: int) -> None:
        if self.replay.names[node] not in self.accountant.closed:
            self.follow({"op": "recover_node", "node": self.replay.names[node]})

    @rule(cabinet=st.integers(0, 8), up=st.booleans())
    def close_or_open(self, cabinet: int, up: bool) -> None:
        for node in range(cabinet * 4, cabinet * 4 + 4):
            name = self.replay.names[node]
            if up:
                self.accountant.closed.discard(name)
            else:
                self.accountant.closed.add(name)
            self.replay.ledger.set_up(node, up and name not in self.accountant.down)

    @rule(node=st.integers(0, 35), dies=st.sampled_from([0, 1, 0b1100, 0xFF00, 0xFFFF]))
    def break_or_repair(self, node: int, dies: int) -> None:
        """Whoever holds broken dies keeps them; nobody new comes."""
        name, accountant = self.replay.names[node], self.accountant
        accountant.broken = {die for die in accountant.broken if die[0] != name}
        accountant.broken |= {(name, die) for die in range(16) if dies >> die & 1}
        self.replay.ledger.index.set_faulty_dies(node, dies)

    # ---- changes in place

    def changeable(self) -> list[str]:
        live = self.accountant.live
        return sorted(n for n in live if n not in self.replay.ledger.reservations and not live[n].event.get("rest"))

    def one(self, which: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """An allocation, what it asked for and its place."""
        living = self.changeable()
        name = living[which % len(living)]
        tenant = self.accountant.live[name]
        return name, tenant.event, tenant.place

    def change(self, name: str, event: dict[str, Any], place: Placement | None) -> dict[str, Any] | None:
        if place is None:
            return None
        reported = self.replay.placement_document(place)
        self.accountant.change(name, {"t": self.now} | event, reported)
        return reported

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50), more=st.integers(0, 4), spares=st.integers(0, 1), cpus=st.integers(0, 6))
    def grow(self, which: int, more: int, spares: int, cpus: int) -> None:
        name, event, before = self.one(which)
        asked = event | {"t": self.now}
        if asked.get("npus", 0) >= 8 or asked.get("per_node"):
            asked["npus"] += more * asked.get("block", asked.get("cell", asked.get("per_node") or 8))
            asked["spares"] = asked.get("spares", 0) + spares
        elif asked.get("npus", 0) >= 1:
            asked["npus"] = min(8, asked["npus"] + more)
        asked["cpus"] = asked.get("cpus", 0) + cpus
        reported = self.change(name, asked, grow(self.replay.ledger, name, request_of(asked, self.now)))
        if reported is not None:
            assert set(self.accountant.dies_of(before)) <= set(self.accountant.dies_of(reported))
            assert all(reported["cpu"][node] >= amount for node, amount in before.get("cpu", {}).items())
            assert len(reported.get("spare", ())) == len(before.get("spare", ())) + asked.get("spares", 0) - event.get(
                "spares", 0
            )

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50), less=st.integers(0, 4), spares=st.integers(0, 2), seed=st.randoms())
    def shrink(self, which: int, less: int, spares: int, seed: Random) -> None:
        name, event, before = self.one(which)
        asked = event | {"t": self.now}
        per = asked.get("per_node") or min(asked.get("npus", 0), 8)
        ranks = [self.replay.numbers[node] for node in before.get("npu", {})]
        seed.shuffle(ranks)
        if len(ranks) > less:
            asked["npus"] -= less * per
        asked |= {"spares": min(spares, asked.get("spares", 0)), "cpus": asked.get("cpus", 0) // 2}
        request = request_of(asked, self.now)
        if request.nodes % request.supernode_block:
            return
        try:
            reported = self.change(name, asked, shrink(self.replay.ledger, name, request, ranks))
        except ValueError:
            # ranks out of order cut a block or a cell, or the lease begins anew and reaches into a reservation
            assert (
                request.supernode_block > 1
                or request.cabinet_block > 1
                or (request.lease_end < inf and self.accountant.promised)
            )
            return
        assert reported is not None
        assert [self.replay.numbers[node] in ranks[: request.nodes] for node in reported["npu"]] == [
            True
        ] * request.nodes
        assert set(self.accountant.dies_of(reported)) <= set(self.accountant.dies_of(before))

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50), seed=st.randoms())
    def replace(self, which: int, seed: Random) -> None:
        name, event, before = self.one(which)
        gone = seed.choice(sorted(self.accountant.used(before)))
        avoid = frozenset(seed.sample(range(36), 6))
        reported = self.change(name, event, self.replay.ledger.replace(name, self.replay.numbers[gone], avoid))
        if reported is not None:
            used, had = self.accountant.used(reported), self.accountant.used(before)
            assert gone not in used
            assert not (used - had) & {self.replay.names[node] for node in avoid}
            assert set(before["npu"]) - {gone} <= set(reported["npu"])

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50), asked=requests())
    def move(self, which: int, asked: dict[str, Any]) -> None:
        name, _, _ = self.one(which)
        self.change(name, asked, move(self.replay.ledger, name, request_of(asked, self.now)))

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50))
    def refill(self, which: int) -> None:
        name, event, before = self.one(which)
        reported = self.change(name, event, self.replay.ledger.refill(name))
        assert reported is not None
        assert set(before.get("spare", ())) <= set(reported.get("spare", ()))

    # ---- reservations

    @rule(asked=requests(), ahead=st.integers(0, 20), stay=st.integers(1, 30))
    def reserve(self, asked: dict[str, Any], ahead: int, stay: int) -> None:
        self.count += 1
        name, start = f"r{self.count}", self.now + ahead
        event = {"op": "alloc", "t": self.now} | asked | {"lease_s": start + stay - self.now}
        place = reserve(self.replay.ledger, name, request_of(event, self.now), start, start + stay)
        if place is not None:
            reported = self.replay.placement_document(place)
            self.accountant.promise(name, Promise(event, reported, self.now, start, start + stay))

    @rule(seconds=st.integers(1, 10))
    def wait(self, seconds: int) -> None:
        """Reservations past their end go, then those whose start has come are held."""
        self.now += seconds
        ledger, accountant = self.replay.ledger, self.accountant
        ended, left = expire(ledger, self.now)
        for name in ended:
            gone = accountant.promised.pop(name, None) or accountant.live.pop(name)
            assert gone.until <= self.now
        assert left == sorted(name for name, tenant in accountant.live.items() if tenant.until <= self.now)
        current, failed = activate_due(ledger, self.now)
        waiting = {name for name, promise in accountant.promised.items() if promise.start <= self.now}
        assert {*current, *failed} == waiting
        for name, place in current.items():
            promise, reported = accountant.promised.pop(name), self.replay.placement_document(place)
            accountant.check(name, promise.event, reported, before=promise.place)
            accountant.live[name] = Tenant(promise.event, reported, self.now)
            assert not accountant.broken & set(accountant.dies_of(reported))
        overdue = [name for name, tenant in accountant.live.items() if tenant.until <= self.now]
        if not overdue and not accountant.down | accountant.closed and not accountant.broken:
            assert failed == []

    @precondition(lambda self: set(self.accountant.live) & set(self.replay.ledger.reservations))
    @rule(which=st.integers(0, 9), asked=requests(), whole=st.booleans())
    def claim(self, which: int, asked: dict[str, Any], whole: bool) -> None:
        ledger, accountant = self.replay.ledger, self.accountant
        names = sorted(set(accountant.live) & set(ledger.reservations))
        name = names[which % len(names)]
        tenant = accountant.live[name]
        self.count += 1
        event = {"op": "alloc", "t": self.now} | asked
        place = claim(ledger, name, f"j{self.count}", None if whole else request_of(event, self.now), self.now)
        if place is None:
            assert not whole
            return
        reported = self.replay.placement_document(place)
        rest = self.replay.placement_document(ledger.allocations[name].place) if name in ledger.allocations else {}
        pieces = accountant.dies_of(reported) + accountant.dies_of(rest)
        assert sorted(pieces) == sorted(accountant.dies_of(tenant.place))
        for key in ("cpu", "mem"):
            assert Counter(reported.get(key, {})) + Counter(rest.get(key, {})) == Counter(tenant.place.get(key, {}))
        if rest:
            accountant.live[name] = Tenant(tenant.event | {"rest": True}, rest, tenant.since)
        else:
            del accountant.live[name]
        event = tenant.event if whole else event
        accountant.check(f"j{self.count}", event, reported, repair=whole, before=tenant.place)
        accountant.live[f"j{self.count}"] = Tenant(event, reported, self.now)

    @precondition(lambda self: self.replay.ledger.reservations)
    @rule(which=st.integers(0, 9))
    def cancel(self, which: int) -> None:
        names = sorted(self.replay.ledger.reservations)
        name = names[which % len(names)]
        cancel(self.replay.ledger, name)
        if self.accountant.promised.pop(name, None) is None:
            del self.accountant.live[name]

    @precondition(lambda self: self.changeable())
    @rule(which=st.integers(0, 50), seconds=st.integers(0, 60))
    def extend(self, which: int, seconds: int) -> None:
        name, event, _ = self.one(which)
        if extend(self.replay.ledger, name, self.now + seconds):
            self.accountant.live[name].event = event | {"t": self.now, "lease_s": seconds}

    @invariant()
    def what_is_promised_is_kept(self) -> None:
        assert self.accountant.kept() == []
        ledger = self.replay.ledger
        assert set(ledger.reservations) == set(self.accountant.promised) | {
            n for n, r in ledger.reservations.items() if r.holds
        }

    @invariant()
    def nothing_is_allocated_twice_and_every_rule_holds(self) -> None:
        assert self.accountant.wrong == []
        assert sorted(self.accountant.live) == sorted(self.replay.ledger.allocations)

    @invariant()
    def the_index_is_what_it_would_be_anew(self) -> None:
        index, anew = self.replay.ledger.index, rebuild_index(self.replay.ledger)
        assert index.state() == anew.state()
        assert (index.dies, index.cpus, index.mem) == (anew.dies, anew.cpus, anew.mem)
        assert (index.faulty_dies, index.idle_faulty) == (anew.faulty_dies, anew.idle_faulty)


TestMachine = LedgerOperations.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
