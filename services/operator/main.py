"""Starts the operator: `python -m services.operator --help`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.chassis.interpreter import block_modules

KUBERNETES_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
"""Kopf imports these clients if installed, to accept their objects and reuse their login; the first alone takes 14 MB.
This operator logs in by itself (`matrixcontainer/client/login.py`) and uses httpx."""

NO_CERTIFICATES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


def main(argv: Sequence[str] | None = None) -> None:
    block_modules(KUBERNETES_CLIENTS)
    with _without_system_certificates():
        from services.operator.operator_process import run

    run(argv)


@contextmanager
def _without_system_certificates() -> Iterator[None]:
    """Hide the system's certificates during imports, as aiohttp reads all of them, twice, when imported. They are not
    needed then: at login Kopf makes a TLS context for each API server, from the kubeconfig's certificates or, if it
    names none, the system's."""
    saved = {name: os.environ.get(name) for name in NO_CERTIFICATES}
    os.environ.update(NO_CERTIFICATES)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
