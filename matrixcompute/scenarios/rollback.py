"""roll_back: clear the faults that runs have injected, found by name prefix; also after a runner was killed.

Each host of runners (matrixctl, MatrixCompute) has its own prefix and runs one scenario at a time, so any fault with
its prefix at the beginning of a run is a leftover.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcompute.scenarios.service_clients import ServiceClients

RUN_LABEL = "cloudmatrix.io/fault-scenario"
"""The label on instances that a run has created; its value is the run's name."""
ROLLBACK_TIMEOUT_S, ROLLBACK_TIMEOUT_FLOOR_WALL_S = 600.0, 90.0
RETRY_INTERVAL_S, RETRY_INTERVAL_FLOOR_WALL_S = 2.0, 0.3


async def roll_back(clients: ServiceClients, prefix: str, clock: Clock) -> list[str]:
    """Clear all faults whose names begin with `prefix`, and return their names. Retries while a service does not
    answer; raises the last error after the timeout."""
    cleared: list[str] = []
    until = clock.now() + clock.at_least_wall(ROLLBACK_TIMEOUT_S, ROLLBACK_TIMEOUT_FLOOR_WALL_S)
    while True:
        try:
            # Faults in services come first: until they are cleared, the services may not answer.
            for name in [each for each in await _injected(clients) if each.startswith(prefix)]:
                assert clients.processes is not None
                await clients.processes.clear(name)
                cleared.append(name)
            for fault in await clients.list_all("agents", "faults"):
                if fault["name"].startswith(prefix):
                    await clients.delete("agents", "faults", fault["name"])
                    cleared.append(fault["name"])
            return cleared
        except MatrixError as refused:
            if not refused.retryable or clock.now() >= until:
                raise
        await clock.sleep(clock.at_least_wall(RETRY_INTERVAL_S, RETRY_INTERVAL_FLOOR_WALL_S))


async def _injected(clients: ServiceClients) -> Sequence[str]:
    return list(await clients.processes.injected()) if clients.processes is not None else []


async def delete_given(clients: ServiceClients, keys: Sequence[str], clock: Clock) -> list[str]:
    """Delete instances that a run has created, and wait until they are gone. Returns those that remain."""
    until = clock.now() + clock.at_least_wall(ROLLBACK_TIMEOUT_S, ROLLBACK_TIMEOUT_FLOOR_WALL_S)
    remaining = list(keys)
    while remaining:
        for key in list(remaining):
            try:
                await clients.delete("compute", "instances", key)
                if await clients.find("compute", "instances", key) is None:
                    remaining.remove(key)
            except MatrixError as refused:
                if not refused.retryable:
                    raise
        if not remaining or clock.now() >= until:
            break
        await clock.sleep(clock.at_least_wall(RETRY_INTERVAL_S, RETRY_INTERVAL_FLOOR_WALL_S))
    return remaining


async def clean_up(clients: ServiceClients, prefix: str, clock: Clock) -> list[str]:
    """Remove what an earlier run of this host left behind: its faults and the instances it created."""
    cleared = await roll_back(clients, prefix, clock)
    instances = await clients.list_all("compute", "instances")
    created = [each for each in instances if each.get("labels", {}).get(RUN_LABEL, "").startswith(prefix)]
    keys = [f"{each['project']}/{each['name']}" for each in created]
    await delete_given(clients, keys, clock)
    return cleared + keys
