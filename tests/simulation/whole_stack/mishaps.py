"""What happens in a simulated life besides messages: users' requests, faults of hardware, and what befalls processes.

Each life has its own mixture, drawn first: of what every life has a little of, none has enough to matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation import rest_mishaps, rest_users
from tests.simulation.rest_actions import DRAWN, Action, drawn_by
from tests.simulation.whole_stack.kubernetes import NAMES
from tests.simulation.whole_stack.life import SimulatedLife
from tests.simulation.whole_stack.network import LATE_S_MAX, Weather
from tests.simulation.whole_stack.scaling import begin as begin_scaling
from tests.simulation.whole_stack.scaling import is_scaled, scaling
from tests.simulation.whole_stack.stack import SERVED

OWN = (rest_mishaps.kill, rest_mishaps.kill_after_a_commit, rest_mishaps.wait)
"""What lives of single steps do to processes and time; here others do."""
FIRST = (rest_users.ensure_instance, rest_users.ensure_instance, rest_users.ensure_allocation)
"""What every life begins with."""
FREQUENT = (*FIRST, rest_users.ensure_instance, rest_users.delete_instance, rest_users.resize_instance)
SERVICES = ("user", "resource", "link", "compute", "agents", "operator")


@dataclass(frozen=True)
class Mixture:
    """Of one life: what its network is like, how often something is done (s between two), and the weights of what."""

    weather: Weather
    gap_s: float
    weights: dict[str, float]
    actions: tuple[Action, ...]
    replicated: bool
    scaled: bool

    @classmethod
    def of(cls, seed: int) -> Mixture:
        """Odd seeds have two replicas of MatrixCompute."""
        random = Random(f"{seed}:mixture")
        weather = Weather(
            lost=random.choice([0.0, 0.002, 0.02]),
            doubled=random.choice([0.0, 0.02, 0.2]),
            late=random.choice([0.0, 0.02, 0.1]),
            late_s=random.choice([1.0, 5.0, LATE_S_MAX]),
            jitter_s=random.choice([0.005, 0.05, 0.5]),
        )
        weights = {
            "user": 10.0,
            "kubernetes": random.choice([0.0, 1.0, 4.0]),
            "hardware": random.choice([0.0, 1.0, 4.0]),
        }
        weights |= {name: random.choice([0.0, 0.0, weight]) for name, weight in MISHAPS_WEIGHTS.items()}
        users = [each for each in DRAWN if each not in OWN and each.__module__ != rest_mishaps.__name__]
        some = random.sample(users, random.randint(3, len(users) // 2))
        gap_s, scaled = random.choice([0.3, 1.0, 4.0]), is_scaled(seed)
        if scaled:
            weights["scaling"] = SCALING_WEIGHT
        return cls(weather, gap_s, weights, (*FREQUENT, *some), seed % 2 == 1, scaled)


def user(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    happening = drawn_by(random, random.choice(mixture.actions))
    life.spawn(happening.on(life))
    return f"user {happening}"


def kubernetes(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    name, nodes = random.choice(NAMES), random.choice([0, 1, 2, 3, 5])
    life.spawn(life.apply(name, {"nodes": nodes}) if nodes else life.delete(name))
    return f"CloudMatrixInstance {name} with {nodes} nodes" if nodes else f"CloudMatrixInstance {name} is deleted"


def hardware(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    happening = drawn_by(random, random.choice([rest_mishaps.inject_fault, rest_mishaps.clear_fault]))
    life.spawn(happening.on(life))
    return f"hardware {happening}"


def kill(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    process, away_s = random.choice(_ours(life)), random.choice([0.2, 3.0, 20.0])
    life.spawn(life.end(process, away_s))
    return f"kill {process} for {away_s} s"


def arm(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    process = random.choice([each for each in _ours(life) if each not in ("agents", "operator")])
    before, commits = random.random() < 0.5, random.randint(1, 8)
    (life.killed_before if before else life.armed)[process] = commits
    return f"arm {process} {'before' if before else 'after'} its commit number {commits}"


def freeze(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    process, for_s = random.choice(_ours(life)), random.choice([0.5, 5.0, 40.0])
    if process not in life.down and process not in life.ending:
        life.loop.freeze(process)
        life.spawn(_after(for_s, lambda: life.loop.resume(process)))
    return f"freeze {process} for {for_s} s"


def part(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    one, other = random.sample([*SERVICES, SERVED] if mixture.scaled else SERVICES, 2)
    for_s = random.choice([1.0, 8.0, 45.0])
    life.stack.network.part(one, other)
    life.spawn(_after(for_s, life.stack.network.join))
    return f"part {one} and {other} for {for_s} s"


def step_clock(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    process, by_s = random.choice(_ours(life)), random.choice([0.2, 4.0, 30.0])
    life.stack.clocks[process].offset_s += by_s
    return f"clock of {process} steps by {by_s} s"


def _ours(life: SimulatedLife) -> list[str]:
    """All processes but Kubernetes."""
    return [each for each in life.stack.services if each != "kube"]


def scale(life: SimulatedLife, random: Random, mixture: Mixture) -> str:
    return scaling(life, random)


async def _after(seconds: float, action: Callable[[], object]) -> None:
    await asyncio.sleep(seconds)
    action()


Mishap = Callable[[SimulatedLife, Random, Mixture], str]
MISHAPS: dict[str, Mishap] = {
    "user": user, "kubernetes": kubernetes, "hardware": hardware, "kill": kill, "arm": arm, "freeze": freeze, "part": part, "clock": step_clock,
    "scaling": scale,
}  # fmt: skip
SCALING_WEIGHT = 8.0
MISHAPS_WEIGHTS = {"kill": 1.0, "arm": 1.0, "freeze": 1.0, "part": 1.0, "clock": 0.5}


async def everything(life: SimulatedLife, mixture: Mixture) -> None:
    """For ever: one thing after the other, drawn by the seed of this life."""
    random = Random(f"{life.seed}:mishaps")
    names, weights = list(mixture.weights), list(mixture.weights.values())
    for first in FIRST:
        life.spawn(drawn_by(random, first).on(life))
    if mixture.scaled:
        life.spawn(begin_scaling(life))
    while True:
        await asyncio.sleep(random.expovariate(1 / mixture.gap_s))
        if life.over.is_set():
            return
        life.lists = life.known
        life.history.saw(life.lists["instances"])
        kind = random.choices(names, weights)[0]
        life.happened(kind, MISHAPS[kind](life, random, mixture))
