"""Reports of experiments that are kept: by name in a project, within bounds, found and compared by who may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from infer_workload.metering.tables import Base
from infer_workload.report_store.contract import DEPTH_MAX, HTML_MAX, ReportRequest
from infer_workload.report_store.service import ReportStore
from infer_workload.report_store.tables import ReportContentRow
from matrixcommon.model.clock import ScaledClock
from matrixcommon.model.errors import QuotaExceeded
from matrixcommon.persistence.database_session import Database
from services.chassis.access import create_token
from services.chassis.database import DatabaseEngine
from tests.infer_workload.conftest import InferServer

TTFT = {"mean": 0.5, "p50": 0.4, "p90": 1.0, "p99": 2.0}
RUN = {"finished": 90, "refused": 2, "ttft": TTFT, "seed": 1, "workload": "90 requests", "cached": True}


def report(document: Any = RUN, **otherwise: Any) -> dict[str, Any]:
    plots = [{"title": "TTFT", "x": "s", "y": "share", "lines": {"TTFT": [[0.1, 0.0], [1, 1]]}}]
    asked = {"experiment": "run", "title": "a run", "command": "matrixctl experiment run", "document": document}
    return {**asked, "plots": plots, "html": "<h1>a run</h1>", **otherwise}


async def test_a_report_is_kept_as_it_was_sent_and_found_again_by_the_next_process(fresh: Path) -> None:
    async with InferServer(fresh) as server:
        answer = await server.http.put("/v1/reports/first", json=report(labels={"team": "a"}))
        assert answer.status_code == 200, answer.text
        view = answer.json()
        assert (view["state"], view["author"], view["generation"]) == ("Kept", "anyone", 1)
        again = (await server.http.put("/v1/reports/first", json=report(labels={"team": "a"}))).json()
        assert again["generation"] == 1, "the same again is no other report"
    async with InferServer(fresh) as server:
        listed = (await server.http.get("/v1/reports", params={"filter": "experiment=run"})).json()["items"]
        assert [(each["name"], each["labels"], each["sizeBytes"]) for each in listed] == [
            ("first", {"team": "a"}, view["sizeBytes"])
        ]
        content = (await server.http.get("/v1/reports/first/content")).json()
        assert {key: content[key] for key in report()} == report()
        assert (await server.http.put("/v1/reports/first", json=report(title="another"))).json()["generation"] == 2
        assert (await server.http.delete("/v1/reports/first")).status_code == 204
        assert (await server.http.get("/v1/reports/first/content")).status_code == 404
        with server.database.sessions() as session:
            assert session.scalar(select(func.count()).select_from(ReportContentRow)) == 0, "its content went with it"


async def test_what_is_only_validated_is_not_kept(server: InferServer) -> None:
    answer = await server.http.put("/v1/reports/first", json=report(), params={"validateOnly": "true"})
    assert answer.json()["sizeBytes"] > 0
    assert (await server.http.get("/v1/reports")).json()["items"] == []
    assert (await server.http.put("/v1/reports/first", json=report())).is_success
    for wrong in ('"9999"', "*"):
        answer = await server.http.put("/v1/reports/second", json=report(), headers={"If-Match": wrong})
        assert answer.status_code == 412, answer.text


async def test_two_runs_are_compared_and_what_is_none_is_refused_by_name(server: InferServer) -> None:
    later = {**RUN, "finished": 92, "refused": 0, "ttft": {**TTFT, "p90": 1.5}, "seed": 2}
    for name, body in (
        ("before", report()),
        ("after", report(later)),
        ("ranges", report({"points": [{"nodes": 4}]}, experiment="sweep")),
    ):
        assert (await server.http.put(f"/v1/reports/{name}", json=body)).is_success
    found = (await server.http.get("/v1/reports/before/comparison", params={"with": "after"})).json()
    changed = {each["name"]: each for each in found["changes"] if each["before"] != each["after"]}
    assert (found["before"]["name"], found["after"]["name"]) == ("before", "after")
    assert changed.keys() == {"finished", "refused", "ttft.p90"}
    assert [changed[name]["better"] for name in ("finished", "refused", "ttft.p90")] == [True, True, False]
    assert changed["ttft.p90"]["part"] == 0.5
    for name, other, status, field in (
        ("ranges", "before", 422, "name"),
        ("before", "ranges", 422, "with"),
        ("before", "nothing", 404, "name"),
    ):
        answer = await server.http.get(f"/v1/reports/{name}/comparison", params={"with": other})
        assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"in": found}
    return found


@pytest.mark.parametrize(
    ("what", "body", "status", "field"),
    [
        ("an unknown experiment", report(experiment="guess"), 422, "experiment"),
        ("no document", report({}), 422, None),
        ("a document that is none", report([1]), 422, "document"),
        ("one that is too deep", report(nested(DEPTH_MAX + 1)), 422, None),
        ("a number beyond all", report({"ttft": {"p50": 10**400}, "finished": 1}), 422, None),
        ("a title of two lines", report(title="a\nb"), 422, "title"),
        ("a page that is too long", report(html="x" * (HTML_MAX + 1)), 422, "html"),
        ("more than a body may have", report({"a": "x" * (1 << 20)}), 413, "body"),
        ("too many points", report(plots=[{"title": "a", "x": "", "y": "", "lines": {"a": [[0, 0]] * 1001}}]), 422,
         "plots[0].lines.a"),
    ],
)  # fmt: skip
async def test_what_is_no_report_is_refused(
    server: InferServer, what: str, body: Any, status: int, field: str | None
) -> None:
    answer = await server.http.put("/v1/reports/bad", json=body)
    assert answer.status_code == status, answer.text
    if field:
        assert answer.json()["field"] == field
    assert (await server.http.get("/v1/reports")).json()["items"] == []


def test_a_project_keeps_so_many_reports_and_bytes_and_others_have_their_own(fresh: Path) -> None:
    database = DatabaseEngine(f"sqlite:///{fresh}")
    records = Database(database.sessions, Base.metadata, ScaledClock(1.0, 0.0))
    asked = ReportRequest.model_validate(report())
    large = ReportRequest.model_validate(report({**RUN, "note": "x" * 2000}))
    store = ReportStore(records, reports_max=2, bytes_max=3000)
    store.ensure("red/a", asked, "somebody")
    store.ensure("red/b", asked, "somebody")
    with pytest.raises(QuotaExceeded, match=r"has 2 reports.*report delete NAME --project red"):
        store.ensure("red/c", asked, "somebody")
    store.ensure("red/b", large, "somebody")
    with pytest.raises(QuotaExceeded, match="more than the maximum of 3,000"):
        store.ensure("red/a", large, "somebody")
    assert store.content("red/a").document == RUN, "a refusal leaves what was kept"
    store.ensure("blue/c", asked, "somebody")
    store.delete("red/b")
    store.ensure("red/a", large, "somebody")
    database.close()


async def test_editors_keep_reports_viewers_read_them_and_nobody_sees_another_projects(
    tmp_path: Path, fresh: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    made = {
        (role, project): create_token(tokens, f"{role}-{project}", project, role)
        for role, project in (("admin", "default"), ("editor", "red"), ("viewer", "red"), ("user", "red"), ("editor", "blue"))
    }  # fmt: skip

    def as_(role: str, project: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {made[role, project]}"}

    async with InferServer(fresh, tokens=tokens) as server:
        for role in ("viewer", "user"):
            answer = await server.http.put("/v1/reports/mine", json=report(), headers=as_(role, "red"))
            assert answer.status_code == 403
        answer = await server.http.put("/v1/reports/mine", json=report(), headers=as_("editor", "red"))
        assert (answer.json()["project"], answer.json()["author"]) == ("red", "editor-red")
        assert (await server.http.get("/v1/reports/mine/content", headers=as_("viewer", "red"))).is_success
        assert (await server.http.put("/v1/reports/own", json=report(), headers=as_("editor", "blue"))).is_success
        for path in ("/v1/reports/mine", "/v1/reports/mine/content", "/v1/reports/own/comparison?with=mine",
                     "/v1/reports/own/comparison?with=red/mine"):  # fmt: skip
            answer = await server.http.get(path, headers=as_("editor", "blue"))
            assert answer.status_code == 404, path
        answer = await server.http.delete("/v1/reports/mine", headers=as_("editor", "blue"))
        assert answer.status_code == 404
        listed = (await server.http.get("/v1/reports", headers=as_("editor", "blue"))).json()["items"]
        assert [each["name"] for each in listed] == ["own"]
        assert (await server.http.get("/v1/reports/mine?project=red", headers=as_("admin", "default"))).is_success
