"""What one client sends or stores never holds up the others: it is refused where it enters, or left out and named."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from matrixcontainer.kubeapi.cel.environment import evaluate
from matrixcontainer.kubeapi.cel.meter import BudgetExceeded, charge, metered
from matrixcontainer.kubeapi.codec import serializer
from matrixcontainer.kubeapi.codec.serializer import parse_yaml
from matrixcontainer.kubeapi.codec.yaml_decode import read_yaml
from matrixcontainer.kubeapi.controllers.workloads.job_decision import INDEXES_MAX, parse_indexes
from matrixcontainer.kubeapi.kubelet.pod_info import DELETION_COST, PodIndex
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.quantities import amount, canonical, parse_int
from matrixcontainer.kubeapi.storage.objects import Record
from tests.matrixcontainer.kubeapi.api_session import APPLY, JSON_PATCH, WIDGETS, ApiSession, a_crd, a_widget

NS = "/api/v1/namespaces/default"
A_POD = {"containers": [{"name": "c", "image": "i"}]}


@pytest.mark.parametrize("cost", ["--5", "+-5", "5.0", "²", "", "2147483648", "9" * 5000])
async def test_a_deletion_cost_that_is_no_number_is_refused(session: ApiSession, cost: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {DELETION_COST: cost}}, "spec": A_POD}
    pod = await session.post(
        f"{NS}/pods", {"metadata": {"name": "p", "annotations": {DELETION_COST: cost}}, "spec": A_POD}
    )
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = await session.post(
        "/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "d"}, "spec": spec}
    )
    for answer in (pod, deployment):
        assert answer.code == 422, answer.body
        assert "must be a 32bit integer" in answer.body["message"]


async def test_an_object_no_controller_can_read_is_left_out_and_named(session: ApiSession, monkeypatch: Any) -> None:
    index = session.api._informers.pods
    read = index._parse

    def some(record: Record) -> Any:
        if record.key[2] == "poison":
            raise ValueError("what it says cannot be read")
        return read(record)

    monkeypatch.setattr(index, "_parse", some)
    for name in ("poison", "well"):
        assert (await session.post(f"{NS}/pods", {"metadata": {"name": name}, "spec": A_POD})).code == 201
    assert index.get(("default", "poison")) is None
    assert index.get(("default", "well")) is not None

    await session.until(f"{NS}/events", lambda got: any(map(_is_about_poison, got.body["items"])))
    session.api._informers.load()  # as after a restart
    assert index.get(("default", "well")) is not None
    assert all("poison" in line for line in session.api.core.failures)
    session.api.core.failures.clear()


def _is_about_poison(event: dict[str, Any]) -> bool:
    return (event["reason"], event["involvedObject"]["name"]) == ("Unreadable", "poison")


def test_index_keeps_the_previous_entry_until_the_new_one_is_parsed() -> None:
    index = PodIndex()
    pod = {"metadata": {"namespace": "a", "name": "b", "uid": "u"}, "spec": {"nodeName": "n"}, "status": {}}
    index.put(Record(("pods", "a", "b"), "u", 1, json.dumps(pod).encode()))
    assert [facts.key for facts in index.on_node("n")] == [("a", "b")]
    with pytest.raises(KeyError):
        index.put(Record(("pods", "a", "b"), "u", 2, b'{"spec": {}}'))
    assert [facts.key for facts in index.on_node("n")] == [("a", "b")]


# ---- CEL: time and size are bounded whatever a rule does


@pytest.mark.parametrize(
    "expression",
    [
        "self.replace('', self).replace('', self).size() > 0",
        "self.split('').all(a, self.split('').all(b, self.split('').all(c, a + b + c != '')))",
        "[self].map(x, x.replace('a', self)).map(x, x.replace('a', self)).all(x, x.size() > 0)",
        "'%s'.format([" + "[1]" + ".map(x, [x, x])" * 60 + "]) == ''",
        "[1]" + ".map(x, [x, x])" * 40 + " == [1]" + ".map(x, [x, x])" * 40,
        "self.split('').map(x, self).join(self).size() > 0",
        "sets.contains(self.split(''), self.split('').map(x, x + 'b'))",
    ],
)
def test_an_expression_that_grows_is_cut_off(expression: str) -> None:
    began = time.thread_time()
    with pytest.raises(ValueError, match="cost limit"):
        evaluate(expression, {"self": "a" * 20_000})
    assert time.thread_time() - began < 60  # without a limit: hours, or no memory left


def test_patterns_take_time_linear_in_the_text() -> None:
    text = "a" * 5_000
    assert evaluate("self.findAll('(a+)+b').size() == 0", {"self": text})
    assert evaluate("!self.matches('^(a+)+$b')", {"self": text})
    assert evaluate("self.find('(a*)*c') == ''", {"self": text})


@pytest.mark.parametrize("expression", [" && ".join(["true"] * 3_000), "(" * 3_000 + "1" + ")" * 3_000, "1" * 200_000])
def test_an_expression_beyond_all_limits_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"limit exceeded|exceeds limit|Syntax error"):
        evaluate(expression, {})


def test_a_precision_is_a_small_number() -> None:
    with pytest.raises(ValueError, match="precision"):
        evaluate("'%.2000000000f'.format([1.0]) == ''", {})


def test_spent_budget_is_not_suppressed() -> None:
    rule = "self.split('').all(a, self.split('').all(b, a + b != '')) || true"
    with pytest.raises(ValueError, match="cost limit"):
        evaluate(rule, {"self": "a" * 20_000})
    with pytest.raises(BudgetExceeded), metered(1):
        charge(2)


async def test_expensive_rule_refuses_only_the_object(session: ApiSession) -> None:
    spec = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 100_000}}}
    crd = a_crd(spec=spec, rules=[{"rule": "self.text.replace('', self.text).size() >= 0", "message": "grows"}])
    await session.define(crd)
    assert (await session.post(WIDGETS, a_widget("small", spec={"text": "abc"}))).code == 201
    large = await session.post(WIDGETS, a_widget("large", spec={"text": "a" * 90_000}))
    assert large.code == 422
    assert "call cost exceeds limit" in large.body["message"]


# ---- numbers and YAML


def test_numbers_have_bounds() -> None:
    assert [parse_int(text) for text in ("5", "-5", "--5", "²", "2147483648", "9" * 9_999)] == [5, -5, 0, 0, 0, 0]
    assert amount("1e999999999") == amount("1e64")
    assert canonical("1e-999999999") == "1e-3"
    with pytest.raises(ValueError, match="at most"):
        amount("9" * 5_000)
    assert len(parse_indexes(f"0-{10**12}")) == 0
    assert len(parse_indexes("0-2147483647")) == INDEXES_MAX + 1


WIDE = [2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**49, 10**308]


@pytest.mark.parametrize("size", WIDE, ids=lambda size: f"{float(size):.2e}")
@pytest.mark.parametrize("kind", ["post", "merge", "json patch", "apply", "apply yaml", "scale"])
async def test_integers_of_any_width_are_validated(session: ApiSession, size: int, kind: str) -> None:
    """Where its schema has no bound, the paths of `scale` have; what no int64 holds is no integer. Rules are asked too."""
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    await session.define(
        a_crd(spec=spec, rules=[{"rule": "!has(self.size) || self.size != 3", "message": "not three"}])
    )
    assert (await session.post(WIDGETS, a_widget(spec={"size": 1}))).code == 201
    one, body = f"{WIDGETS}/one", a_widget(spec={"size": size})
    if kind == "post":
        answer = await session.post(WIDGETS, a_widget("two", spec={"size": size}))
    elif kind == "merge":
        answer = await session.patch(one, {"spec": {"size": size}})
    elif kind == "json patch":
        answer = await session.patch(one, [{"op": "add", "path": "/spec/size", "value": size}], JSON_PATCH)
    elif kind == "apply":
        answer = await session.apply(one, body, "m", force=True)
    elif kind == "apply yaml":
        text = f"apiVersion: example.test/v1\nkind: Widget\nmetadata: {{name: one}}\nspec: {{size: {size}}}\n"
        answer = await session.ask("PATCH", one, text.encode(), APPLY, fieldManager="m", force=True)
    else:
        answer = await session.put(f"{one}/scale", {"metadata": {"name": "one"}, "spec": {"replicas": size}})
    assert answer.code == 422, answer.body
    assert "spec.size" in answer.body["message"]


@pytest.mark.parametrize("twice", [b"", b'"size": 1, '], ids=["once", "twice"])
async def test_out_of_range_float_is_refused(session: ApiSession, twice: bytes) -> None:
    await session.define(a_crd())
    for digits in (b"1" * 400, b"1" * 5_000, b"1e400"):
        body = b'{"apiVersion": "example.test/v1", "kind": "Widget", "metadata": {"name": "one"}, "status": {%s"size": %s}}'
        answer = await session.ask("POST", WIDGETS, body % (twice, digits))
        assert answer.code == 400, answer.body
        assert "out of range" in answer.body["message"]
    assert parse_yaml(b"a: 0" + b"7" * 50, []) == {"a": float("7" * 50)}


@pytest.mark.parametrize("grace", [10**11, 10**18, 2**63 - 1])
async def test_grace_period_beyond_the_last_year(session: ApiSession, grace: int) -> None:
    pod = f"{NS}/pods/p"
    await session.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": A_POD | {"nodeName": "n"}})
    answer = await session.delete(pod, {"gracePeriodSeconds": grace})
    assert answer.code == 200, answer.body
    assert (await session.get(pod)).body["metadata"]["deletionTimestamp"] <= "9999-12-31T23:59:59Z"
    assert (await session.delete(pod, gracePeriodSeconds=0)).code == 200


@pytest.mark.parametrize("grace", ["5", True, 1.5, 1e300, [], {}])
async def test_a_grace_period_is_a_whole_number(session: ApiSession, grace: Any) -> None:
    await session.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": A_POD})
    answer = await session.delete(f"{NS}/pods/p", {"gracePeriodSeconds": grace})
    assert answer.code == 400, answer.body
    assert "gracePeriodSeconds" in answer.body["message"]


@pytest.mark.parametrize(
    ("query", "code", "why"),
    [
        ({"tailLines": "-1"}, 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"limitBytes": "0"}, 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "5", "sinceTime": "2026-01-01T00:00:00Z"}, 422, "at most one of"),
        ({"sinceTime": "2026-13-01T00:00:00Z"}, 400, "sinceTime"),
        ({"sinceSeconds": "1" * 400}, 400, "out of range"),
        ({"tailLines": "1_0"}, 400, "invalid syntax"),
        ({"tailLines": "0", "sinceSeconds": str(2**63 - 1), "limitBytes": str(2**63 - 1)}, 200, ""),
    ],
)
async def test_log_options_are_bounded(session: ApiSession, query: dict[str, str], code: int, why: str) -> None:
    await session.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": A_POD})
    answer = await session.get(f"{NS}/pods/p/log", **query)
    assert answer.code == code, answer.body
    assert why in (answer.body["message"] if code != 200 else "")


def test_yaml_means_what_it_means_to_kubectl() -> None:
    text = b"a: 12:30\nb: 017\nc: 0x1f\nd: 1e3\ne: 1.5\nf: 2020-01-01\ng: yes\nh: 1_000\ni: 089\n1: x\nj: ~\nk: '1'\n"
    assert parse_yaml(text, []) == {
        "a": "12:30", "b": 15, "c": 31, "d": 1000, "e": 1.5, "f": "2020-01-01", "g": True, "h": 1000, "i": 89,
        "1": "x", "j": None, "k": "1",
    }  # fmt: skip
    assert parse_yaml(b"on: 1\n0x10: 2\n", []) == {"true": 1, "16": 2}
    repeated: list[str] = []
    assert parse_yaml(b"a: 1\na: 2\n", repeated) == {"a": 2}
    assert repeated == ["a"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: " + b"[" * 100_000, "nested"),
        (b"a: !!python/object:os.system x\n", "tag"),
        (b"a: 1\n---\nb: 2\n", "one document"),
        (b"? [1]\n: 2\n", "a key must be a scalar"),
        (b"~: 2\n", "must not be null"),
        (b"a: 1e999", "out of range"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_refused_yaml(body: bytes, why: str) -> None:
    with pytest.raises(ApiError, match=why):
        parse_yaml(body, [])


async def test_others_are_answered_while_a_large_yaml_body_is_read(session: ApiSession, monkeypatch: Any) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n" + b"".join(
        b"  k%d: x\n" % n for n in range(6_000)
    )
    begun, answered = threading.Event(), threading.Event()

    def read_slowly(body: bytes, duplicates: list[str]) -> Any:
        begun.set()
        assert answered.wait(20.0), "the loop was held while the body was read"
        return read_yaml(body, duplicates)

    monkeypatch.setattr(serializer, "read_yaml", read_slowly)
    writing = asyncio.ensure_future(session.ask("POST", f"{NS}/configmaps", body, content_type="application/yaml"))
    assert await asyncio.to_thread(begun.wait, 20.0)
    assert (await session.get(f"{NS}/configmaps/none")).code == 404
    answered.set()
    assert (await writing).code == 201


# ---- who asks


async def test_token_is_invalid_after_its_account_is_deleted(session: ApiSession) -> None:
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (await session.post(f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})).code == 201
    token = (await session.post(f"{NS}/serviceaccounts/robot/token", {})).body["status"]["token"]
    robot = ApiSession(session.api, session.clock, token)
    assert (await robot.get(f"{NS}/pods")).code == 403
    await session.delete(f"{NS}/serviceaccounts/robot")
    assert (await robot.get(f"{NS}/pods")).code == 401
    await session.post(f"{NS}/serviceaccounts", {"metadata": {"name": "robot"}})
    assert (await robot.get(f"{NS}/pods")).code == 401, "another account of that name"
    assert (await session.post(reviews, {"spec": {"token": token}})).body["status"]["authenticated"] is False


async def test_a_token_is_for_its_audience_and_a_day_at_most(session: ApiSession) -> None:
    reviews, own = "/apis/authentication.k8s.io/v1/tokenreviews", f"{NS}/serviceaccounts/default/token"
    other = (await session.post(own, {"spec": {"audiences": ["vault"]}})).body["status"]["token"]
    assert (await ApiSession(session.api, session.clock, other).get(f"{NS}/pods")).code == 401
    assert (await session.post(reviews, {"spec": {"token": other}})).body["status"]["authenticated"] is False
    known = (await session.post(reviews, {"spec": {"token": other, "audiences": ["a", "vault"]}})).body["status"]
    assert (known["authenticated"], known["audiences"]) == (True, ["vault"])
    long = (await session.post(own, {"spec": {"expirationSeconds": 10**8}})).body["status"]["token"]
    session.clock.moment += 24 * 3600 + 1
    assert (await ApiSession(session.api, session.clock, long).get(f"{NS}/pods")).code == 401


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": "x"}, 400),
        ({"expirationSeconds": True}, 400),
        ({"expirationSeconds": 2**33}, 422),
        ({"expirationSeconds": 1}, 422),
        ({"audiences": "a"}, 400),
        ({"audiences": [1]}, 400),
    ],
)
async def test_invalid_token_requests(session: ApiSession, spec: dict[str, Any], code: int) -> None:
    assert (await session.post(f"{NS}/serviceaccounts/default/token", {"spec": spec})).code == code


async def test_get_does_not_permit_watch(session: ApiSession) -> None:
    await session.post(f"{NS}/configmaps", {"metadata": {"name": "c"}})
    answer = await session.get(f"{NS}/configmaps/c", watch=True, timeoutSeconds=1)
    assert (answer.code, answer.body["kind"]) == (200, "ConfigMap")


# ---- addresses


async def test_no_two_services_share_an_address_or_a_node_port(session: ApiSession) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    for at in range(400):  # by the birthday paradox some of 64,516 addresses would be drawn twice
        assert (await session.post(f"{NS}/services", {"metadata": {"name": f"s{at}"}, "spec": spec})).code == 201
    found = [item["spec"] for item in (await session.get(f"{NS}/services")).body["items"]]
    assert len({each["clusterIP"] for each in found}) == len(found)
    ports = [port["nodePort"] for each in found for port in each["ports"] if "nodePort" in port]
    assert len(ports) == len(set(ports)) == 400
    taken = {"metadata": {"name": "t"}, "spec": {"clusterIP": found[0]["clusterIP"], "ports": [{"port": 80}]}}
    refused = await session.post(f"{NS}/services", taken)
    assert (refused.code, "already allocated" in refused.body["message"]) == (422, True)
    taken["spec"] = {"type": "NodePort", "ports": [{"port": 80, "nodePort": ports[0]}]}
    refused = await session.post(f"{NS}/services", taken)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "spec.ports[0].nodePort")
