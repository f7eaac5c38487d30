"""Core: what every endpoint and controller depends on: store, registry, verbs, authorizer, clock and randomness.

It has no logic of its own. The composition root creates one, registers kinds in it and passes it to the parts, so that
none of them depends on the server.
"""

import random
from collections.abc import Callable
from typing import Protocol

from matrixcontainer.kubeapi.auth.authentication import TokenAuthenticator
from matrixcontainer.kubeapi.auth.authorizer import Authorizer
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.observer import Observer
from matrixcontainer.kubeapi.registry.resource import Registry, Resource
from matrixcontainer.kubeapi.registry.rest import Verbs
from matrixcontainer.kubeapi.storage.store import Store

FAILURES_MAX, FAILURE_CHARS_MAX = 20, 1000


class EmulatedTime(Protocol):
    """The clock of the emulated world. Its speed may change, and it may be stopped."""

    def now(self) -> float:
        """Seconds since the epoch; never goes backwards."""

    def wall_s(self, seconds: float) -> float:
        """Wall-clock seconds until that many emulated seconds have passed; infinity while the clock is stopped."""


class ServerTime:
    """Emulated time that equals the server's own clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def wall_s(self, seconds: float) -> float:
        return seconds


class Core:
    """`failures` keeps the most recent unexpected errors; `report` is called with each."""

    def __init__(
        self, store: Store, now: Callable[[], float], rng: random.Random, authenticator: TokenAuthenticator
    ) -> None:
        self.store, self.now, self.rng, self.authenticator = store, now, rng, authenticator
        self.registry = Registry()
        self.authorizer = Authorizer(store)
        self.verbs = Verbs(store, self.registry, now, rng)
        self.untraced: frozenset[str] = frozenset()
        """Users whose writes start no trace: controllers, which write all the time."""
        self.observer: Observer | None = None
        """Collects metrics; if set, its page is served at /metrics."""
        self.emulated_time: EmulatedTime = ServerTime(now)
        self.stopping = False
        self.failures: list[str] = []
        self.report: Callable[[BaseException, str], None] = lambda failure, where: None
        authenticator.account_uid = self._account_uid

    def builtin(self, group: str, plural: str, version: str = "v1") -> Resource:
        """A built-in kind; it must exist."""
        found = self.registry.find(group, version, plural)
        assert found is not None, plural
        return found

    def _account_uid(self, namespace: str, name: str) -> str:
        """The uid of a service account, "" if there is none."""
        try:
            account = self.verbs.get(self.builtin("", "serviceaccounts"), namespace, name)
        except ApiError:
            return ""
        return str(account["metadata"]["uid"])

    def record_failure(self, failure: BaseException, where: str) -> None:
        """Keep and report an unexpected error. All of them go through here."""
        self.failures.append(f"{where}: {type(failure).__name__}: {failure}"[:FAILURE_CHARS_MAX])
        del self.failures[:-FAILURES_MAX]
        self.report(failure, where)

    def wake_watches(self, storage: str = "") -> None:
        """Wake the watchers of a resource, or of all, to check whether it is still served and the server is running."""
        for resource in [storage] if storage else list(self.store.history.logs):
            self.store.log(resource).wake()
