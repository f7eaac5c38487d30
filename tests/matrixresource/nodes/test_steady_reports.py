"""Reports that say what was said before: nothing comes of them but the lease, and nothing is missed for it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from matrixresource.contract.agents import NodeReport
from matrixresource.controllers.steady_reports import SteadyReports
from matrixresource.nodes.expected_inventory import build_inventory
from matrixresource.store.agent_leases import LeaseRow
from matrixresource.store.fault_history import FaultRecordRow
from matrixresource.topology.loading import load_spec
from tests.matrixresource.reporting import NODE, ReportingService

INVENTORY = build_inventory(load_spec(), serial="s")
CONTENTS: list[dict[str, Any]] = [
    {},
    {"stage": "boot"},
    {"status": "Active"},
    {"generation": 0},
    {"epoch": 2},
    {"sequence": 1},
    {"faults": [("220001001", "npu1")]},
    {"inventory": INVENTORY},
    {"inventory": build_inventory(load_spec(), ["npu5"], serial="s")},
    {"ports": {"vpc": None}},
]
OPERATIONS = st.one_of(
    st.tuples(st.just("report"), st.integers(1, 4), st.sampled_from(CONTENTS)),
    st.tuples(st.just("tried"), st.sampled_from(CONTENTS)),
    st.tuples(st.just("twice"), st.sampled_from(CONTENTS), st.sampled_from(CONTENTS)),
    st.tuples(st.just("cordon"), st.booleans()),
    st.tuples(st.just("refused"), st.booleans()),
    st.tuples(st.just("spec")),
    st.tuples(st.just("silence"), st.sampled_from([1.0, 20.0, 40.0, 200.0])),
    st.tuples(st.just("restart")),
)


class AlwaysProcessed(SteadyReports):
    """Nothing is ever known, so every report is judged."""

    def repeated_nodes(self, *_: Any) -> set[str]:
        return set()


def perform(service: ReportingService, kind: str, *given: Any) -> Any:
    """One operation, and what came of it for whoever asked for it."""
    if kind == "report":
        times, content = given
        return [_taken(service, [content]) for _ in range(times)]
    if kind == "tried":
        return service.store.records.dry_run(lambda: _taken(service, list(given)))
    if kind == "twice":
        return _taken(service, list(given))
    if kind == "cordon":
        _cordon(service, given[0])
    elif kind == "refused":
        try:
            with service.store.records.group_transaction():
                _cordon(service, given[0])
                _taken(service, [{}, {}])
                _taken(service, [{}])
                raise InterruptedError
        except InterruptedError:
            pass
    elif kind == "spec":
        with service.store.transaction() as session:
            service.store.node(session, NODE).assignment_generation += 1
    elif kind == "silence":
        service.clock.at += given[0]
        asyncio.run(service.reports.watch_leases())
    return None


def _taken(service: ReportingService, contents: list[dict[str, Any]]) -> list[Any]:
    reports = []
    for content in contents:
        service.clock.at += 1
        service.sequence += 1
        fields = {
            "status": "Clean",
            "generation": 1,
            "sequence": service.sequence,
            "lease_s": 30.0,
            "epoch": 1,
        } | content
        faults = [{"code": code, "component": component} for code, component in fields.pop("faults", [])]
        reports.append(NodeReport.model_validate({"node": NODE, "faults": faults, **fields}))
    return [answer.wire() for answer in service.reports.process(reports)]


def _cordon(service: ReportingService, cordoned: bool) -> None:
    with service.store.transaction() as session:
        service.store.node(session, NODE).cordon("Operator", cordoned)


def rows(service: ReportingService) -> tuple[Any, ...]:
    """The node as it lies in the database, its version with it, and its lease."""
    with service.store.reading() as session:
        lease = session.execute(select(LeaseRow.__table__)).all()
    return service.node.view().wire(), lease


@settings(max_examples=20)
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
def test_skipped_report_would_have_changed_nothing(operations):
    compare_services(operations)


@pytest.mark.soak
@settings(max_examples=1000)
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
def test_skipped_report_would_have_changed_nothing_after_any_operations(operations):
    compare_services(operations)


def compare_services(operations: list[Any]) -> None:
    """With a service that judges every report, after each operation."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        service, judging = ReportingService(Path(one)), ReportingService(Path(other))
        judging.reports._steady = AlwaysProcessed(judging.store.records)
        for operation in [("report", 1, {"inventory": INVENTORY}), ("report", 2, {}), *operations, ("report", 3, {})]:
            if operation[0] == "restart":
                service.start()
                judging.start()
                judging.reports._steady = AlwaysProcessed(judging.store.records)
                continue
            assert perform(service, *operation) == perform(judging, *operation), operation
            assert rows(service) == rows(judging), operation


def test_repeated_report_is_processed_again_when_the_node_changes(tmp_path, monkeypatch):
    service, judged = ReportingService(tmp_path), []
    judge = service.reports._apply_report
    monkeypatch.setattr(service.reports, "_apply_report", lambda *given: judged.append(given) or judge(*given))

    def judgements(contents: list[dict[str, Any]]) -> int:
        before = len(judged)
        assert all(answer["accepted"] for answer in _taken(service, contents))
        return len(judged) - before

    assert judgements([{"inventory": INVENTORY}]) == 1
    assert [judgements([{}]) for _ in range(3)] == [1, 0, 0]
    assert judgements([{"stage": "boot"}]) == 1
    assert [judgements([{"stage": "boot"}]) for _ in range(3)] == [1, 0, 0]
    _cordon(service, True)
    assert [judgements([{"stage": "boot"}]) for _ in range(2)] == [1, 0]
    assert judgements([{"stage": "boot"}, {"stage": "boot"}]) == 2, "of two of one node both are"
    faulty = {"stage": "boot", "faults": [("220001001", "npu1")]}
    assert [judgements([faulty]) for _ in range(4)] == [1, 1, 1, 1], "what counts by time is judged each time"


def test_rolled_back_report_is_processed_again(tmp_path):
    service = ReportingService(tmp_path)
    for sequence in (5, 6, 7):
        content = [{"sequence": sequence}]
        assert service.store.records.dry_run(lambda content=content: _taken(service, content))[0]["accepted"]
        service.clock.at += 100  # more than half a lease
        assert _taken(service, content)[0]["accepted"]
        assert rows(service)[1][0].sequence == sequence
    assert _taken(service, [{"sequence": 7}])[0]["reason"] == "StaleReport"


def test_transient_fault_within_a_batch_leaves_no_record(tmp_path):
    service = ReportingService(tmp_path)
    answers = _taken(service, [{"faults": [("220001001", "npu1")]}, {}])
    assert all(answer["accepted"] for answer in answers)
    assert not service.node.faults
    with service.store.reading() as session:
        assert not session.execute(select(FaultRecordRow.node)).all()
