"""Replay request sequences through the allocator: `python -m benchmarks.placement SEQUENCE --decisions OUT`.

    python -m benchmarks.placement SEQUENCE.jsonl[.gz] --decisions OUT.jsonl [--policy NAME]

The format is that of the allocation data set (one event per line; the first describes the machine). Every decision uses
only earlier events; requests with the same time are decided together. `us` is the time to choose and commit in this
process, in microseconds, without reading and writing files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.allocator import batch, node_repair
from benchmarks.allocator.ledger_verbs import hold
from matrixresource.scheduler.defragment import defragmentation
from matrixresource.scheduler.ledger import Ledger
from matrixresource.scheduler.model.best_fit import POLICIES
from matrixresource.scheduler.model.cluster_shape import ClusterShape
from matrixresource.scheduler.model.request import DomainConstraint, Placement, PlacementRequest

Event = dict[str, Any]


class Replay:
    """Replays one sequence on one ledger."""

    def __init__(self, topology: Event, policy: str = "best") -> None:
        self.shape = ClusterShape(
            topology["supernodes"],
            topology["cabinets"],
            topology["nodes"],
            topology["npus"],
            topology.get("cpus", 0),
            topology.get("mem_gib", 0),
        )
        self.ledger = Ledger(self.shape, POLICIES[policy])
        self.names = [
            f"s{s}-c{c}-n{n}"
            for s in range(self.shape.supernodes)
            for c in range(self.shape.cabinets)
            for n in range(self.shape.nodes)
        ]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.moves = bool(topology.get("moves"))

    def run(self, events: list[Event]) -> Iterator[Event]:
        """Yield the decisions, each with the line of its event."""
        done = 0
        for line, event in enumerate(events, 1):
            op, now = event["op"], event.get("t", 0.0)
            if line <= done:
                continue
            if op == "alloc":
                together = list(takewhile(lambda other: is_batchable_at(other, now), events[line - 1 :]))  # noqa: B023
                if len(together) > 1:
                    done = line + len(together) - 1
                    yield from self.allocate_together(line, together, now)
                else:
                    yield {"i": line} | self.allocate(event, now)
            elif op == "free":
                if event["id"] in self.ledger.allocations:
                    self.ledger.release(event["id"])
            elif op == "held":
                hold(self.ledger, event["id"], request_of(event, now), self.place_of(event["place"]), now)
            elif op == "fail_node":
                yield {"i": line} | self.fail(self.numbers[event["node"]])
            elif op == "recover_node":
                self.ledger.set_up(self.numbers[event["node"]], True)
            elif op != "end":
                raise ValueError(f"line {line}: unknown op {op!r}")

    def allocate(self, event: Event, now: float) -> Event:
        request = request_of(event, now)
        begun = time.perf_counter_ns()
        place, evicted = self.ledger.allocate(event["id"], request, now)
        moved = self.allocate_with_moves(event["id"], request, now) if place is None and self.moves else None
        took = (time.perf_counter_ns() - begun) / 1000
        reported: Event = {"place": self.placement_document(place) if place else None, "us": round(took, 2)}
        if moved:
            reported |= moved
        if evicted:
            reported["evict"] = evicted
        return reported

    def allocate_together(self, line: int, events: list[Event], now: float) -> Iterator[Event]:
        requests = {event["id"]: request_of(event, now) for event in events}
        begun = time.perf_counter_ns()
        placed = batch.allocate_together(self.ledger, requests, now, random.Random(len(requests)))
        took = (time.perf_counter_ns() - begun) / 1000 / len(events)
        for number, event in enumerate(events, line):
            place = placed[event["id"]]
            yield {"i": number, "place": self.placement_document(place) if place else None, "us": round(took, 2)}

    def allocate_with_moves(self, name: str, request: PlacementRequest, now: float) -> Event | None:
        """Make room with the cheapest plan of moves, where moves are allowed."""
        plan = defragmentation.plan_evacuation(self.ledger, request)
        if plan is None:
            return None
        for other in plan.moves:
            self.ledger.remove_usage(other, self.ledger.allocations[other].place)
        for other, place in plan.moves.items():
            self.ledger.allocations[other].place = place
            self.ledger.add_usage(other, place)
        hold(self.ledger, name, request, plan.place, now)
        moves = {other: self.placement_document(place) for other, place in plan.moves.items()}
        return {"place": self.placement_document(plan.place), "move": moves}

    def fail(self, node: int) -> Event:
        begun = time.perf_counter_ns()
        moved, _ = node_repair.repair(self.ledger, node)
        took = (time.perf_counter_ns() - begun) / 1000
        return {
            "replace": {name: self.placement_document(place) for name, place in moved.items()},
            "us": round(took, 2),
        }

    # ---- places in words

    def placement_document(self, place: Placement) -> Event:
        nodes, names = self.shape.nodes, self.names
        offsets = self.ledger.index.offsets
        npu: dict[str, Any] = {names[c * nodes + o]: "*" for c, mask in place.whole for o in offsets(mask)}
        npu |= {names[n]: [d for d in range(2 * self.shape.npus) if dies >> d & 1] for n, dies in place.parts}
        reported: Event = {"npu": npu}
        if place.spares:
            reported["spare"] = [names[c * nodes + o] for c, mask in place.spares for o in offsets(mask)]
        if place.cpus:
            reported["cpu"] = {names[n]: amount for n, amount in place.cpus}
        if place.mem:
            reported["mem"] = {names[n]: amount for n, amount in place.mem}
        return reported

    def place_of(self, reported: Event) -> Placement:
        place, masks = Placement(), dict[int, int]()
        for name, dies in (reported.get("npu") or {}).items():
            node = self.numbers[name]
            if dies == "*":
                cabinet, offset = divmod(node, self.shape.nodes)
                masks[cabinet] = masks.get(cabinet, 0) | 1 << offset
            else:
                place.parts.append((node, sum(1 << die for die in dies)))
        place.whole = list(masks.items())
        spares: dict[int, int] = {}
        for name in reported.get("spare") or []:
            cabinet, offset = divmod(self.numbers[name], self.shape.nodes)
            spares[cabinet] = spares.get(cabinet, 0) | 1 << offset
        place.spares = list(spares.items())
        place.cpus = [(self.numbers[name], amount) for name, amount in (reported.get("cpu") or {}).items()]
        place.mem = [(self.numbers[name], amount) for name, amount in (reported.get("mem") or {}).items()]
        return place


def request_of(event: Event, now: float) -> PlacementRequest:
    """Return the request of an event."""
    npus = event.get("npus", 0)
    per = event.get("per_node") or min(npus, 8)
    spread, apart, near = event.get("spread"), event.get("apart"), event.get("near")
    return PlacementRequest(
        nodes=int(npus / per) if npus else 0,
        npus_per_node=per,
        required_domain=event.get("within", ""),
        supernode_block=nodes_per_block(event.get("block", 0), per),
        cabinet_block=nodes_per_block(event.get("cell", 0), per),
        spread=DomainConstraint(spread.get("over", "cabinet"), spread["max"]) if spread else None,
        anti_affinity=DomainConstraint(apart.get("over", "cabinet"), 0, tuple(apart["from"])) if apart else None,
        affinity=DomainConstraint(near.get("over", "cabinet"), 0, tuple(near["to"])) if near else None,
        spares=event.get("spares", 0),
        cpus=event.get("cpus", 0),
        mem=event.get("mem", 0),
        priority=event.get("prio", 0),
        preempts=bool(event.get("preempt")),
        weight=event.get("weight", 1),
        lease_end=now + event["lease_s"] if "lease_s" in event else float("inf"),
    )


def is_batchable_at(event: Event, now: float) -> bool:
    return event["op"] == "alloc" and event.get("t", 0.0) == now and "preempt" not in event


def nodes_per_block(npus: int, per: float) -> int:
    """Return the smallest number of nodes, with that many NPUs each, that is a whole number of blocks."""
    return int(npus // math.gcd(npus, int(per))) if npus and per >= 1 else 1


def read(path: Path) -> list[Event]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines if line.strip()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.placement", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("sequence", type=Path, help="a sequence, .jsonl or .jsonl.gz")
    parser.add_argument("--decisions", type=Path, required=True, help="where the decisions go, a line for each")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="best")
    given = parser.parse_args(argv)
    topology, *events = read(given.sequence)
    with given.decisions.open("w") as out:
        for decision in Replay(topology, given.policy).run(events):
            out.write(json.dumps(decision) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
