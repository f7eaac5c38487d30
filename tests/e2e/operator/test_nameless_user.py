"""A container often runs as a number that no user has: the operator works all the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from services.testing.kubernetes import KubernetesApi
from tests.e2e.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
NOBODY = "http://127.0.0.1:9"
NAMELESS = """
import getpass
def getuser(): raise KeyError("getpwuid(): uid not found: 10001")
getpass.getuser = getuser
from services.operator.main import main
main([])
"""


def test_the_operator_works_for_a_user_without_a_name(kubernetes: KubernetesApi, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environ = os.environ | {
        "CLOUDMATRIX_KUBECONFIG": str(kubernetes.kubeconfig),
        "CLOUDMATRIX_STATE": str(tmp_path),
        "CLOUDMATRIX_PORT": "0",
        **{f"CLOUDMATRIX_{name.upper()}_URL": NOBODY for name in ("resource", "link", "compute", "infer", "agents")},
    }
    with log.open("wb") as out:
        operator = subprocess.Popen([sys.executable, "-c", NAMELESS], env=environ, stdout=out, stderr=out)

    def ready() -> bool:
        assert operator.poll() is None, log.read_text()[-3000:]
        found = re.search(r'"url": "(http://[^"]+)"', log.read_text())
        return found is not None and httpx.get(f"{found[1]}/readyz", trust_env=False).is_success

    try:
        eventually(ready, "the operator is ready", 60.0)
    finally:
        operator.terminate()
        operator.wait(timeout=20)  # at once, however soon it is told to after it began
