"""roll_back: clear the faults that runs have injected, found by name prefix; also after a runner was killed.

Each host of runners (matrixctl, MatrixCompute) has its own prefix and runs one scenario at a time, so any fault with
its prefix at the beginning of a run is a leftover.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcompute.scenarios.world import World

RUN_LABEL = "cloudmatrix.io/fault-scenario"
"""The label on instances that a run has created; its value is the run's name."""
PATIENCE_S, PATIENCE_FLOOR_WALL_S = 600.0, 90.0
PAUSE_S, PAUSE_FLOOR_WALL_S = 2.0, 0.3


async def roll_back(world: World, names: str, clock: Clock) -> list[str]:
    """Clear all faults whose names begin with `names`, and return their names. Retries while a service does not answer;
    when the patience is up, raises the last error."""
    cleared: list[str] = []
    until = clock.now() + clock.at_least_wall(PATIENCE_S, PATIENCE_FLOOR_WALL_S)
    while True:
        try:
            # Faults in services come first: until they are cleared, the services may not answer.
            for name in [each for each in await _injected(world) if each.startswith(names)]:
                assert world.processes is not None
                await world.processes.clear(name)
                cleared.append(name)
            for fault in await world.all("agents", "faults"):
                if fault["name"].startswith(names):
                    await world.delete("agents", "faults", fault["name"])
                    cleared.append(fault["name"])
            return cleared
        except MatrixError as refused:
            if not refused.retryable or clock.now() >= until:
                raise
        await clock.sleep(clock.at_least_wall(PAUSE_S, PAUSE_FLOOR_WALL_S))


async def _injected(world: World) -> Sequence[str]:
    return list(await world.processes.injected()) if world.processes is not None else []


async def delete_given(world: World, keys: Sequence[str], clock: Clock) -> list[str]:
    """Delete instances that a run has created, and wait until they are gone. Returns those that remain."""
    until = clock.now() + clock.at_least_wall(PATIENCE_S, PATIENCE_FLOOR_WALL_S)
    left = list(keys)
    while left:
        for key in list(left):
            try:
                await world.delete("compute", "instances", key)
                if await world.find("compute", "instances", key) is None:
                    left.remove(key)
            except MatrixError as refused:
                if not refused.retryable:
                    raise
        if not left or clock.now() >= until:
            break
        await clock.sleep(clock.at_least_wall(PAUSE_S, PAUSE_FLOOR_WALL_S))
    return left


async def clean_up(world: World, prefix: str, clock: Clock) -> list[str]:
    """Remove what an earlier run of this host left behind: its faults and the instances it created."""
    found = await roll_back(world, prefix, clock)
    instances = await world.all("compute", "instances")
    made = [each for each in instances if each.get("labels", {}).get(RUN_LABEL, "").startswith(prefix)]
    keys = [f"{each['project']}/{each['name']}" for each in made]
    await delete_given(world, keys, clock)
    return found + keys
