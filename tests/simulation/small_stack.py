"""The whole stack on a supernode of three cabinets, so that requests stand in one another's way and an hour is cheap."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import yaml

from matrixresource.topology.loading import DEFAULT_FILE
from services.chassis.database import DatabaseEngine
from services.resource import main as resource_main
from tests.clocks import AtOnce
from tests.stack import Seat, Stack

CABINETS, NODES_OF_CABINET = 3, 4
NODES = [f"sn0-c{cabinet:02d}-n{node}" for cabinet in range(CABINETS) for node in range(NODES_OF_CABINET)]

NUMBERS: dict[str, dict[str, int]] = {
    "supernode": {
        "cabinets": 7,
        "compute_cabinets": 3,
        "nodes": 12,
        "npus": 96,
        "dies": 192,
        "cpus": 48,
        "l1_switches": 84,
        "optical_modules": 1728,
    },
    "ub": {"l2_ports": 12, "bus_device_ports": 12, "optical_links": 672, "optical_modules": 1344},
    "rdma": {"leaves_per_subnet": 3, "optical_modules": 384},
    "vpc": {"uplinks": 12},
}
"""Where it differs from the published one. Nodes and switches are as they are there."""


@cache
def _file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="small-supernode-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    document: dict[str, Any] = yaml.safe_load(DEFAULT_FILE.read_text())
    for section, numbers in NUMBERS.items():
        for figure, number in numbers.items():
            document[section][figure]["value"] = number
    file = folder / "three_cabinets.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


class SmallStack(Stack):
    """`async with SmallStack(folder) as stack`."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **more)
        self.spec = _file()


REPLICAS = ("resource", "replica")
"""The seats of two replicas of MatrixResource."""


class ByTurns(httpx.AsyncBaseTransport):
    """Hands each request to the next replica that is up, as a load balancer does."""

    def __init__(self, seats: list[Seat]) -> None:
        self._seats = seats
        self._turn = count()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        up = [seat for seat in self._seats if not seat.transport.down] or self._seats
        return await up[next(self._turn) % len(up)].transport.handle_async_request(request)


class ReplicatedStack(SmallStack):
    """The same with two replicas of MatrixResource over one database, asked by turns."""

    def way_to(self, name: str) -> httpx.AsyncBaseTransport:
        if name != "resource":
            return super().way_to(name)
        if "replica" not in self.seats:
            self.seats["replica"] = Seat()
            self.services = ("resource", "replica", *self.services[1:])
            self.balanced = ByTurns([self.seats[each] for each in REPLICAS])
        return self.balanced

    def _build(self, name: str, seat: Seat) -> Any:
        if name not in REPLICAS:
            return super()._build(name, seat)
        seat.database = DatabaseEngine(f"sqlite:///{self.folder / 'resource.db'}")
        seat.database.shared = True
        seat.database.migrate(resource_main.MIGRATIONS)
        settings = resource_main.ResourceSettings(state=self.folder, spec=self.spec)
        return resource_main.build(settings, self.clock, seat.database, executor=AtOnce())
