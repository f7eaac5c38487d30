"""Starts the embedded Kubernetes API: `python -m services.kube --help`.

All its files are in the state folder: `kube.db` (unless a database is given), `kube/` with the CA, the server
certificate and the token file, `kubeconfig` for the administrator and `kubeconfig-operator` for the operator, whose
rights are its roles (matrixcontainer/operator/rbac.py). The port is bound before they are written, so that with
`--port 0` they and the log contain the real port.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence
from typing import Any

from services.chassis.interpreter import block_modules
from services.kube.bootstrap_process import BootstrapProcess


def main(argv: Sequence[str] | None = None) -> None:
    gc.disable()  # nothing loaded now becomes garbage; `freeze_heap` turns the collector on again
    block_modules()
    bootstrap_process = BootstrapProcess(lambda: _prepare(argv))
    from services.kube.api_process import KubeProcess  # loaded while the bootstrap process works

    arguments, (_lock, listener) = bootstrap_process.result()  # the lock is held as long as the file is open
    KubeProcess(**arguments, listener=socket.socket(fileno=listener)).run()


def _prepare(argv: Sequence[str] | None) -> tuple[dict[str, Any], list[int]]:
    from services.kube.bootstrap import prepare

    return prepare(argv)
