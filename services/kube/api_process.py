"""The serving phase of the embedded Kubernetes API, from its prepared folder and database to the last request."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import uvloop

from matrixcommon.emulation.stack_clock import StackClock
from matrixcommon.model.clock import ScaledClock
from matrixcontainer.kubeapi.auth.authentication import TokenAuthenticator, User
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.factory import open_database
from matrixcontainer.kubeapi.storage.objects import StorageError
from matrixcontainer.kubeapi.storage.store import Store
from matrixcontainer.kubeapi.transport.certificates import certificate_files, write_kubeconfig
from matrixcontainer.operator.rbac import roles_for, user_roles
from services.chassis.interpreter import freeze_heap
from services.chassis.logging import configure_logging
from services.chassis.tracing import configure_tracing
from services.kube.metrics import KubeMetrics
from services.kube.server import Server
from services.kube.users import USERS, load_user_tokens
from services.recordings.write_log import Internal, RecordingMiddleware

log = logging.getLogger(__name__)

THREAD_SWITCH_INTERVAL_S = 0.0005  # so that the thread that waits for the disk runs without delay
GC_THRESHOLD = 50_000  # objects live long; frequent full collections would only delay requests


def _report(failure: BaseException, where: str) -> None:
    """Log a controller's failure: a refusal by its message, anything else with a traceback."""
    if isinstance(failure, (ApiError, StorageError)):
        log.warning("failed", extra={"where": where, "why": str(failure)})
    else:
        log.error("failed", exc_info=failure, extra={"where": where})


@dataclass
class KubeProcess:
    """The embedded API and its prepared settings. The operator's kubeconfig is written beside `kubeconfig`."""

    listener: socket.socket
    log_level: str
    url: str
    folder: str
    kubeconfig: str
    database: str
    synchronous: str
    tokens: dict[str, str]
    seed: int | None
    workloads: bool
    clock_file: str
    time_scale: float

    @staticmethod
    def _is_operator_request(tokens: dict[str, User]) -> Internal:
        """A predicate for requests of the operator, by its token: they are consequences of users' requests."""
        secrets = {f"Bearer {token}".encode() for token, user in tokens.items() if user == USERS["operator"]}
        return lambda scope: any(key == b"authorization" and value in secrets for key, value in scope["headers"])

    def run(self) -> NoReturn:
        """Serve until told to stop. Exits with one line if the database cannot be used."""
        configure_logging("kube", self.log_level)
        configure_tracing("kube")
        folder, kubeconfig = Path(self.folder), Path(self.kubeconfig)
        ca, certificate, key = certificate_files(folder)
        tokens, signing_key = load_user_tokens(folder, self.tokens)
        try:
            store = Store(open_database(self.database, self.synchronous), time.time, threaded=True)
        except StorageError as failure:
            print(f"kube: {failure}", file=sys.stderr)
            raise SystemExit(1) from None
        core = Core(store, time.time, random.Random(self.seed), TokenAuthenticator(tokens, signing_key, time.time))
        core.report = _report
        core.emulated_time = StackClock(Path(self.clock_file)) if self.clock_file else ScaledClock(self.time_scale)
        operator = USERS["operator"].name
        core.untraced = frozenset({operator})
        api = KubeApi(core, self.workloads, ca.read_text(), [*roles_for(operator), *user_roles()])
        api.observe(KubeMetrics(core))
        sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
        freeze_heap(GC_THRESHOLD)

        def announce() -> None:
            token_of = {user.name: token for token, user in tokens.items()}
            write_kubeconfig(kubeconfig.with_name("kubeconfig-operator"), self.url, ca, operator, token_of[operator])
            write_kubeconfig(kubeconfig, self.url, ca, "admin", token_of["admin"])
            log.info("listening", extra={"url": self.url, "kubeconfig": str(kubeconfig.resolve())})

        async def serve() -> None:
            recorded = RecordingMiddleware(api.asgi, folder.parent, "kube", self._is_operator_request(tokens))
            server = Server(api, self.listener, certificate, key, recorded)
            server.stop_on_signals()
            await server.serve(announce)

        code = 1
        try:
            uvloop.run(serve())
            code = 0
        except (StorageError, ApiError, OSError) as failure:
            print(f"kube: {failure}", file=sys.stderr)
        finally:
            store.close()
        if code == 0:
            log.info("stopped")
        _exit(code)


def _exit(code: int) -> NoReturn:
    """Exit at once, without finalising the interpreter: a thread of granian's may still serve a lingering client."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
