"""A snapshot of a stack that is at work, everything killed, and the stack restored from it: nothing promised is broken.

The figures (how long each way took, how long nobody ran) are printed and not judged.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_key import key_of
from services.matrixctl.snapshots.snapshot import request_of, reset, restore, take_snapshot
from services.matrixctl.supervisor.restored_state import RESTORING
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stack_report, start_supervisor, stop_stack, watch_until_ready
from services.recordings.recording import ABOUT, ACTIONS, EVENTS, add_to_snapshot, read_recording
from services.snapshots import archive
from tests.accounting import Acknowledged, audit, fetch_over_http
from tests.e2e.conftest import RealStack, eventually
from tests.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

ROOT = Path(__file__).resolve().parents[2]
INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: llm}
spec: {nodes: 3, spares: 1}
"""
CMI = "/apis/cloudmatrix.io/v1alpha1/namespaces/default/cloudmatrixinstances"
INSTANCES = 20
TIMEOUT_WALL_S = 150.0
SLACK_S = 900.0
"""How much later than when it was recorded something may be there in a replay (s, emulated; a quarter of a minute)."""
SECRETS = ("admin-token", "link-token", "compute-token", "infer-token", "agents-token", "operator-token")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    running = RealStack(tmp_path_factory.mktemp("stack") / "state")
    yield running
    stop_stack(running.folder)


@pytest.fixture
def stack(whole: RealStack) -> RealStack:
    """One for all tests, up and with nothing in it, whatever the test before has left."""
    whole.up()
    eventually(lambda: emptied(whole), "nothing is in it, and every node is free", TIMEOUT_WALL_S)
    return whole


def emptied(stack: RealStack) -> bool:
    """Whether it is; takes away what is not on its way out already."""
    left = [f"{CMI}/{each['metadata']['name']}" for each in stack.cluster.items(CMI)]
    for path in left:
        stack.cluster.send("DELETE", path)
    for service, kind in (("agents", "faults"), ("compute", "instances")):
        for each in stack.client.list(service, f"/v1/{kind}"):
            left.append(each["name"])
            stack.client.call(service, "DELETE", f"/v1/{kind}/{each['name']}")
    return not left and stack.all_nodes_free()


class Tenants(threading.Thread):
    """Asks for instances of two nodes one after the other, over and over with another size, and remembers what each
    service acknowledged."""

    def __init__(self, stack: RealStack) -> None:
        super().__init__(daemon=True)
        self.stack, self.ended = stack, threading.Event()
        self.acknowledged: dict[str, float] = {}
        """When it was acknowledged that each instance is there (wall)."""
        self.refused: list[str] = []
        self.asked = 0

    def run(self) -> None:
        turn = 0
        while not self.ended.is_set():
            name, nodes = f"tenant-{turn % INSTANCES:02d}", 1 + (turn // INSTANCES) % 2
            try:
                self.stack.client.call("compute", "PUT", f"/v1/instances/{name}", body={"nodes": nodes})
                self.acknowledged.setdefault(name, time.time())
            except (MatrixError, httpx.HTTPError) as refused:
                self.refused.append(str(refused))
            turn += 1
            self.asked = turn
            self.ended.wait(0.02)


@contextmanager
def tenants(stack: RealStack) -> Iterator[Tenants]:
    found = Tenants(stack)
    found.start()
    try:
        yield found
    finally:
        found.ended.set()
        found.join()


def lists(stack: RealStack) -> Any:
    urls = {name: child.url for name, child in stack.stack().children.items()}
    return fetch_over_http(urls, stack.folder.admin_token())


def kill_everything(stack: RealStack) -> None:
    supervisor = stack.folder.supervisor()
    holders = [holder for holder in (supervisor, *stack.folder.holders().values()) if holder is not None]
    for holder in holders:
        holder.signal(signal.SIGKILL)
    eventually(lambda: not any(holder.alive() for holder in holders), "everything is dead")


def bring_back(stack: RealStack, file: Path) -> float:
    """Restore and start; returns how long that took until all were ready (wall seconds)."""
    began = time.monotonic()
    _, request = restore(stack.folder, file)
    for _ in watch_until_ready(stack.folder, start_supervisor(stack.folder, request.to_json()), TIMEOUT_WALL_S):
        pass
    return time.monotonic() - began


def test_a_new_folder_has_the_same_stack_and_other_secrets(stack: RealStack, tmp_path: Path) -> None:
    stack.client.call("compute", "PUT", "/v1/instances/kept", body={"nodes": 2})
    eventually(lambda: stack.client.call("compute", "GET", "/v1/instances/kept")["state"] == "Active", "active")
    before = stack.client.call("resource", "GET", "/v1/allocations/kept")["members"]
    file = tmp_path / "one.snapshot"
    take_snapshot(stack.folder, file)
    archive.extract(file, tmp_path / "unpacked")
    content = b"".join(database.read_bytes() for database in (tmp_path / "unpacked").iterdir())
    for name in SECRETS:
        assert (stack.folder.path / name).read_text().strip().encode() not in content, f"{name} is in the snapshot"
    users = json.loads((stack.folder.path / "kube" / "tokens.json").read_text())
    for secret in (users["signingKey"], *(each["token"] for each in users["tokens"].values())):
        assert secret.encode() not in content, "a token of the Kubernetes API is in the snapshot"

    other = RealStack(tmp_path / "other")
    try:
        bring_back(other, file)
        other.up()
        found = other.client.call("resource", "GET", "/v1/allocations/kept")["members"]
        assert [member["node"] for member in found] == [member["node"] for member in before]
        assert other.folder.admin_token() != stack.folder.admin_token()
        assert other.stack().time.scale == stack.stack().time.scale
        assert stack.all_ready(), "the stack that was copied runs on"

        request = reset(other.folder)
        for _ in watch_until_ready(other.folder, start_supervisor(other.folder, request.to_json()), TIMEOUT_WALL_S):
            pass
        other.up()
        assert other.client.list("compute", "/v1/instances") == []
        assert request == request_of(other.stack())
    finally:
        stop_stack(other.folder)


def test_who_is_killed_while_all_stand_still_leaves_nobody_stopped(stack: RealStack, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from services.matrixctl.supervisor.state_folder import StateFolder\n"
        "from services.matrixctl.snapshots.process_freeze import stack_processes, frozen\n"
        "with frozen(stack_processes(StateFolder(Path(sys.argv[1])))):\n    print('still', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(stack.folder.path)], stdout=subprocess.PIPE, cwd=ROOT
    ) as stopper:
        assert stopper.stdout is not None
        assert stopper.stdout.readline() == b"still\n"
        with pytest.raises(httpx.HTTPError):
            httpx.get(stack.stack().children["resource"].url + "/healthz", timeout=0.5, trust_env=False)
        os.kill(stopper.pid, signal.SIGKILL)
    eventually(lambda: httpx.get(f"{stack.stack().children['resource'].url}/healthz", timeout=5).is_success, "runs")
    eventually(stack.all_ready, "everybody runs on")


def test_a_restore_that_was_cut_short_is_finished_by_the_next_start(stack: RealStack, tmp_path: Path) -> None:
    stack.client.call("compute", "PUT", "/v1/instances/kept", body={"nodes": 1})
    eventually(lambda: stack.client.call("compute", "GET", "/v1/instances/kept")["state"] == "Active", "active")
    file = tmp_path / "one.snapshot"
    take_snapshot(stack.folder, file)
    reset(stack.folder)
    place = stack.folder.path / RESTORING
    archive.extract(file, place)
    (place / "placed").touch()
    (place / "link.db").replace(stack.folder.path / "link.db")  # as far as it had come
    stack.up()
    assert [each["name"] for each in stack.client.list("compute", "/v1/instances")] == ["kept"]
    assert not place.exists()
    with closing(sqlite3.connect(stack.folder.path / "link.db")) as database:
        assert database.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_a_recorded_incident_comes_out_the_same_in_virtual_time(stack: RealStack, tmp_path: Path) -> None:
    manifest = tmp_path / "llm.yaml"
    manifest.write_text(INSTANCE)
    assert ran_for(stack, "record", "start") == 0
    assert ran_for(stack, "record", "start") == 1, "it is recorded already"
    eventually(lambda: stack.cluster.apply(manifest), "applied")
    eventually(lambda: stack.active("llm"), "active")
    lost = stack.members("llm")[0]
    body = {"kind": "node-down", "target": lost, "parameters": {}}
    eventually(lambda: stack.client.call("agents", "PUT", "/v1/faults/lost", body=body), "broken")
    eventually(lambda: lost not in stack.members("llm") and stack.active("llm"), "healed")
    file = tmp_path / "incident.recording"
    assert ran_for(stack, "record", "stop", str(file)) == 0
    assert ran_for(stack, "record", "stop", str(file)) == 1, "nothing is recorded"
    recording = read_recording(file)
    asked = [(action.service, action.method) for action in recording.actions]
    assert asked == [("kube", "PATCH"), ("agents", "PUT")], "what processes ask each other is no action of a user"
    assert stack.folder.admin_token() not in recording.model_dump_json()
    replay = subprocess.run(
        [sys.executable, "-m", "services.matrixctl", "replay", str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert replay.returncode == 0, replay.stdout + replay.stderr[-2000:]


@pytest.mark.timeout(600)
def test_a_recording_is_replayed_on_real_processes(stack: RealStack, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "incident.recording", tmp_path / "elsewhere"
    assert ran_for(stack, "record", "start") == 0
    stack.client.call("compute", "PUT", "/v1/instances/short", body={"nodes": 2})
    eventually(lambda: stack.client.call("compute", "GET", "/v1/instances/short")["state"] == "Active", "active")
    # The replay breaks it at the same moment, and shall have it Active by then on a machine that is busier.
    emulated_s = stack.stack().time.emulated
    calm_until = emulated_s(time.time()) + SLACK_S
    eventually(lambda: emulated_s(time.time()) > calm_until, "it serves for a while")
    lost = stack.members("short")[0]
    body = {"kind": "node-down", "target": lost, "parameters": {}}
    eventually(lambda: stack.client.call("agents", "PUT", "/v1/faults/lost", body=body), "broken")

    def healed() -> bool:
        state = stack.client.call("compute", "GET", "/v1/instances/short")["state"]
        return bool(lost not in stack.members("short") and state == "Active")

    eventually(healed, "healed")
    assert ran_for(stack, "record", "stop", str(file)) == 0

    refused = replayed(file, stack.folder.path)
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    assert "kind instance, name short" in refused.stderr
    assert stack.all_ready(), "nothing was touched"

    same = replayed(file, elsewhere)
    assert same.returncode == 0, same.stdout + same.stderr[-2000:]
    assert "compute PUT /v1/instances/short" in same.stdout
    assert "each object went through the same states" in same.stdout
    assert not stack_report(StateFolder(elsewhere)).running

    refused = replayed(file, elsewhere)
    assert refused.returncode == 1
    assert "matrixctl reset" in refused.stderr

    recording = read_recording(file)
    first = next(at for at, each in enumerate(recording.events) if each.kind == "instance")
    wrong = recording.events[first].model_copy(update={"body": '{"state": "Stopped"}'})
    events = (*recording.events[:first], wrong, *recording.events[first + 1 :])
    other = tmp_path / "other.recording"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            if name not in (ABOUT, ACTIONS, EVENTS):
                target.writestr(name, source.read(name))
    add_to_snapshot(other, recording.model_copy(update={"events": events}))
    differs = replayed(other, tmp_path / "third")
    assert differs.returncode == 1, differs.stdout
    assert "recorded: instance short, state 1: Stopped" in differs.stdout
    assert "agents PUT /v1/faults/lost" not in differs.stdout, "it ends with the first difference"


def test_nothing_promised_is_broken_by_a_snapshot_at_work(stack: RealStack, tmp_path: Path, figures: Figures) -> None:
    file = tmp_path / "at-work.snapshot"
    with tenants(stack) as busy:
        eventually(lambda: len(busy.acknowledged) == INSTANCES, "everybody has asked", TIMEOUT_WALL_S)
        began = time.time()
        taken = take_snapshot(stack.folder, file)
        known = [name for name, at in busy.acknowledged.items() if at < began]
        eventually(stack.all_ready, "the stack went on")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lost = [node["name"] for node in stack.client.list("resource", "/v1/nodes") if node["agent"] == "Lost"]
    assert not lost, "leases ended by the standstill"

    kill_everything(stack)
    back_wall_s = bring_back(stack, file)

    acknowledged = Acknowledged()
    for name in known:
        acknowledged.wrote("instances", key_of("default", name), {})
    assert len(known) == INSTANCES

    def settled() -> bool:
        instances = stack.client.list("compute", "/v1/instances")
        return all(each["state"] == "Active" or each["state"] == "Pending" for each in instances)

    broken = audit(lists(stack), acknowledged=acknowledged)
    assert broken == []
    eventually(settled, "everybody settles", TIMEOUT_WALL_S)
    eventually(lambda: not audit(lists(stack), settled=True, acknowledged=acknowledged), "settled", TIMEOUT_WALL_S)
    assert stack.violated_invariants() == []
    figures.requests, figures.errors = busy.asked, len(busy.refused)
    figures.more = (
        f"snapshot in {taken.took_wall_s:.2f} s, {taken.stopped_wall_s:.2f} s of them at a standstill, restored until "
        f"ready in {back_wall_s:.2f} s"
    )


def replayed(file: Path, state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.matrixctl", "replay", str(file), "--state", str(state)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def ran_for(stack: RealStack, *words: str) -> int:
    """matrixctl in a process of its own; its exit code."""
    command = [sys.executable, "-m", "services.matrixctl", *words, "--state", str(stack.folder.path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode
