"""Starts the embedded Kubernetes API: `python -m services.kube --help`.

Everything it keeps lies in the state folder: `kube.db` (unless a database is given), `kube/` with the CA, the server
certificate and the token file, and `kubeconfig` for the administrator. The port is bound before the kubeconfig is
written, so that `--port 0` tells its port there and in the log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from services.chassis.logging import configure
from services.chassis.settings import ServiceSettings
from services.kube.folder import hold
from services.kube.listening import listen
from services.kube.preparing import Child


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
    child = Child(lambda: _prepare(folder, names, database, settings.kube_admin_token))
    from services.kube.running import Kube  # while the child is at work

    child.wait()
    kube = Kube(
        listener=listener,
        url=url,
        folder=folder,
        kubeconfig=settings.state / "kubeconfig",
        database=database,
        synchronous=settings.synchronous,
        admin_token=settings.kube_admin_token,
        chance=random.Random(settings.seed),
        workloads=settings.workloads,
    )
    kube.run()
    held.close()


def _prepare(folder: Path, names: list[str], database: str, admin_token: str) -> None:
    from matrixcontainer.kubeapi.certificates import ensure_certificates
    from services.kube.database import migrate, refusing
    from services.kube.identity import hand_over, one_at_a_time, take_over
    from services.kube.users import tokens_of

    with refusing(database), one_at_a_time(database) as connection:
        migrate(database)
        if connection is not None:
            take_over(connection, folder)
        ensure_certificates(folder, names)
        tokens_of(folder, admin_token)
        if connection is not None:
            hand_over(connection, folder)
