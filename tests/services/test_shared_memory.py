"""What keeps the idle stack small: decision 920. `python -m benchmarks stack` weighs it."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
from types import ModuleType

import certifi
import pytest

from services.matrixctl.supervisor.process_spawn import preload
from tests.golden import ROOT

OPERATOR = """
import sys
from services.operator.main import KUBERNETES_CLIENTS, main
try:
    main(["--help"])
finally:
    assert "kopf" in sys.modules
    found = [name for name in sys.modules if name.partition(".")[0] in (*KUBERNETES_CLIENTS, "requests", "oauthlib")]
    print([name for name in found if sys.modules[name] is not None])
"""

CERTIFICATES = """
import contextlib, os, ssl
from services.operator.main import main
with contextlib.suppress(SystemExit):
    main(["--help"])
import aiohttp.connector
print()
print(aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"])
print(ssl.create_default_context().cert_store_stats()["x509_ca"] > 0)
print(os.environ["SSL_CERT_FILE"], os.environ.get("SSL_CERT_DIR"))
"""


def test_what_all_processes_make_is_made_before_modules_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that modules take the memory which is free again."""
    done: list[str] = []

    def imported(name: str) -> ModuleType:
        done.append(name)
        return sys

    monkeypatch.setattr(importlib, "import_module", imported)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    preload(("a", "b"), lambda: done.append("made"))
    assert done == ["made", "collect", "a", "b", "freeze"]


def test_the_operator_loads_no_kubernetes_client_that_happens_to_be_installed() -> None:
    shown = subprocess.run([sys.executable, "-c", OPERATOR], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]", "Kopf imports what it finds; it weighs more than 10 MB"


def test_the_operator_loads_certificates_only_where_they_are_asked_for() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
    environ["SSL_CERT_FILE"] = certifi.where()
    done = subprocess.run([sys.executable, "-c", CERTIFICATES], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.splitlines()[-3:] == ["0", "True", f"{certifi.where()} None"]
