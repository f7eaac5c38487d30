"""Tokens are metered exactly once, by project, key, model and time; what may be used is limited, durably."""

import asyncio
import json
from collections import Counter

import pytest
from sqlalchemy import event

from infer_workload.metering.contract import UsageLimitRequest
from infer_workload.metering.tables import DAY_S, HOUR_S, MINUTE_S, UsageRow, add_charges, roll_up, sum_usage
from infer_workload.openai.answers import error_response
from matrixcommon.model.errors import RateLimitExceeded, UsageQuotaExceeded
from services.chassis.access import create_token
from services.chassis.database import DatabaseEngine
from tests.infer_workload.conftest import InferServer

ACCOUNT = ("default", "anyone", "r1", "deepseek-r1")
BACKWARDS = {"end": "2026-01-01T00:00:00Z", "start": "2026-01-02T00:00:00Z"}
TEXT = {"model": "r1", "prompt": "one two three", "max_tokens": 8, "ignore_eos": True}


async def usage(server, **params):
    answer = await server.http.get("/v1/usage", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def test_every_answer_is_written_before_its_last_token_is_sent(serving):
    """What a client has seen is in the database at that moment, so a process that ends there loses none of it."""
    other = DatabaseEngine(str(serving.database.engine.url))

    def written():
        with other.sessions() as session:
            return sum(row["completion_tokens"] for row in sum_usage(session, (), None, None, None))

    asked = TEXT | {"max_tokens": 100, "stream": True}
    seen, paced = 0, []
    async with serving.http.stream("POST", "/v1/completions", json=asked) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                seen += bool(json.loads(line.removeprefix("data: "))["choices"][0]["text"])
                paced.append((seen, written()))
    assert seen == 100
    assert all(charged >= sent for sent, charged in paced)
    assert written() == 100
    await serving.http.post("/v1/completions", json=TEXT)
    assert written() == 108
    other.close()


async def test_a_stream_that_is_given_up_is_charged_for_what_there_was(fresh):
    async with InferServer(fresh, scale=60.0) as server:
        await server.ensure()
        await server.until("Serving")
        live = server.app.state.serving.live["r1"]
        for streamed in (True, False):
            before = sum(each["completionTokens"] for each in await usage(server))
            asked = asyncio.create_task(
                server.http.post("/v1/completions", json=TEXT | {"max_tokens": 5000, "stream": streamed})
            )
            while not live.engine.in_flight:
                await asyncio.sleep(0.005)
            request = next(iter(live.engine.in_flight.values()))
            while live.tokens_of(request) < 500:  # so many that the door has been woken for some of them
                await asyncio.sleep(0.005)
            asked.cancel()
            while live.engine.in_flight:
                await asyncio.sleep(0.005)
            while (entry := (await usage(server) or [{"completionTokens": 0}])[0])["completionTokens"] == before:
                await asyncio.sleep(0.005)  # the door charges it when it finds out that nobody listens
            assert 0 < entry["completionTokens"] - before < 5000
            assert request.state == "Cancelled"
        assert entry["requests"] == 2


async def test_a_stream_is_charged_for_what_was_sent_where_its_client_reads_no_more_and_goes_away(serving):
    """The server waits for room in the connection then, and not for the next token."""
    body = json.dumps(TEXT | {"max_tokens": 500, "stream": True}).encode()
    asked, sent, stalled = [{"type": "http.request", "body": body}], [], asyncio.Event()

    async def receive():
        if asked:
            return asked.pop()
        await stalled.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message.get("body", b""))
        if sent[-1]:
            stalled.set()
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions", "headers": [],
             "query_string": b"", "http_version": "1.1", "scheme": "http", "client": ("c", 1), "server": ("infer", 80),
             "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.3"}}  # fmt: skip
    await serving.app(scope, receive, send)
    tokens = b"".join(sent).count(b'"finish_reason"')
    (entry,) = await usage(serving)
    assert (entry["requests"], entry["promptTokens"]) == (1, 3)
    assert 0 < tokens <= entry["completionTokens"]
    assert not serving.app.state.serving.live["r1"].engine.in_flight


async def test_usage_is_summed_by_what_is_asked_for(serving):
    service = serving.app.state.serving.usage
    with service.records.transaction() as session:
        for key, minute, tokens in (("a", 0, 5), ("a", 60, 7), ("b", 60, 11), ("b", HOUR_S, 13)):
            account = ("default", key, "r1", "deepseek-r1")
            add_charges(session, {(account, minute): Counter(requests=1, completion_tokens=tokens)})
    by_hour = await usage(serving, bucket="1h", groupBy="")
    assert [(each["bucketStart"], each["completionTokens"]) for each in by_hour] == [
        ("1970-01-01T00:00:00.000Z", 23),
        ("1970-01-01T01:00:00.000Z", 13),
    ]
    by_key = await usage(serving, groupBy="key")
    assert [(each["key"], each["requests"], each["completionTokens"]) for each in by_key] == [
        ("a", 2, 12),
        ("b", 2, 24),
    ]
    assert "model" not in by_key[0]
    part = await usage(serving, groupBy="model", start="1970-01-01T00:01:00Z", end="1970-01-01T01:00:00Z")
    assert [(each["model"], each["completionTokens"]) for each in part] == [("deepseek-r1", 18)]
    for wrong in ({"bucket": "1w"}, {"groupBy": "colour"}, {"start": "yesterday"}, BACKWARDS):
        answer = await serving.http.get("/v1/usage", params=wrong)
        assert (answer.status_code, answer.json()["field"]) == (422, next(iter(wrong)))


async def test_old_buckets_are_rolled_up_and_nothing_is_lost(server):
    records = server.app.state.serving.usage.records
    with records.transaction() as session:
        for minute in range(0, 3 * HOUR_S, MINUTE_S):
            add_charges(session, {(ACCOUNT, minute): Counter(requests=1, prompt_tokens=2)})
        assert roll_up(session, now=1.5 * DAY_S) == 0
        assert roll_up(session, now=2 * DAY_S + 2 * HOUR_S) == 120
        widths = sorted(row.width_s for row in session.query(UsageRow))
        assert widths == [MINUTE_S] * 60 + [HOUR_S] * 2
        add_charges(session, {(ACCOUNT, MINUTE_S): Counter(requests=1)})
        roll_up(session, now=100 * DAY_S)
        (row,) = session.query(UsageRow)
        assert (row.width_s, row.requests, row.prompt_tokens) == (DAY_S, 181, 360)


async def test_old_buckets_are_looked_for_only_once_more_of_them_are_old_enough(usage_service):
    usage, clock = usage_service
    began, asked = clock.at, []
    usage.accounts.add(ACCOUNT, prompt_tokens=2)
    assert await usage.flush_and_roll_up() == "1 accounts charged, 0 buckets rolled up"
    with usage.records.reading() as session:
        event.listen(session.get_bind(), "before_cursor_execute", lambda *sent: asked.append(sent[2]))
    for clock.at in (began + 10, began + HOUR_S - 1):
        await usage.flush_and_roll_up()
    assert asked == []
    clock.at = began + 2 * DAY_S + HOUR_S
    assert await usage.flush_and_roll_up() == "0 accounts charged, 1 buckets rolled up"


async def limit(server, name="small", project="default", status=200, **spec):
    answer = await server.http.put(f"/v1/usage-limits/{name}", json=spec, params={"project": project})
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_rate_limit_refuses_with_429_and_says_when_to_come_again(fresh):
    async with InferServer(fresh, scale=1000.0) as server:
        await server.ensure()
        await server.until("Serving")
        await limit(server, requestsPerDay=2)
        answers = [await server.http.post("/v1/completions", json=TEXT) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        refused = answers[2]
        assert 1 <= int(refused.headers["retry-after"]) <= DAY_S / 1000 + 1
        assert refused.json()["error"]["code"] == refused.json()["error"]["type"] == "insufficient_quota"
        shown = (await server.http.get("/v1/usage-limits/small")).json()
        assert shown["used"]["requestsPerDay"]["used"] == 2
        assert (await server.http.get("/v1/usage-limits")).json()["items"] == [shown]
        await limit(server, requestsPerMinute=1, model="other")
        assert (await server.http.post("/v1/completions", json=TEXT)).status_code == 200, "it is for another model"
        await limit(server, tokensPerMinute=10)
        refused = await server.http.post("/v1/completions", json=TEXT)
        assert refused.status_code == 400, "to come again would not help"
        assert "retry-after" not in refused.headers
        assert refused.json()["error"]["param"] == "max_tokens"
        await limit(server, tokensPerMinute=1000)
        served = await server.http.post("/v1/completions", json=TEXT)
        assert served.headers["x-ratelimit-limit-tokens"] == "1000"
        assert (await server.http.delete("/v1/usage-limits/small")).status_code == 204
        assert (await server.http.get("/v1/usage-limits")).json()["items"] == []


@pytest.mark.parametrize("name", ["project", "validateOnly"])
async def test_a_body_with_what_belongs_in_the_query_is_told_so(server, name):
    body = {"requestsPerDay": 2, name: "red"}
    refused = await server.http.put("/v1/usage-limits/small", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"] == f"{name}: unknown field; give it in the query: ?{name}="


def test_a_rate_limit_says_of_what_it_is():
    for field, kind in (
        ("tokensPerMinute", "tokens"),
        ("requestsPerMinute", "requests"),
        ("requestsInFlight", "requests"),
    ):
        error = json.loads(error_response(RateLimitExceeded("no more", field=field)).body)["error"]
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", kind)


async def test_limits_and_what_is_used_of_them_outlive_the_process(fresh):
    async with InferServer(fresh) as first:
        await first.ensure()
        await first.until("Serving")
        await limit(first, requestsPerDay=10**6, tokensPerDay=10**9)
        for _ in range(3):
            await first.http.post("/v1/completions", json=TEXT)
        before = (await first.http.get("/v1/usage-limits/small")).json()["used"]
        assert before["requestsPerDay"]["used"] == 3
        assert before["tokensPerDay"]["used"] == 3 * (3 + 8)
    async with InferServer(fresh) as second:
        after = (await second.http.get("/v1/usage-limits/small")).json()["used"]
        if after["requestsPerDay"]["resetsAt"] == before["requestsPerDay"]["resetsAt"]:  # the same emulated day
            assert after == before


def test_windows_roll_over_and_reservations_count(usage_service):
    service, clock = usage_service
    service.ensure("small", UsageLimitRequest(tokens_per_minute=100, requests_in_flight=2, requests_per_day=3))
    first, _ = service.admit(ACCOUNT, 60)
    with pytest.raises(RateLimitExceeded) as refused:
        service.admit(ACCOUNT, 60)
    assert (refused.value.field, refused.value.retry_after_s) == ("tokensPerMinute", 60)
    message = "limit small allows 100 tokens per minute: 60 used or reserved, 60 more requested"
    assert refused.value.message == message
    second, _ = service.admit(ACCOUNT, 40)
    with pytest.raises(RateLimitExceeded, match="in flight"):
        service.admit(ACCOUNT, 0)
    first.charge(10, clock.now())
    first.end()
    second.cancel(clock.now())
    assert service.view("small").used["tokensPerMinute"].used == 10
    assert service.view("small").used["requestsPerDay"].used == 1
    clock.at += 60
    assert service.view("small").used["tokensPerMinute"].used == 0
    for _ in range(2):
        service.admit(ACCOUNT, 1)[0].end()
    with pytest.raises(UsageQuotaExceeded):
        service.admit(ACCOUNT, 1)
    service.admit(("other", "anyone", "r1", "deepseek-r1"), 1)
    clock.at += DAY_S
    service.admit(ACCOUNT, 1)


async def test_a_refund_goes_to_the_minute_of_its_charge(usage_service):
    service, clock = usage_service
    service.ensure("small", UsageLimitRequest(tokens_per_minute=1000, tokens_per_day=1000))
    _, cut = service.admit(ACCOUNT, 110)
    await cut.precharge(1, 100, 10, 0)
    await cut.precharge(34, 100, 10, 0)
    clock.at += MINUTE_S
    await cut.precharge(67, 100, 10, 0)
    _, other = service.admit(ACCOUNT, 30)
    await other.charge_all(20, 10, 0)
    cut.close(40, 10, 0)
    assert [row["completion_tokens"] for row in service.sum_usage((), MINUTE_S, None, None)] == [40, 20]
    used = {name: each.used for name, each in service.view("small").used.items()}
    assert used == {"tokensPerMinute": 30, "tokensPerDay": 80}
    assert service.restore() == 1
    assert {name: each.used for name, each in service.view("small").used.items()} == used


async def test_a_limit_that_is_set_counts_the_requests_that_run_then(usage_service):
    service, _ = usage_service
    (_, waits), (_, runs), (gone, _) = (service.admit(ACCOUNT, 110) for _ in range(3))
    await runs.precharge(1, 100, 10, 0)
    gone.end()
    for again in range(2):  # the second time under a name that had another limit
        if again:
            service.delete("small")
        service.ensure("small", UsageLimitRequest(tokens_per_minute=300, requests_per_minute=9, requests_in_flight=2))
        used = {name: each.used for name, each in service.view("small").used.items()}
        assert used == {"tokensPerMinute": 220, "requestsPerMinute": 2, "requestsInFlight": 2}
        with pytest.raises(RateLimitExceeded, match="in flight"):
            service.admit(ACCOUNT, 1)
    await waits.charge_all(5, 10, 0)
    await runs.charge_all(7, 10, 0)
    used = {name: each.used for name, each in service.view("small").used.items()}
    assert used == {"tokensPerMinute": 32, "requestsPerMinute": 2, "requestsInFlight": 0}


@pytest.fixture
def usage_service(fresh):
    from infer_workload.metering.service import UsageService
    from infer_workload.metering.tables import Base
    from matrixcommon.persistence.database_session import Database

    class Clock:
        scale, at = 1.0, 10.0 * DAY_S

        def now(self):
            return self.at

    database, clock = DatabaseEngine(f"sqlite:///{fresh}"), Clock()
    yield UsageService(Database(database.sessions, Base.metadata, clock), clock), clock
    database.close()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "body"),
        ({"tokensPerMinute": 0}, "tokensPerMinute"),
        ({"tokensPerMinute": "many"}, "tokensPerMinute"),
        ({"tokensPerYear": 5}, "tokensPerYear"),
    ],
)
async def test_bad_limits_are_refused_with_their_field(server, spec, field):
    answer = await limit(server, status=422, **spec)
    assert answer["field"] == field
    assert (await server.http.get("/v1/usage-limits")).json()["items"] == []


async def test_who_may_see_usage_and_set_limits(tmp_path, fresh):
    tokens = tmp_path / "tokens.json"
    made = {
        (role, project): create_token(tokens, f"{role}-{project}", project, role)
        for role, project in [
            ("admin", "default"),
            ("viewer", "red"),
            ("editor", "red"),
            ("user", "red"),
            ("user", "blue"),
        ]
    }

    def as_(role, project):
        return {"Authorization": f"Bearer {made[role, project]}"}

    async with InferServer(fresh, tokens=tokens) as server:
        admin = as_("admin", "default")
        for project in ("red", "blue"):
            body = {"instance": "i"}
            answer = await server.http.put(f"/v1/deployments/r1?project={project}", json=body, headers=admin)
            assert answer.status_code == 200, answer.text
            while answer.json()["state"] != "Serving":
                await asyncio.sleep(0.01)
                answer = await server.http.get(f"/v1/deployments/r1?project={project}", headers=admin)
            answer = await server.http.post("/v1/completions", json=TEXT, headers=as_("user", project))
            assert answer.status_code == 200, answer.text

        async def projects(headers):
            answer = await server.http.get("/v1/usage", headers=headers)
            return answer.status_code, [(each["project"], each["key"]) for each in answer.json().get("items", [])]

        assert await projects(admin) == (200, [("blue", "user-blue"), ("red", "user-red")])
        assert await projects(as_("viewer", "red")) == (200, [("red", "user-red")])
        assert (await projects(as_("user", "red")))[0] == 403
        spec = {"requestsPerDay": 1, "key": "user-red"}
        for role in ("viewer", "editor", "user"):
            answer = await server.http.put("/v1/usage-limits/small", json=spec, headers=as_(role, "red"))
            assert answer.status_code == 403
        answer = await server.http.put("/v1/usage-limits/small?project=red", json=spec, headers=admin)
        assert answer.status_code == 200
        shown = (await server.http.get("/v1/usage-limits", headers=as_("viewer", "red"))).json()["items"]
        assert [each["name"] for each in shown] == ["small"]
        assert (await server.http.post("/v1/completions", json=TEXT, headers=as_("user", "red"))).status_code == 429
        assert (await server.http.post("/v1/completions", json=TEXT, headers=as_("user", "blue"))).status_code == 200
        assert (await server.http.post("/v1/completions", json=TEXT, headers=as_("editor", "red"))).status_code == 200
