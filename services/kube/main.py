"""Starts the embedded Kubernetes API: `python -m services.kube --help`.

Everything it keeps lies in the state folder: `kube.db` (unless a database is given), `kube/` with the CA, the server
certificate and the token file, `kubeconfig` for the administrator and `kubeconfig-operator` for the operator, who may
do what its roles say (matrixcontainer/operator/rbac.py). The port is bound before they are written, so that `--port 0`
tells its port there and in the log.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence
from typing import Any

from services.chassis.unused_modules import leave_out
from services.kube.bootstrap_process import Child


def main(argv: Sequence[str] | None = None) -> None:
    gc.disable()  # nothing that is loaded now will ever be garbage; `keep_what_is_there` turns it on again
    leave_out()
    child = Child(lambda: _prepare(argv))
    from services.kube.api_process import Kube  # while the child is at work

    reported, (_lock, listener) = child.result()  # the lock is held by being open
    Kube(**reported, listener=socket.socket(fileno=listener)).run()


def _prepare(argv: Sequence[str] | None) -> tuple[dict[str, Any], list[int]]:
    from services.kube.bootstrap import prepare

    return prepare(argv)
