"""Who strikes the services of a stack for others: only where a supervisor keeps it, each fault once, undone by any life."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from services.node_agent.contract import ProcessFaultRequest
from services.process_faults.executor import ProcessExecutor
from tests.services.matrixctl.conftest import Bench, eventually


def strike(kind: str, target: str) -> ProcessFaultRequest:
    return ProcessFaultRequest.model_validate({"kind": kind, "target": target})


async def test_what_is_asked_again_is_done_once_and_what_is_only_tried_is_not_done(bench: Bench) -> None:
    bench.up()
    executor = ProcessExecutor(bench.folder.path, "agents")
    before = bench.pid("alpha")
    await executor.inject("a-1", strike("service-killed", "alpha"), validate_only=True)
    assert (bench.pid("alpha"), await executor.faults()) == (before, [])
    await executor.inject("a-1", strike("service-killed", "alpha"))
    eventually(lambda: bench.pid("alpha") not in (0, before), "the supervisor starts it again")
    again = bench.pid("alpha")
    await executor.inject("a-1", strike("service-killed", "alpha"))
    assert bench.pid("alpha") == again
    assert (await executor.process("alpha")).restarted
    with pytest.raises(Conflict, match="service-killed on alpha"):
        await executor.inject("a-1", strike("service-paused", "beta"))
    await executor.clear("a-1")
    with pytest.raises(NotFound):
        await executor.fault("a-1")


async def test_its_next_life_undoes_what_it_has_done(bench: Bench) -> None:
    bench.up()
    await ProcessExecutor(bench.folder.path, "agents").inject("a-0", strike("service-paused", "beta"))
    after = ProcessExecutor(bench.folder.path, "agents")
    assert [(each.name, each.kind, each.target) for each in await after.faults()] == [("a-0", "service-paused", "beta")]
    assert {each.name: each.state for each in await after.processes()} == {"alpha": "Running", "beta": "Stopped"}
    await after.clear("a-0")
    assert (await after.process("beta")).running


@pytest.mark.parametrize(
    ("request_", "field", "why"),
    [
        (strike("service-paused", "beta"), "target", "carries these faults out"),
        (strike("service-paused", "gamma"), "target", "alpha, beta do"),
        (strike("database-readonly", "alpha"), "kind", "keeps no SQLite file"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_field(
    request_: ProcessFaultRequest, field: str, why: str, bench: Bench
) -> None:
    bench.up()
    executor = ProcessExecutor(bench.folder.path, "beta")
    with pytest.raises(InvalidField, match=why) as refused:
        await executor.inject("a-0", request_)
    assert refused.value.field == field
    assert await executor.faults() == []


async def test_without_a_supervisor_nobody_is_struck(tmp_path: Path) -> None:
    executor = ProcessExecutor(tmp_path, "agents")
    assert (await executor.processes(), await executor.faults()) == ([], [])
    with pytest.raises(InvalidField, match="matrixctl up"):
        await executor.inject("a-0", strike("service-killed", "resource"))
    with pytest.raises(NotFound):
        await executor.process("resource")
    await executor.clear("a-0")
