"""Preparation before serving: settings, lock, port, tables, certificates, tokens.

It runs in a child process (`bootstrap_process.py`), because it needs settings validation, Alembic and the certificate
library: tens of megabytes, and much of the start-up time, that the server itself does not need.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrixcontainer.kubeapi.transport.certificates import ensure_certificates
from services.kube.bind import listen
from services.kube.bootstrap_process import BootstrapError
from services.kube.database import bootstrap_errors, migrate
from services.kube.folder_lock import acquire_folder_lock
from services.kube.identity import bootstrap_lock, fetch_identity, publish_identity
from services.kube.settings import KubeSettings
from services.kube.users import load_user_tokens


def prepare(argv: Sequence[str] | None) -> tuple[dict[str, Any], list[int]]:
    """Prepare. Return the arguments of `KubeProcess`, and two open files: its lock and its listening socket."""
    settings = KubeSettings.load("kube", argv)
    folder = settings.state / "kube"
    folder.mkdir(parents=True, exist_ok=True)
    lock = acquire_folder_lock(folder / "lock", os.getppid())
    listener = listen(settings.host, settings.port)
    advertised = settings.advertise or ("127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host)
    database = settings.database_url("kube")
    names = [settings.host, advertised, *settings.certificate_names.split(",")]
    tokens = {
        "admin": settings.kube_admin_token,
        "operator": settings.kube_operator_token,
        "metrics": settings.kube_metrics_token,
    }
    _prepare_folder(folder, names, database, tokens)
    arguments = {
        "log_level": settings.log_level,
        "url": f"https://{f'[{advertised}]' if ':' in advertised else advertised}:{listener.getsockname()[1]}",
        "folder": str(folder),
        "kubeconfig": str(settings.state / "kubeconfig"),
        "database": database,
        "synchronous": settings.synchronous,
        "tokens": tokens,
        "seed": settings.seed,
        "workloads": settings.workloads,
        "clock_file": str(settings.clock_file or ""),
        "time_scale": settings.time_scale,
    }
    return arguments, [os.dup(lock.fileno()), socket.dup(listener.fileno())]


def _prepare_folder(folder: Path, names: list[str], database: str, tokens: dict[str, str]) -> None:
    with bootstrap_errors(database), bootstrap_lock(database) as connection:
        migrate(database)
        if connection is not None:
            fetch_identity(connection, folder)
        try:
            ensure_certificates(folder, names)
            load_user_tokens(folder, tokens)
        except ValueError as wrong:
            cause = str(wrong).partition(". ")[0]  # the rest are links
            raise BootstrapError(
                f"{folder} is damaged: {cause}; restore ca.crt, ca.key and tokens.json there, or move the folder away: "
                "new ones are made, and clients need the new kubeconfig"
            ) from wrong
        if connection is not None:
            publish_identity(connection, folder)
