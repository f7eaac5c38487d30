"""The gateway keeps to its 80 MB because it carries no database: tens of megabytes that it never uses."""

from __future__ import annotations

import subprocess
import sys


def test_the_gateway_imports_no_database() -> None:
    code = (
        "import sys, services.console.main; print([m for m in ('sqlalchemy', 'numpy', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
