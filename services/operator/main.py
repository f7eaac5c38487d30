"""Starts the operator: `python -m services.operator --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

KUBERNETES_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
"""Kopf imports these where they are installed, for operators that hand it their objects and to borrow their login.
This one logs in by itself (`matrixcontainer/client/login.py`) and asks with httpx."""


def main(argv: Sequence[str] | None = None) -> None:
    for name in KUBERNETES_CLIENTS:  # what is None here cannot be imported: the first alone would weigh 14 MB
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    from services.operator.operator_process import run

    run(argv)
