"""Bandwidth reservations in the engine: a tenant on 16 nodes, a protected one, the effect of a failure, reassigned
floors.

The ledger holds 96 slices: for each of the 48 nodes of a supernode one slice of that node and one of that node and its
neighbour; half of them are protected. Tables are not written: routes are chosen, and floors booked and released, in
memory. OpenSM on ibsim takes 0.15 to 0.28 s to add a tenant to, or remove it from, 16 ports (another project's study,
same class of machine).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import StaticPool, create_engine
from sqlalchemy.orm import sessionmaker

from benchmarks import Figure
from matrixcommon.model.planes import Plane
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.table_cache import CachingSession
from matrixlink.admission.admission import BandwidthRequest, admit, reallocate
from matrixlink.admission.admission_state import AdmissionState
from matrixlink.admission.slice_index import SliceState
from matrixlink.admission.what_if import what_if
from matrixlink.contract.what_if import WhatIfRequest
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import Protection
from matrixlink.routing.routing import choose_needs, choose_routes
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import Base
from matrixresource.topology import Supernode
from tests.clocks import FixedClock

TRIES = 30


def measure() -> Iterator[Figure]:
    promises = fill_fabric()
    nodes = promises.fabric.nodes()[:16]
    for name, level in (("a tenant", Protection.NONE), ("a tenant that survives any L2 chip", Protection.ANY_L2_CHIP)):

        def come_and_go(level: Protection = level) -> None:
            terms = slice_promise("new", nodes, 20.0, level, 1000)
            promises.book(terms, None, dry=False)
            choose_routes(promises.fabric, Plane.UB, nodes)
            promises.release("new")

        took = median_ms(come_and_go)
        method = f"routes chosen, floors checked, booked in both books and given back; median of {TRIES}"
        yield Figure(f"{name} added to and taken from 16 nodes", took, "ms", f"{method}; OpenSM 150-280", 10)
    for part in ("sn0-l2p3-k11", "sn0-c00", "sn0-ub-p2"):
        asked = WhatIfRequest(fail=[part])
        view = what_if(promises, asked)
        took = median_ms(lambda asked=asked: what_if(promises, asked), 7)  # type: ignore[misc]
        affected = f"{len(view.slices)} of 96 slices judged; median of 7; vendors' pre-change checks take minutes"
        yield Figure(f"what if {part} fails", took, "ms", affected)
    yield from measure_after_loss(promises)
    yield Figure(
        "one reservation over a node's 224 links",
        reservation_us(),
        "us",
        "admit and put, median of 1,000; asked for 28 links",
        100,
    )


def measure_after_loss(promises: AdmissionState) -> Iterator[Figure]:
    fabric = promises.fabric

    def lose_and_repair() -> None:
        for gbps in (0.0, 28.0):
            for node in fabric.nodes():
                fabric.set_ports(node, {"ub-p3-k11": gbps})
            reallocate(promises.ledger, [promises.claim(terms) for terms in promises.slices], promises.healthy_ledger)

    took = median_ms(lose_and_repair, 7) / 2
    yield Figure(
        "an L2 chip lost or repaired: 96 floors anew", took, "ms", "needs, three passes of regrant; median of 7"
    )


def fill_fabric() -> AdmissionState:
    """Reservations on a fabric of one supernode, with empty tables that are never written."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine, class_=CachingSession, expire_on_commit=False)
    store = LinkStore(Database(sessions, Base.metadata, FixedClock()))
    fabric = Fabric([Supernode()])
    promises = AdmissionState(store, fabric)
    names = fabric.nodes()
    for at, node in enumerate(names):
        levels = (Protection.ANY_L2_CHIP, Protection.NONE) if at % 2 else (Protection.NONE, Protection.ANY_CABLE)
        for which, members in enumerate(([node], [node, names[at - 1]])):
            terms = slice_promise(f"s{at}-{which}", members, 100.0, levels[which], 2 * at + which)
            promises.slices.put(promises.book(terms, None, dry=False))
    return promises


def slice_promise(name: str, members: list[str], floor: float, level: Protection, order: int) -> SliceState:
    return SliceState(
        name, "default", Plane.UB, tuple(members), floor, None, 4.0, (0, order), level, "partitionKey", order + 2,
        1.0, "", {}, {}, False, True,
    )  # fmt: skip


def median_ms(action: Callable[[], Any], tries: int = TRIES) -> float:
    """Return the median milliseconds of the tries, after a warm-up."""
    took = []
    action()
    for _ in range(tries):
        begun = time.perf_counter_ns()
        action()
        took.append((time.perf_counter_ns() - begun) / 1e6)
    return statistics.median(took)


def reservation_us() -> float:
    """Return the microseconds to check and book one node's floors (224 links) beside those of others."""
    promises = fill_fabric()
    needs = choose_needs(promises.fabric, Plane.UB, promises.fabric.nodes()[:1])
    claim = BandwidthRequest("asked", Plane.UB, needs, 10.0)
    took = []
    for _ in range(1000):
        begun = time.perf_counter_ns()
        promises.ledger.put("asked", admit(promises.ledger, claim))
        took.append((time.perf_counter_ns() - begun) / 1e3)
        promises.ledger.release("asked")
    return statistics.median(took)


if __name__ == "__main__":
    for figure in measure():
        print(figure.line())
