"""The clock of a real stack: its speed changes under an instance, and no agent is lost by it."""

from __future__ import annotations

import email.utils
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import choose_processes, start_supervisor, stop_stack, watch_until_ready
from tests.services.matrixctl.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
PROCESSES = "resource,link,compute,agents"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateFolder]:
    folder = StateFolder(tmp_path_factory.mktemp("clock") / "state")
    for _ in watch_until_ready(
        folder, start_supervisor(folder, StackRequest(choose_processes(PROCESSES), scale=1.0).to_json()), 120.0
    ):
        pass
    yield folder
    stop_stack(folder)


def clock(folder: StateFolder, *words: str) -> dict[str, Any]:
    """What `matrixctl clock` says, as a process of its own."""
    command = [sys.executable, "-m", "services.matrixctl", "clock", *words, "--state", str(folder.path), "-o", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def lost(folder: StateFolder) -> list[str]:
    """Nodes whose agents are not connected, or that were lost since they are known."""
    client = ApiClient.of(folder)
    nodes = client.list("resource", "/v1/nodes")
    assert len(nodes) == 48
    return [node["name"] for node in nodes if node["agent"] != "Connected" or node["flapScore"] > 0]


def date_of(folder: StateFolder, service: str) -> float:
    stack = folder.read()
    assert stack is not None
    answer = httpx.get(f"{stack.children[service].url}/healthz", trust_env=False)
    assert answer.headers.get_list("date") == [answer.headers["date"]]
    return email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()


def emulated(folder: StateFolder) -> float:
    stack = folder.read()
    assert stack is not None
    return stack.time.emulated(time.time())


def test_its_speed_changes_and_no_lease_ends_by_it(folder: StateFolder) -> None:
    client = ApiClient.of(folder)
    eventually(lambda: all(node["agent"] == "Connected" for node in client.list("resource", "/v1/nodes")))
    clock(folder, "speed", "600")
    body = {"nodes": 2, "placement": {"policy": "pack"}}
    client.call("compute", "PUT", "/v1/instances/probe", body=body)
    eventually(lambda: client.call("compute", "GET", "/v1/instances/probe")["state"] == "Active")
    assert lost(folder) == []
    for service in ("resource", "link", "compute", "agents"):
        before = emulated(folder)
        assert before - 2 <= date_of(folder, service) <= emulated(folder) + 1

    standing = clock(folder, "pause")
    assert standing["speed"] == 0
    dates = {date_of(folder, service) for service in ("resource", "link", "compute", "agents")}
    assert len(dates) == 1
    assert clock(folder, "show")["emulatedTime"] == standing["emulatedTime"]

    # kill -9 of two of them while time stands: they come back to the same time, which still stands.
    for name in ("agents", "compute"):
        holder = folder.process_lock(name).holder()
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        eventually(
            lambda name=name, pid=holder.pid: (  # type: ignore[misc]
                (now := folder.process_lock(name).holder()) and now.pid != pid and folder.read().children[name].ready  # type: ignore[union-attr]
            )
        )
    assert clock(folder, "show") == standing
    assert {date_of(folder, name) for name in ("agents", "compute")} == dates

    began = datetime.fromisoformat(standing["emulatedTime"])
    reached = clock(folder, "for", "30m", "--speed", "1200", "--then", "60")
    gone = datetime.fromisoformat(reached["emulatedTime"]) - began
    assert 1800 <= gone.total_seconds() < 1800 + 60 * 5
    assert reached["speed"] == 60
    clock(folder, "speed", "1")
    assert lost(folder) == []
    view = client.call("compute", "GET", "/v1/instances/probe")
    assert (view["state"], view["readyNodes"], view["repairs"]) == ("Active", 2, 0)
    times = [event["at"] for event in client.list("compute", "/v1/events")]
    assert times == sorted(times)


def test_a_node_that_dies_is_found_at_every_speed(folder: StateFolder) -> None:
    client = ApiClient.of(folder)
    eventually(lambda: all(node["agent"] == "Connected" for node in client.list("resource", "/v1/nodes")))
    clock(folder, "speed", "600")
    client.call(
        "agents", "PUT", "/v1/faults/dark", body={"kind": "node-down", "target": "sn0-c03-n1", "parameters": {}}
    )

    def found() -> bool:
        node = client.call("resource", "GET", "/v1/nodes/sn0-c03-n1")
        return bool(node["agent"] == "Lost")

    eventually(found)
    client.call("agents", "DELETE", "/v1/faults/dark")
    eventually(lambda: client.call("resource", "GET", "/v1/nodes/sn0-c03-n1")["agent"] == "Connected")
    others = [node for node in client.list("resource", "/v1/nodes") if node["name"] != "sn0-c03-n1"]
    assert all(node["agent"] == "Connected" and node["flapScore"] == 0 for node in others)
