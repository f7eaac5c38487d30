"""Durable admissions through REST: latency and rate, each admission on disk before it is acknowledged.

MatrixLink runs as a separate process, on SQLite and on PostgreSQL (`durable.py`). The fabric has eight supernodes; 32
slices stay admitted on nodes of their own. Each client repeatedly admits a slice on its own four nodes under a new name
(on the UB plane, Guaranteed, with a floor and protection against the loss of any L2 chip) and withdraws it again.
First, clients alternate both: admissions are counted, with as many withdrawals in between. Then all clients admit one
slice and, when all have, all withdraw, repeatedly: admissions alone and withdrawals alone. Last, the same on nodes that
two other slices share, whose views change with every admission and withdrawal.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise

from benchmarks import Figure
from benchmarks.durable import Connection, connect, on_each_database, run_concurrently, run_service
from matrixresource.topology import Supernode
from tests.e2e.resource_process import ResourceProcess

SECONDS, WARM_UP_S = 4.0, 1.0
CLIENTS = (1, 8, 32, 64)
ROUNDS = 15
NODES = [node for sn in range(8) for node in Supernode(f"sn{sn}").nodes()]
OWN, OTHERS = NODES[: 4 * CLIENTS[-1]], NODES[4 * CLIENTS[-1] :]
"""Nodes of the clients, four each, and of all other slices."""


class LinkProcess(ResourceProcess):
    service = "link"


def measure() -> Iterator[Figure]:
    yield from on_each_database(measure_on)


def measure_on(database: str, url: str) -> Iterator[Figure]:
    with run_service(LinkProcess, url, "--supernodes", "8") as link:
        others = [(f"other-{at}", OTHERS[2 * at : 2 * at + 2]) for at in range(32)]
        asyncio.run(admit_all(link, others))
        asyncio.run(Load(link).run(8, WARM_UP_S))
        for clients in CLIENTS:
            yield from measure_pair(Load(link), database, clients, "")
        load = Load(link)
        asyncio.run(load.run_in_rounds(CLIENTS[-1], ROUNDS))
        for verb, taken in (("admissions", load.admit_rounds_s), ("withdrawals", load.withdraw_rounds_s)):
            method = f"{CLIENTS[-1]} clients, {ROUNDS} rounds of one slice of four nodes each"
            name = f"durable {verb} alone, {database}, {CLIENTS[-1]} clients"
            yield Figure(name, CLIENTS[-1] * ROUNDS / sum(taken), "/s", method, None, 500)
        shared = [(f"shared-{at}", OWN[2 * at : 2 * at + 2]) for at in range(len(OWN) // 2)]
        asyncio.run(admit_all(link, shared))
        yield from measure_pair(Load(link), database, 32, ", shared nodes")


def measure_pair(load: Load, database: str, clients: int, where: str) -> Iterator[Figure]:
    asyncio.run(load.run(clients, SECONDS))
    method = f"{clients} clients for {SECONDS:g} s, {len(load.admitted)} PUTs of a slice of four nodes, as many DELETEs"
    p50 = statistics.median(load.admitted) * 1000
    if clients == 1:
        yield Figure(f"durable admission through REST, {database}, P50", p50, "ms", method)
        yield Figure("its withdrawal, P50", statistics.median(load.withdrawn) * 1000, "ms", method)
    else:
        name = f"durable admissions, as many withdrawals beside, {database}, {clients} clients{where}"
        text = f"{method}; P50 of a PUT {p50:.1f} ms"
        yield Figure(name, len(load.admitted) / SECONDS, "/s", text, None, None if where else 500)


def slice_spec(name: str, members: list[str], floor: float) -> bytes:
    desired = {
        "allocation": name, "instance": name, "plane": "ub", "members": members, "qosClass": "Guaranteed",
        "floorGbpsPerNpu": floor, "protection": "anyL2Chip",
    }  # fmt: skip
    return json.dumps(desired).encode()


async def admit_all(link: LinkProcess, slices: list[tuple[str, list[str]]]) -> None:
    async with connect(link) as to:
        for name, members in slices:
            await to.expect(200, "PUT", f"/v1/slices/{name}", slice_spec(name, members, 40.0))


@dataclass
class Load:
    """Seconds that the clients of one service measured: per request, or per round of all clients."""

    service: LinkProcess
    admitted: list[float] = field(default_factory=list)
    withdrawn: list[float] = field(default_factory=list)
    admit_rounds_s: list[float] = field(default_factory=list)
    withdraw_rounds_s: list[float] = field(default_factory=list)

    async def run(self, clients: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        await run_concurrently(clients, lambda number: self._client(number, ends))

    async def _client(self, number: int, ends: float) -> None:
        async with connect(self.service) as to:
            for made in count():
                if time.monotonic() >= ends:
                    return
                began = time.perf_counter()
                await admit(to, number, made)
                current = time.perf_counter()
                await withdraw(to, number, made)
                self.admitted.append(current - began)
                self.withdrawn.append(time.perf_counter() - current)

    async def run_in_rounds(self, clients: int, rounds: int) -> None:
        """All clients admit, and once all have, all withdraw."""
        barrier, taken = asyncio.Barrier(clients), [time.perf_counter()]

        async def client(number: int) -> None:
            async with connect(self.service) as to:
                for made in range(rounds):
                    for action in (admit, withdraw):
                        if await barrier.wait() == 0:
                            taken.append(time.perf_counter())
                        await action(to, number, made)
                if await barrier.wait() == 0:
                    taken.append(time.perf_counter())

        await run_concurrently(clients, client)
        rounds_run = [end - begin for begin, end in pairwise(taken[1:])]
        self.admit_rounds_s, self.withdraw_rounds_s = rounds_run[::2], rounds_run[1::2]


async def admit(to: Connection, number: int, made: int) -> None:
    name = f"bench-{os.getpid()}-{number}-{made}"
    await to.expect(200, "PUT", f"/v1/slices/{name}", slice_spec(name, OWN[4 * number : 4 * number + 4], 20.0))


async def withdraw(to: Connection, number: int, made: int) -> None:
    await to.expect(204, "DELETE", f"/v1/slices/bench-{os.getpid()}-{number}-{made}")


if __name__ == "__main__":
    for figure in measure():
        print(figure.line(), flush=True)
