"""Starts the operator: `python -m services.operator --help`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.chassis.unused_modules import leave_out

KUBERNETES_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
"""Kopf imports these where they are installed, for operators that hand it their objects and to borrow their login; the
first alone weighs 14 MB. This one logs in by itself (`matrixcontainer/client/login.py`) and asks with httpx."""

NO_CERTIFICATES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


def main(argv: Sequence[str] | None = None) -> None:
    leave_out(KUBERNETES_CLIENTS)
    with _without_the_systems_certificates():
        from services.operator.operator_process import run

    run(argv)


@contextmanager
def _without_the_systems_certificates() -> Iterator[None]:
    """aiohttp reads them all, twice, as it is imported. Kopf hands it for each API server a TLS context that is made
    when it logs in, of the certificates that the kubeconfig names or, where it names none, of the system's."""
    before = {name: os.environ.get(name) for name in NO_CERTIFICATES}
    os.environ.update(NO_CERTIFICATES)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
