"""A full disk, a locked and a damaged database: a clear word to the client or the operator, and no object lost."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.kube.test_kube_durability import client_of
from tests.matrixcontainer.kubeapi.process import KubeProcess

pytestmark = pytest.mark.e2e

MAPS = "/api/v1/namespaces/default/configmaps"
BIG = "x" * 20_000


def names_in(client: httpx.Client) -> set[str]:
    return {item["metadata"]["name"] for item in client.get(MAPS).json()["items"]}


def started(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A start that is expected to be refused."""
    command = [sys.executable, "-m", "services.kube", "--state", str(tmp_path), "--port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def allow_files_of(kube: KubeProcess, size: int) -> None:
    """Let the process write files of that size at most: what a full disk does, without one."""
    assert kube.process is not None
    resource.prlimit(kube.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk_is_reported_and_outlived(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    try:
        with client_of(kube) as client:
            kept = set[str]()
            room = (tmp_path / "kube.db-wal").stat().st_size + 300_000
            allow_files_of(kube, room)
            refused: dict[str, Any] = {}
            for number in range(200):
                reported = client.post(MAPS, json={"metadata": {"name": f"m{number}"}, "data": {"k": BIG}})
                if reported.status_code != 201:
                    refused = reported.json()
                    break
                kept.add(f"m{number}")
            assert kept
            assert refused["code"] == 507, refused
            assert refused["reason"] == "InsufficientStorage"
            assert "kube.db" not in refused["message"], "where the file is concerns its operator alone"
            assert "kube.db" in kube.log.read_text()
            assert "Traceback" not in refused["message"]
            assert names_in(client) - {"kube-root-ca.crt"} == kept, "reads go on, and show what was acknowledged"
            assert client.delete(f"{MAPS}/m0").status_code in (200, 507)
            allow_files_of(kube, resource.RLIM_INFINITY)
            # Whoever waits behind a write of the control plane's own that still fails is refused with it, and asks again.
            again = (client.post(MAPS, json={"metadata": {"name": "again"}}).status_code for _ in range(5))
            assert 201 in again
            before = names_in(client)
            assert kept - {"m0"} <= before
        kube.kill()
        kube.start()
        with client_of(kube) as client:
            assert names_in(client) == before
        assert "Traceback" not in kube.log.read_text()
    finally:
        kube.kill()


def test_a_locked_database_is_reported_and_outlived(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    try:
        with client_of(kube) as client:
            other = sqlite3.connect(tmp_path / "kube.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            reported = client.post(MAPS, json={"metadata": {"name": "a"}})
            assert (reported.status_code, reported.json()["reason"]) == (503, "ServiceUnavailable")
            assert reported.headers["retry-after"] == "1"
            assert "another program has locked the database" in reported.json()["message"]
            assert client.get(MAPS).status_code == 200
            other.execute("ROLLBACK")
            other.close()
            assert client.post(MAPS, json={"metadata": {"name": "a"}}).status_code == 201
    finally:
        kube.kill()


def test_a_database_locked_at_start_is_reported_in_one_line(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    assert kube.stop() == 0
    other = sqlite3.connect(tmp_path / "kube.db", isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    done = started(tmp_path)
    other.close()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "kube.db" in line
    assert "another program has locked the database" in line


@pytest.mark.parametrize("damage", ["no database", "torn pages"])
def test_a_damaged_database_is_reported_in_one_line(tmp_path: Path, damage: str) -> None:
    kube = KubeProcess(tmp_path).start()
    with client_of(kube) as client:
        for number in range(30):
            assert client.post(MAPS, json={"metadata": {"name": f"m{number}"}, "data": {"k": BIG}}).status_code == 201
    assert kube.stop() == 0
    file = tmp_path / "kube.db"
    sound = tmp_path / "sound.db"
    shutil.copy(file, sound)
    whole = file.read_bytes()
    if damage == "no database":
        file.write_bytes(b"not a database at all" * 500)
    else:
        file.write_bytes(whole[:4096] + bytes(4096 * 4) + whole[4096 * 5 :])
    done = started(tmp_path)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert "kube.db" in line
    assert "restore the file from a backup" in line
    for rest in ("kube.db-wal", "kube.db-shm"):
        (tmp_path / rest).unlink(missing_ok=True)
    shutil.copy(sound, file)
    kube.start()
    try:
        with client_of(kube) as client:
            assert {f"m{number}" for number in range(30)} <= names_in(client)
    finally:
        kube.kill()


def test_a_second_process_on_one_folder_is_reported_in_one_line(tmp_path: Path) -> None:
    kube = KubeProcess(tmp_path).start()
    try:
        done = started(tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "is in use by process" in done.stderr
        assert json.loads(kube.kubeconfig.read_text())["clusters"]
    finally:
        kube.kill()
