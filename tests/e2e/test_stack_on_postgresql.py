"""The whole stack on PostgreSQL: a database per service by one URL, and the chain as on SQLite, across kill -9."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.catalogue import PROCESSES
from services.matrixctl.snapshots.snapshot import restore, take_snapshot
from services.matrixctl.supervisor.probe import free_port
from services.matrixctl.supervisor.up import start_supervisor, stop_stack, watch_until_ready
from tests.e2e.conftest import TIMEOUT_WALL_S, RealStack, eventually
from tests.e2e.survives_kill.chain import converged

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

MANIFEST = """\
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: on-postgresql}
spec: {nodes: 8, spares: 1}
"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A PostgreSQL of its own on loopback; yields a URL with {service} in it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "/none")]
    if not found[-1].exists():
        pytest.skip("no PostgreSQL server here: neither /usr/lib/postgresql/*/bin/initdb nor initdb on the PATH")
    commands = found[-1].parent
    # Not under pytest's folder, which only root may enter, while PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="cm-postgresql-"))
    data, port = folder / "data", free_port("127.0.0.1")
    as_owner: list[str] = []
    if os.geteuid() == 0:
        as_owner = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")

    def run(*words: str) -> None:
        done = subprocess.run([*as_owner, *words], capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr

    run(str(commands / "initdb"), "-D", str(data), "-U", "cloudmatrix", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    run(str(commands / "pg_ctl"), "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start")
    for process in PROCESSES:
        if process.has_database:
            run(str(commands / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "cloudmatrix", process.name)
    yield f"postgresql://cloudmatrix@127.0.0.1:{port}/{{service}}"
    run(str(commands / "pg_ctl"), "-D", str(data), "-m", "fast", "-w", "stop")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stack(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    stack = RealStack(tmp_path_factory.mktemp("stack") / "state", database)
    stack.up()
    yield stack
    stop_stack(stack.folder)


def test_the_chain_holds_on_postgresql_across_kills(stack: RealStack, tmp_path: Path) -> None:
    name, manifest = "on-postgresql", tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST)
    assert not list(stack.folder.path.glob("resource.db")), "SQLite was used after all"
    eventually(lambda: stack.cluster.apply(manifest), "applied")
    for victim in [process.name for process in PROCESSES if process.has_database]:
        stack.kill(victim)
    eventually(lambda: stack.active(name), "Active")
    converged(stack)
    eventually(lambda: stack.cluster.delete(manifest), "deletion asked")
    eventually(lambda: not stack.instance(name), "deleted")
    eventually(lambda: not stack.client.list("resource", "/v1/allocations"), "no allocation left")
    converged(stack)


def test_a_snapshot_of_it_is_restored_to_postgresql_and_to_files(stack: RealStack, tmp_path: Path) -> None:
    stack.client.call("compute", "PUT", "/v1/instances/kept", body={"nodes": 2})
    eventually(lambda: stack.client.call("compute", "GET", "/v1/instances/kept")["state"] == "Active", "active")
    members = stack.client.call("resource", "GET", "/v1/allocations/kept")["members"]
    file = tmp_path / "server.snapshot"
    assert set(take_snapshot(stack.folder, file).manifest.databases) == {process.name for process in PROCESSES} - {
        "operator",
        "console",
    }

    stack.client.call("compute", "PUT", "/v1/instances/later", body={"nodes": 1})
    _, request = restore(stack.folder, file)
    for _ in watch_until_ready(stack.folder, start_supervisor(stack.folder, request.to_json()), TIMEOUT_WALL_S):
        pass
    stack.up()
    assert [each["name"] for each in stack.client.list("compute", "/v1/instances")] == ["kept"]
    assert stack.client.call("resource", "GET", "/v1/allocations/kept")["members"] == members
    stack.client.call("compute", "PUT", "/v1/instances/afterwards", body={"nodes": 1})
    eventually(lambda: stack.client.call("compute", "GET", "/v1/instances/afterwards")["state"] == "Active", "works on")
    converged(stack)

    files = RealStack(tmp_path / "files")
    try:
        restore(files.folder, file)
        files.up()
        found = files.client.call("resource", "GET", "/v1/allocations/kept")["members"]
        assert [member["node"] for member in found] == [member["node"] for member in members]
        assert files.stack().database == ""
    finally:
        stop_stack(files.folder)
