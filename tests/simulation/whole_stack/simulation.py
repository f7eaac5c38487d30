"""One seed: a life of so many events, judged after each; then calm, in which everything settles and is given back."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field
from functools import cache

from tests.simulation.whole_stack.life import SimulatedLife
from tests.simulation.whole_stack.mishaps import Mixture, everything

EVENTS = 500
ACCOUNT_EVERY = 125
"""Events between two looks of the accountant at what REST shows."""


@dataclass
class Outcome:
    """What came of a seed."""

    seed: int
    hash: str
    events: list[str] = field(repr=False)
    commits: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None
    scenario: str = ""
    """Where what befell a life that failed is written as a scenario, or why it is not."""
    virtual_s: float = 0.0
    asked: int = EVENTS
    """For so many events it was to live."""

    @property
    def replay(self) -> str:
        """The command that has all of it happen again. What an event leaves behind is judged when the next one comes."""
        return f"python -m tests.simulation.whole_stack {self.seed} --events {min(len(self.events) + 1, self.asked)}"


def simulate(seed: int, events: int = EVENTS) -> Outcome:
    """The life of that seed. What fails it is in the outcome, not raised."""
    collecting = gc.isenabled()
    _freeze_modules()
    gc.disable()  # what is collected in the middle would end when the collector pleases
    try:
        return _simulated(seed, events)
    finally:
        if collecting:
            gc.enable()
        gc.collect()
        _freeze_what_is_kept()


@cache
def _freeze_modules() -> None:
    """What is there before the first life stays: no collection after a life has to go through it again."""
    gc.collect()
    gc.freeze()


@cache
def _freeze_what_is_kept() -> None:
    """So does what is left after it: statements that are compiled, validators, the state that lives begin with."""
    gc.freeze()


def _simulated(seed: int, events: int) -> Outcome:
    mixture = Mixture.of(seed)
    life = SimulatedLife(seed, events, ("compute",) if mixture.replicated else (), mixture.scaled)
    failure: BaseException | None = None
    try:
        with life.commits():
            life.run(_live(life, mixture))
            if not life.failures:
                life.settle()
                life.judge()
    except Exception as wrong:
        failure = wrong
    failure = life.failures[0] if life.failures else failure
    assert life.journals is not None
    outcome = Outcome(
        seed,
        life.hash(),
        life.events,
        life.journals.commits,
        dict(life.kinds),
        failure,
        virtual_s=life.loop.time(),
        asked=events,
    )
    if failure is not None:
        outcome.scenario = exported(life)
    life.close()
    return outcome


def exported(life: SimulatedLife) -> str:
    """What befell a life, as a scenario file: where that is."""
    try:
        file = life.history.export(life.loop.time())
    except LookupError as nothing:
        return f"No scenario is written: {nothing}"
    return f"What befell it, as a scenario: {file} (matrixctl scenario run {file})"


def shrunk(outcome: Outcome) -> Outcome:
    """The same failure after fewer events, where cutting some from the end leaves it."""
    found, least = outcome, 0
    while least + 1 < len(found.events):
        tried = simulate(outcome.seed, (least + len(found.events)) // 2)
        if tried.failure is not None:
            found = tried
        else:
            least = len(tried.events)
    return found


async def _live(life: SimulatedLife, mixture: Mixture) -> None:
    life.begin()
    life.stack.network.weather = mixture.weather
    drawing = asyncio.create_task(everything(life, mixture))
    accounts = ACCOUNT_EVERY
    while not life.over.is_set():
        if drawing.done():
            await drawing
        if len(life.events) >= accounts:
            accounts += ACCOUNT_EVERY
            await life.account()
        await asyncio.wait([asyncio.ensure_future(life.over.wait())], timeout=1.0)
    drawing.cancel()
    if not life.failures:
        await life.calm()
