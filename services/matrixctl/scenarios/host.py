"""matrixctl as a host of scenario runs: access to the stack, one run at a time, and rollback of what a killed run left.

A run holds a lock in the state folder. Once it has the lock no other run is alive, so faults with this host's prefix
were left by a killed run, and are cleared first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar

from matrixcommon.emulation.stack_clock import StackClock
from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict
from matrixcompute.scenarios.preflight import preview
from matrixcompute.scenarios.report import Entry, Preview, RunReport
from matrixcompute.scenarios.rollback import clean_up
from matrixcompute.scenarios.runner import ScenarioRunner
from matrixcompute.scenarios.schema import Scenario
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixcompute.scenarios.states import BEGUN
from services.chassis.http import http_client
from services.chassis.version import version
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.supervisor.process_lock import LockUnavailable, ProcessLock
from services.process_faults.process_faults import ProcessFaults

T = TypeVar("T")

FAULT_PREFIX = "scenario-ctl-"
"""Prefix of the names of all faults of matrixctl's runs."""
SERVICES = ("resource", "link", "compute", "agents")

run_async: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
"""How the command line waits for the runs it starts."""


@asynccontextmanager
async def connected(client: ApiClient) -> AsyncIterator[tuple[ServiceClients, Clock]]:
    """The services and the clock of a running stack."""
    token = client.folder.admin_token()
    there = [each for each in SERVICES if each in client.stack.children]
    async with AsyncExitStack() as opened:
        http = {
            each: await opened.enter_async_context(http_client(client.stack.children[each].url, token))
            for each in there
        }
        yield (
            ServiceClients(http, ProcessFaults(client.folder, client.stack)),
            StackClock(client.folder.clock_file),
        )


@contextmanager
def exclusive(client: ApiClient) -> Iterator[None]:
    """Lock out other runs. Raises Conflict while another run is in progress."""
    lock = ProcessLock(client.folder.path / "scenarios" / "runner.lock")
    try:
        lock.acquire()
    except LockUnavailable as taken:
        raise Conflict("another scenario runs on this stack; only one can run at a time") from taken
    try:
        yield
    finally:
        lock.release()


async def preview_scenario(client: ApiClient, name: str, scenario: Scenario) -> Preview:
    async with connected(client) as (clients, _):
        return await preview(name, scenario, clients)


async def run_scenario(
    client: ApiClient, name: str, scenario: Scenario, replay: str, report_entry: Callable[[Entry], object]
) -> RunReport:
    """Run a scenario. Raises MatrixError for refusals, before anything was changed."""
    with exclusive(client):
        async with connected(client) as (clients, clock):
            await _check_nothing_runs(clients)
            for each in await clean_up(clients, FAULT_PREFIX, clock):
                report_entry(Entry(at_s=0, what="cleared", about=each, message="left behind by an earlier run"))
            return await ScenarioRunner(
                name, scenario, clients, clock, FAULT_PREFIX, version(), replay, report_entry
            ).run()


async def _check_nothing_runs(clients: ServiceClients) -> None:
    """Raises Conflict while MatrixCompute runs a scenario."""
    for each in await clients.list_all("compute", "scenario-runs"):
        if each["state"] in BEGUN:
            name = each["name"]
            raise Conflict(
                f"run {name} is {each['state']}, and only one can run at a time; end it with `matrixctl scenario stop "
                f"{name}`"
            )
