"""A stack whose disk is full refuses to write, says so, keeps serving reads and loses nothing; it recovers by itself
once there is room, also where a process was killed meanwhile. On a file system of its own, which only root can mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrixcommon.model.errors import Unavailable
from services.matrixctl.supervisor.probe import probe_readiness
from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually

SIZE_MIB = 64
BLOCK = bytes(1 << 16)

pytestmark = pytest.mark.e2e


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(disk)]
    try:
        refused = subprocess.run(mount, capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        refused = "there is no mount command"
    if not disk.is_mount():
        pytest.skip(f"NO FILE SYSTEM OF A GIVEN SIZE HERE, so a full disk is not tested: {refused.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(BLOCK)
        except OSError:
            return filler


def put_quota(stack: RealStack, name: str) -> None:
    stack.client.call("resource", "PUT", f"/v1/quotas/{name}", body={"npus": 16})


def acknowledged_until_full(stack: RealStack) -> list[str]:
    """Quotas that were acknowledged before the first refusal: what a database has reserved of the disk is still free."""
    done: list[str] = []
    while len(done) < 2000:
        name = f"q{len(done)}"
        try:
            put_quota(stack, name)
        except Unavailable:
            return done
        done.append(name)
    raise AssertionError("a full disk took every write")


def quotas(stack: RealStack) -> set[str]:
    return {each["name"] for each in stack.client.list("resource", "/v1/quotas")}


def awaited(stack: RealStack) -> str:
    """What MatrixResource says it waits for; empty if it is ready."""
    return probe_readiness(stack.stack().children["resource"].url, 5.0).waiting_for


def test_a_full_disk_refuses_writes_loses_nothing_and_recovers_when_there_is_room(small_disk: Path) -> None:
    stack = RealStack(small_disk / "state")
    stack.up()
    try:
        stack.client.call("compute", "PUT", "/v1/instances/one", body={"nodes": 2})
        filler = fill(small_disk)
        acknowledged = acknowledged_until_full(stack)
        assert quotas(stack) == set(acknowledged)
        assert awaited(stack) == "its database, which takes no writes: database or disk is full"
        filler.unlink()
        eventually(lambda: awaited(stack) == "", "it is ready without a restart once there is room")
        fill(small_disk)
        stack.kill("resource")
        filler.unlink()
        eventually(lambda: quotas(stack) == set(acknowledged), "what was acknowledged on a nearly full disk is there")
        put_quota(stack, "after")

        def instance_state() -> str:
            return str(stack.client.call("compute", "GET", "/v1/instances/one")["state"])

        eventually(lambda: instance_state() == "Active", "the instance is Active")
        eventually(lambda: not stack.violated_invariants(), "nothing is held twice or by nobody")
    finally:
        stop_stack(stack.folder)
