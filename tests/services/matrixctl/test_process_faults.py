"""What a scenario does to processes and databases of a stack, by whoever does it, and that it is undone, also after a kill."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict, InvalidField, NotFound, Unavailable
from matrixcompute.scenarios.fault_injections import parse_parameter
from services.matrixctl.supervisor.state_folder import StateFolder
from services.node_agent.contract import ProcessFaultRequest
from services.process_faults.executor import ProcessExecutor
from services.process_faults.process_faults import ProcessFaults
from tests.services.matrixctl.conftest import SupervisedStack, eventually

STACK: Any = SimpleNamespace(contained=False, database="")


def database(folder: Path) -> sqlite3.Connection:
    found = sqlite3.connect(folder / "compute.db", timeout=0.05, isolation_level=None)
    found.execute("CREATE TABLE IF NOT EXISTS instances (name TEXT)")
    return found


async def test_a_database_refuses_writes_until_another_runner_undoes_it(tmp_path: Path) -> None:
    rows = database(tmp_path)
    await ProcessFaults(StateFolder(tmp_path), STACK).inject("a-0", "database-readonly", "compute", {})
    with pytest.raises(sqlite3.IntegrityError, match="readonly"):
        rows.execute("INSERT INTO instances VALUES ('one')")
    assert rows.execute("SELECT count(*) FROM instances").fetchone() == (0,)
    after = ProcessFaults(StateFolder(tmp_path), STACK)
    assert await after.injected() == ["a-0"], "it is written down for whoever comes after a kill"
    assert not (await after.observe("compute"))["writable"]
    await after.clear("a-0")
    rows.execute("INSERT INTO instances VALUES ('one')")
    assert await after.injected() == []


async def test_a_service_of_the_stack_is_killed_or_stands_still(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    faults = ProcessFaults(supervised_stack.folder, supervised_stack.stack())
    assert set(await faults.services()) == {"alpha", "beta"}
    await faults.inject("a-0", "service-paused", "beta", {})
    assert not (await faults.observe("beta"))["running"]
    await faults.clear("a-0")
    assert (await faults.observe("beta"))["running"]
    before = supervised_stack.pid("alpha")
    await faults.inject("a-1", "service-killed", "alpha", {})
    eventually(lambda: supervised_stack.pid("alpha") not in (0, before), "the supervisor starts it again")
    assert (await faults.observe("alpha"))["restarted"]


async def test_what_keeps_no_file_or_waits_too_long_is_refused_by_its_field(tmp_path: Path) -> None:
    faults = ProcessFaults(StateFolder(tmp_path), STACK)
    with pytest.raises(InvalidField) as refused:
        await faults.check("database-readonly", "agents", {})
    assert refused.value.field == "fault"
    database(tmp_path)
    with pytest.raises(InvalidField) as refused:
        await faults.check("database-stalled", "compute", {"stallS": "60"})
    assert refused.value.field == "parameters.stallS"
    with pytest.raises(InvalidField) as refused:
        await faults.check("service-killed", "compute", {"signal": "TERM"})
    assert refused.value.field == "parameters.signal"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.25", 0.25), ("80E39200", "80E39200"), ("020001001", "020001001"), ("ub-p3-k11", "ub-p3-k11")],
)
def test_a_code_that_looks_like_a_number_stays_a_word(text: str, value: Any) -> None:
    assert parse_parameter(text) == value


# ---- two at once --------------------------------------------------------------------------------------------------------


DATABASE_FAULTS = ("database-readonly", "database-stalled")


@pytest.mark.parametrize(("first", "second"), list(itertools.product(DATABASE_FAULTS, DATABASE_FAULTS)))
async def test_of_two_faults_on_one_database_each_holds_until_it_is_cleared(
    first: str, second: str, tmp_path: Path
) -> None:
    rows = database(tmp_path)
    faults = ProcessFaults(StateFolder(tmp_path), STACK)

    async def holds(kind: str) -> bool:
        seen = await faults.observe("compute")
        return not seen["writable"] if kind == "database-readonly" else seen["stalled"]

    await faults.inject("a", first, "compute", {})
    await faults.inject("b", second, "compute", {})
    await faults.clear("a")
    while second == "database-stalled" and not await holds(second):
        await asyncio.sleep(0)
    assert await holds(second)
    assert await faults.injected() == ["b"]
    await faults.clear("b")
    assert not await holds("database-readonly")
    assert not await holds("database-stalled")
    rows.execute("INSERT INTO instances VALUES ('one')")


async def test_a_stall_is_of_one_database(tmp_path: Path) -> None:
    database(tmp_path)
    sqlite3.connect(tmp_path / "link.db").execute("CREATE TABLE slices (name TEXT)")
    faults = ProcessFaults(StateFolder(tmp_path), STACK)
    await faults.inject("a", "database-stalled", "compute", {})
    while not (await faults.observe("compute"))["stalled"]:
        await asyncio.sleep(0)
    assert not (await faults.observe("link"))["stalled"]
    await faults.clear("a")


async def test_a_service_stands_still_until_the_last_pause_of_it_is_cleared(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    faults, others = (ProcessFaults(supervised_stack.folder, supervised_stack.stack()) for _ in range(2))
    await faults.inject("a", "service-paused", "beta", {})
    await others.inject("b", "service-paused", "beta", {})
    await faults.clear("a")
    assert not (await faults.observe("beta"))["running"]
    await faults.clear("a")
    assert not (await faults.observe("beta"))["running"], "asked again it is still gone"
    await others.clear("b")
    assert (await faults.observe("beta"))["running"]


async def test_what_comes_while_another_is_undone_is_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database(tmp_path)
    faults = ProcessFaults(StateFolder(tmp_path), STACK)
    await faults.inject("a", "database-readonly", "compute", {})
    undo = ProcessFaults._undo

    async def meanwhile(self: ProcessFaults, kind: str, service: str) -> None:
        await self.inject("b", "database-readonly", "compute", {})
        await self.inject("c", "database-stalled", "compute", {})
        await undo(self, kind, service)

    with monkeypatch.context() as at_once:
        at_once.setattr(ProcessFaults, "_undo", meanwhile)
        await faults.clear("a")
    assert await faults.injected() == ["b", "c"]
    assert not (await faults.observe("compute"))["writable"]
    for name in "cb":
        await faults.clear(name)
    assert (await faults.observe("compute"))["writable"]


# ---- who does it for others ---------------------------------------------------------------------------------------------


def strike(kind: str, target: str) -> ProcessFaultRequest:
    return ProcessFaultRequest.model_validate({"kind": kind, "target": target})


async def test_what_is_asked_again_is_done_once_and_what_is_only_tried_is_not_done(
    supervised_stack: SupervisedStack,
) -> None:
    supervised_stack.up()
    executor = ProcessExecutor(supervised_stack.folder.path, "agents")
    before = supervised_stack.pid("alpha")
    await executor.inject("a-1", strike("service-killed", "alpha"), validate_only=True)
    assert (supervised_stack.pid("alpha"), await executor.faults()) == (before, [])
    await executor.inject("a-1", strike("service-killed", "alpha"))
    eventually(lambda: supervised_stack.pid("alpha") not in (0, before), "the supervisor starts it again")
    again = supervised_stack.pid("alpha")
    await executor.inject("a-1", strike("service-killed", "alpha"))
    assert supervised_stack.pid("alpha") == again
    assert (await executor.process("alpha")).restarted
    with pytest.raises(Conflict, match="service-killed on alpha"):
        await executor.inject("a-1", strike("service-paused", "beta"))
    await executor.clear("a-1")
    with pytest.raises(NotFound):
        await executor.fault("a-1")


async def test_its_next_life_undoes_what_it_has_done(supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    await ProcessExecutor(supervised_stack.folder.path, "agents").inject("a-0", strike("service-paused", "beta"))
    after = ProcessExecutor(supervised_stack.folder.path, "agents")
    assert [(each.name, each.kind, each.target) for each in await after.faults()] == [("a-0", "service-paused", "beta")]
    assert {each.name: each.state for each in await after.processes()} == {"alpha": "Running", "beta": "Stopped"}
    await after.clear("a-0")
    assert (await after.process("beta")).running


@pytest.mark.parametrize(
    ("request_", "field", "why"),
    [
        (strike("service-paused", "beta"), "target", "injects these faults itself"),
        (strike("service-paused", "gamma"), "target", "running are alpha, beta"),
        (strike("database-readonly", "alpha"), "kind", "has no SQLite file"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_field(
    request_: ProcessFaultRequest, field: str, why: str, running_stack: SupervisedStack
) -> None:
    executor = ProcessExecutor(running_stack.folder.path, "beta")
    with pytest.raises(InvalidField, match=why) as refused:
        await executor.inject("a-0", request_)
    assert refused.value.field == field
    assert await executor.faults() == []


async def test_what_could_not_be_struck_is_no_fault_and_is_tried_again(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised_stack.up()
    executor = ProcessExecutor(supervised_stack.folder.path, "agents")

    def away(_: ProcessFaults, service: str) -> None:
        raise Unavailable(f"{service} does not run at this moment")

    with monkeypatch.context() as between_two_lives:
        between_two_lives.setattr(ProcessFaults, "_holder", away)
        with pytest.raises(Unavailable):
            await executor.inject("a-0", strike("service-paused", "beta"))
    assert await executor.faults() == []
    await executor.inject("a-0", strike("service-paused", "beta"))
    assert not (await executor.process("beta")).running


async def test_a_stalled_database_can_be_struck_otherwise_too_and_healed(tmp_path: Path) -> None:
    rows = database(tmp_path)
    faults = ProcessFaults(StateFolder(tmp_path), STACK)
    await faults.inject("a-0", "database-stalled", "compute", {"stallS": "0.05"})
    while not (await faults.observe("compute"))["stalled"]:
        await asyncio.sleep(0)
    await faults.inject("a-1", "database-readonly", "compute", {})
    assert not (await faults.observe("compute"))["writable"]
    await faults.clear("a-1")
    await faults.clear("a-0")
    rows.execute("INSERT INTO instances VALUES ('one')")
    assert await faults.injected() == []


async def test_without_a_supervisor_nobody_is_struck(tmp_path: Path) -> None:
    executor = ProcessExecutor(tmp_path, "agents")
    assert (await executor.processes(), await executor.faults()) == ([], [])
    with pytest.raises(InvalidField, match="matrixctl up"):
        await executor.inject("a-0", strike("service-killed", "resource"))
    with pytest.raises(NotFound):
        await executor.process("resource")
    await executor.clear("a-0")
