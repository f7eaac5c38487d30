"""The whole stack on a supernode of three cabinets, so that requests stand in one another's way and an hour is cheap."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import create_engine, text

from services.chassis.database import DatabaseEngine
from services.chassis.leadership import Leadership
from tests.matrixresource.topology.three_cabinets import three_cabinets
from tests.stack import ServiceSlot, Stack


class SmallStack(Stack):
    """`async with SmallStack(folder) as stack`."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **more)
        self.spec = three_cabinets()


REPLICATED = ("resource", "compute")


def replica_of(service: str) -> str:
    """The seat of its second replica."""
    return f"{service}-replica"


class ByTurns(httpx.AsyncBaseTransport):
    """Hands each request to the next replica that is up, as a load balancer does."""

    def __init__(self, seats: list[ServiceSlot]) -> None:
        self._seats = seats
        self._turn = count()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        up = [seat for seat in self._seats if not seat.transport.down] or self._seats
        return await up[next(self._turn) % len(up)].transport.handle_async_request(request)


class ReplicatedStack(SmallStack):
    """The same with two replicas of MatrixResource and two of MatrixCompute, each over one database, asked by turns."""

    replicated: tuple[str, ...] = REPLICATED

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        self._balanced: dict[str, ByTurns] = {}
        super().__init__(folder, *args, **more)
        at = self.services.index
        for service in self.replicated:
            self.services = (*self.services[: at(service) + 1], replica_of(service), *self.services[at(service) + 1 :])

    def transport_to(self, name: str) -> httpx.AsyncBaseTransport:
        if name not in self.replicated:
            return super().transport_to(name)
        if name not in self._balanced:
            seat = self.slots[replica_of(name)] = ServiceSlot()
            self._balanced[name] = ByTurns([self.slots[name], seat])
        return self._balanced[name]

    def database_of(self, name: str) -> DatabaseEngine:
        service = name.removesuffix("-replica")
        database = super().database_of(service)
        database.shared = service in self.replicated
        return database

    def _build(self, name: str, seat: ServiceSlot) -> Any:
        return super()._build(name.removesuffix("-replica"), seat)

    def replicas(self, service: str) -> dict[str, Leadership]:
        """Those of a service that are up, by their seats."""
        seats = {name: self.slots[name] for name in (service, replica_of(service))}
        return {name: seat.transport.app.state.leadership for name, seat in seats.items() if seat.life is not None}


class PostgresStack(ReplicatedStack):
    """The same on PostgreSQL, each service with a database of its own on `server`."""

    server = ""
    """Its URL, up to the name of a database."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **more, from_nothing=True)
        self._made: set[str] = set()

    def database_of(self, name: str) -> DatabaseEngine:
        database = re.sub(r"\W", "_", f"{self.folder.name}_{name.removesuffix('-replica')}").lower()
        if database not in self._made:
            with create_engine(f"{self.server}/postgres", isolation_level="AUTOCOMMIT").connect() as connection:
                connection.execute(text(f"CREATE DATABASE {database}"))
            self._made.add(database)
        return DatabaseEngine(f"{self.server}/{database}")

    def drop(self) -> None:
        """Once every service has ended."""
        with create_engine(f"{self.server}/postgres", isolation_level="AUTOCOMMIT").connect() as connection:
            for database in self._made:
                connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))

    async def __aexit__(self, *ended: object) -> None:
        await super().__aexit__(*ended)
        self.drop()
