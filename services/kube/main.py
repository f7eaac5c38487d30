"""Starts the embedded Kubernetes API: `python -m services.kube --help`.

Everything it keeps lies in the state folder: `kube.db` (unless a database is given), `kube/` with the CA, the server
certificate and the token file, `kubeconfig` for the administrator and `kubeconfig-operator` for the operator, who may
do what its roles say (matrixcontainer/rights.py). The port is bound before they are written, so that `--port 0` tells
its port there and in the log.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from matrixcontainer.kubeapi.access import Access, User, load_tokens
from matrixcontainer.kubeapi.app import App
from matrixcontainer.kubeapi.certificates import certificate_files, ensure_certificates, write_kubeconfig
from matrixcontainer.kubeapi.database import open_database
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.store import Store
from matrixcontainer.rights import roles_for
from services.chassis.logging import configure
from services.chassis.settings import ServiceSettings
from services.kube.database import migrate
from services.kube.folder import hold
from services.kube.preparing import in_a_child
from services.kube.serving import Server, listen, tls_of

log = logging.getLogger(__name__)

USERS = {
    "admin": User("admin", ("system:masters", "system:authenticated")),
    "operator": User("cloudmatrix-operator", ("system:authenticated",)),
}


class KubeSettings(ServiceSettings):
    """The embedded Kubernetes API over TLS, with its kubeconfig in the state folder."""

    port: int = Field(8443, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    kube_admin_token: str = Field("", description="fixes the administrator's token; without it one is made and kept")
    advertise: str = Field("", description="host name or address in the kubeconfig and the certificate")
    certificate_names: str = Field(
        "kube", description="further names the certificate should carry, separated by commas: what containers call it"
    )
    workloads: bool = Field(
        True,
        description="act on Deployments, Jobs, autoscalers and pods; off where other controllers and kubelets do",
    )
    synchronous: str = Field(
        "FULL", pattern="^(NORMAL|FULL)$", description="SQLite: NORMAL outlives the process, FULL outlives power loss"
    )


def main(argv: Sequence[str] | None = None) -> None:
    settings = KubeSettings.load("kube", argv)
    configure("kube", settings.log_level)
    folder = settings.state / "kube"
    folder.mkdir(parents=True, exist_ok=True)
    held = hold(folder / "lock")
    listener = listen(settings.host, settings.port)
    advertised = settings.advertise or ("127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host)
    url = f"https://{f'[{advertised}]' if ':' in advertised else advertised}:{listener.getsockname()[1]}"
    database = settings.database_url("kube")
    names = [settings.host, advertised, *settings.certificate_names.split(",")]
    in_a_child(lambda: _prepare(folder, names, database))
    ca, certificate, key = certificate_files(folder)
    chance = random.Random(settings.seed)
    tokens, signing_key = load_tokens(folder / "tokens.json", USERS, {"admin": settings.kube_admin_token})
    store = Store(open_database(database, settings.synchronous), time.time, threaded=True)
    api = KubeApi(store, time.time, chance, Access(tokens, signing_key, time.time))
    api.runs_workloads = settings.workloads
    api.namespaces.root_ca = ca.read_text()
    api.report = lambda failure, where: log.error("failed", exc_info=failure, extra={"where": where})
    operator = USERS["operator"].name
    api.cluster_roles.also = roles_for(operator)
    kubeconfig = settings.state / "kubeconfig"

    def announce() -> None:
        token_of = {user.name: token for token, user in tokens.items()}
        write_kubeconfig(settings.state / "kubeconfig-operator", url, ca, operator, token_of[operator])
        write_kubeconfig(kubeconfig, url, ca, "admin", token_of["admin"])
        log.info("listening", extra={"url": url, "kubeconfig": str(kubeconfig.resolve())})

    async def serve() -> None:
        server = Server(App(api), listener, tls_of(certificate, key))
        server.stop_on_signals()
        await server.serve(announce)

    asyncio.run(serve())
    store.close()
    held.close()
    log.info("stopped")


def _prepare(folder: Path, names: list[str], database: str) -> None:
    ensure_certificates(folder, names)
    migrate(database)
