"""Processes that are stopped for many leases and go on (SIGSTOP, SIGCONT), as under a debugger or on a host that was
suspended. What stood still tells nothing of the nodes: MatrixResource holds its own pause against nobody, and nodes whose
process stood still come back in the life they had, without a wipe.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from matrixcommon.model.errors import MatrixError
from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCALE = 10.0
PAUSE_WALL_S = 10.0
"""More than two leases of 30 s at ten emulated seconds a second, while whoever wakes up first has six seconds for it."""


@pytest.fixture(scope="module")
def slow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    stack = RealStack(tmp_path_factory.mktemp("stack") / "state", scale=SCALE)
    stack.up()
    yield stack
    stop_stack(stack.folder)


@contextmanager
def stopped(stack: RealStack, name: str) -> Iterator[None]:
    holder = stack.folder.process_lock(name).holder()
    assert holder is not None
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(holder.pid, signal.SIGCONT)


def nodes(stack: RealStack) -> list[dict[str, Any]]:
    return stack.client.list("resource", "/v1/nodes")


def all_are(stack: RealStack, **fields: Any) -> bool:
    return all(node[key] == value for node in nodes(stack) for key, value in fields.items())


class NodeWatch:
    """What nodes are shown as, for as long as it is watched."""

    def __init__(self, stack: RealStack) -> None:
        self._stack = stack
        self.seen: set[tuple[str, str]] = set()
        self.whole = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        assert self.whole.wait(30)

    def _watch(self) -> None:
        known = set()
        while True:
            try:
                for _, node in self._stack.client.watch("resource", "/v1/nodes", {}):
                    known.add(node["name"])
                    self.seen.add((node["agent"], node["state"]))
                    if len(known) == 48:
                        self.whole.set()
            except MatrixError:
                if not self._stack.folder.holders():
                    return


def test_a_pause_of_matrixresource_is_held_against_nobody(slow_stack: RealStack) -> None:
    eventually(lambda: all_are(slow_stack, agent="Connected", state="Available"), "the nodes are there")
    watched = NodeWatch(slow_stack)

    def forgiven_s() -> float:
        lines = slow_stack.client.fetch("resource", "/metrics").text.splitlines()
        return float(
            next(
                line.split()[1] for line in lines if line.startswith("matrixresource_leases_not_judged_seconds_total ")
            )
        )

    with stopped(slow_stack, "agents"):  # the host stood still; and the one who judges is the first to go on
        with stopped(slow_stack, "resource"):
            time.sleep(PAUSE_WALL_S)
        eventually(lambda: forgiven_s() > PAUSE_WALL_S * SCALE / 2, "the pause was seen")
    slow_stack.client.call("compute", "PUT", "/v1/instances/after", body={"nodes": 2})
    active = lambda: slow_stack.client.call("compute", "GET", "/v1/instances/after")["state"] == "Active"  # noqa: E731
    eventually(active, "everything works")
    assert not [each for each in watched.seen if "Lost" in each or "Quarantined" in each], watched.seen
    slow_stack.client.call("compute", "DELETE", "/v1/instances/after")
    eventually(lambda: all_are(slow_stack, agent="Connected", state="Available"), "it is given back")


def test_nodes_whose_process_stood_still_come_back_in_the_life_they_had(slow_stack: RealStack) -> None:
    eventually(lambda: all_are(slow_stack, agent="Connected", state="Available"), "the nodes are there")
    before = {node["name"]: node["epoch"] for node in nodes(slow_stack)}
    with stopped(slow_stack, "agents"):
        eventually(lambda: all_are(slow_stack, agent="Lost", state="Quarantined"), "they are lost: nobody hears them")
        watched = NodeWatch(slow_stack)
    eventually(lambda: all_are(slow_stack, agent="Connected", state="Available"), "they are back")
    assert {node["name"]: node["epoch"] for node in nodes(slow_stack)} == before
    states = {state for _, state in watched.seen}
    assert states == {"Quarantined", "Verifying", "Available"}, "they were checked, and nothing was wiped"
