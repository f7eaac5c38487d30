"""Owners: threads that ask replicas of a service again and again, each with chances of its own."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from random import Random


class Owner(threading.Thread):
    """Asks `steps` times, under a new name each time; what breaks it is kept in `failure`."""

    def __init__(self, number: int, steps: int) -> None:
        super().__init__()
        self.number, self.steps, self.random = number, steps, Random(number)
        self.answers = self.refused = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for step in range(self.steps):
                self.ask(f"o{self.number}-{step}")
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def ask(self, name: str) -> None:
        """One request, for something of that name or for what is held already."""


def run_all(owners: Sequence[Owner]) -> None:
    """At once, to the end; none of them may break."""
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join(120)
        assert owner.failure is None, owner.failure
