"""The embedded Kubernetes API in one process with a test: `api.asgi` is an ASGI application, without a socket."""

from __future__ import annotations

import random
from collections.abc import Callable

from matrixcontainer.kubeapi.auth.authentication import TokenAuthenticator, User
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.backend import Database
from matrixcontainer.kubeapi.storage.store import Store


def build_api(
    database: Database, now: Callable[[], float], rng: random.Random, tokens: dict[str, User] | None = None
) -> KubeApi:
    """An API over a migrated database; `tokens` maps bearer tokens to users, `now` gives seconds since the epoch."""
    key = rng.randbytes(32)
    return KubeApi(Core(Store(database, now), now, rng, TokenAuthenticator(tokens or {}, key, now)))
