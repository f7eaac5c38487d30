"""A PostgreSQL of the tests' own, on a free loopback port, where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.chassis.settings import ServiceSettings


def has_postgres() -> bool:
    """Whether a server can be had here."""
    return shutil.which("initdb") is not None and shutil.which("pg_ctl") is not None


needs_postgres = pytest.mark.skipif(
    not has_postgres(),
    reason="initdb and pg_ctl are not on the PATH: nothing was tested on PostgreSQL",
)


@contextmanager
def a_postgres() -> Iterator[str]:
    """The URL of a fresh server; PostgreSQL refuses to run as root, so root becomes nobody for it."""
    with tempfile.TemporaryDirectory() as folder:
        become: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            become = ["setpriv", "--reuid=nobody", "--clear-groups"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data = str(Path(folder) / "data")
        quiet = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL}
        subprocess.run([*become, "initdb", "-D", data, "-A", "trust", "-U", "tests", "--no-sync"], **quiet)
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder}"
        start = ["pg_ctl", "-D", data, "-o", options, "-l", str(Path(folder) / "log"), "-w", "start"]
        subprocess.run([*become, *start], **quiet)
        try:
            yield f"postgresql://tests@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*become, "pg_ctl", "-D", data, "-m", "immediate", "stop"], **quiet)


@contextmanager
def a_database() -> Iterator[str]:
    """The same as a service's settings make it of that URL, with the driver that SQLAlchemy has to be given."""
    with a_postgres() as url:
        yield ServiceSettings(database=url).database_url("")
