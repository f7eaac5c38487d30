"""What every endpoint and controller is handed: the store, the kinds, the verbs, who may do what, time and randomness.

`Core` decides nothing. The composition root makes one, registers kinds in it and gives it to the parts; so none of them
has to know the server they run in.
"""

import random
from collections.abc import Callable
from typing import Protocol

from matrixcontainer.kubeapi.auth.authentication import Access
from matrixcontainer.kubeapi.auth.authorizer import Authorizer
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.observer import Observer
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.registry.rest import Verbs
from matrixcontainer.kubeapi.storage.store import Store

FAILURES_MAX, FAILURE_CHARS_MAX = 20, 1000


class EmulatedTime(Protocol):
    """The time of the emulated world, for who acts on it; its speed may change, and it may stand still."""

    def now(self) -> float:
        """Seconds since the epoch; never falls."""

    def wall_s(self, seconds: float) -> float:
        """Seconds of ours until so many of its own have passed; infinity while it stands still."""


class OurTime:
    """The emulated world has our time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def wall_s(self, seconds: float) -> float:
        return seconds


class Core:
    """`failures` holds the last things that should not have happened; `report` hears of each."""

    def __init__(self, store: Store, now: Callable[[], float], rng: random.Random, access: Access) -> None:
        self.store, self.now, self.rng, self.access = store, now, rng, access
        self.registry = Registry()
        self.authorizer = Authorizer(store)
        self.verbs = Verbs(store, self.registry, now, rng)
        self.untraced: frozenset[str] = frozenset()
        """Users whose writes begin no trace: controllers, which never stop writing."""
        self.observer: Observer | None = None
        """Who counts; where there is one its page is served at /metrics."""
        self.emulated_time: EmulatedTime = OurTime(now)
        self.stopping = False
        self.failures: list[str] = []
        self.report: Callable[[BaseException, str], None] = lambda failure, where: None
        access.account_uid = self._account_uid

    def builtin(self, group: str, plural: str, version: str = "v1") -> Resource:
        """A kind that is always served."""
        found = self.registry.find(group, version, plural)
        assert found is not None, plural
        return found

    def _account_uid(self, namespace: str, name: str) -> str:
        """The uid of a service account, "" where there is none."""
        try:
            account = self.verbs.get(self.builtin("", "serviceaccounts"), namespace, name)
        except ApiError:
            return ""
        return str(account["metadata"]["uid"])

    def record_failure(self, failure: BaseException, where: str) -> None:
        """The one way of everything unexpected: kept for a while, and reported."""
        self.failures.append(f"{where}: {type(failure).__name__}: {failure}"[:FAILURE_CHARS_MAX])
        del self.failures[:-FAILURES_MAX]
        self.report(failure, where)

    def wake_watches(self, storage: str = "") -> None:
        """Watchers of the resource, or of all, check whether it is still served and the server still runs."""
        for resource in [storage] if storage else list(self.store.history.logs):
            self.store.log(resource).wake()
