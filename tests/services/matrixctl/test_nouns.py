"""The nouns of `get` beside what the services declare: none is missing, none shows a field that its views lack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from matrixcommon.api.authorization import ResourceKind
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NodeName
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.spec import rule_views
from services.chassis.app import create_app
from services.matrixctl.output.columns import cells, titles
from services.matrixctl.output.resource_kinds import LISTED_KINDS, OTHER_COMMANDS, ListedKind, find_kind, unknown_word
from services.node_agent.access import ACCESS
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.main import all_routes
from tests.clocks import FixedClock
from tests.services.every_route import RULES
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised
from tests.services.matrixctl.test_traffic import InMemoryFleetStore

ELSEWHERE = {
    ("infer", "models"): "for OpenAI clients",
    ("resource", "assignments"): "what agents are told",
    ("link", "programs"): "what agents are told",
    ("link", "routes"): "what agents are told",
    ("agents", "nodes"): "the hardware itself, for tests",
    ("agents", "supernodes"): "the hardware itself, for tests",
}
"""Collections that are no nouns, and for whom they are; `OTHER_COMMANDS` has those with a command of their own."""


def listed() -> Iterator[tuple[str, ResourceKind]]:
    for service, rules in RULES.items():
        for kind in rules.kinds:
            if "LIST" in kind.verbs:
                yield service, kind


def noun_for(service: str, kind: ResourceKind) -> ListedKind | None:
    path = f"/v1/{kind.collection}"
    return next((each for each in LISTED_KINDS if each.path == path and service in (each.service, *each.others)), None)


def test_every_collection_is_a_noun_or_shown_by_a_command_of_its_own() -> None:
    without = {(service, kind.collection) for service, kind in listed() if noun_for(service, kind) is None}
    named = {
        (service, name) for service, name in without if name in OTHER_COMMANDS and (service, name) not in ELSEWHERE
    }
    assert without == set(ELSEWHERE) | named
    assert {name for _, name in named} == {"stuck", "telemetry", "traffic"}


@pytest.mark.parametrize("word", OTHER_COMMANDS)
def test_what_is_no_noun_is_shown_by_a_command_that_there_is(capsys: pytest.CaptureFixture[str], word: str) -> None:
    with pytest.raises(InvalidField) as refused:
        find_kind(word.upper())
    assert f"`matrixctl {OTHER_COMMANDS[word]}`" in refused.value.message
    command = [each for each in OTHER_COMMANDS[word].split() if each.islower()]
    assert run_line_normalised(capsys, " ".join([*command[:2], "--help"]))[0] == 0


def test_a_noun_shows_fields_that_its_views_have_and_is_got_as_it_is_served() -> None:
    for service, kind in listed():
        noun = noun_for(service, kind)
        if noun is None:
            continue
        assert noun.whole == ("GET" not in kind.verbs), noun.name
        known = {field.alias or name for name, field in kind.view.model_fields.items()} if kind.view else None
        if service in noun.others:
            continue  # its columns are those of the first service; what the others lack shows as `-`
        if known is not None and noun.others:
            known.add("service")
        for column in noun.shown(wide=True).split(", "):
            title, _, path = column.partition(":")
            assert known is None or (path or title).split(".")[0] in known, (noun.name, column)


def test_a_column_of_a_list_has_a_value_of_each_part() -> None:
    noun = next(each for each in LISTED_KINDS if each.name == "recovery-rules")
    rows = {row[0]: row for row in (cells(noun.shown(wide=True), each.wire()) for each in rule_views(recovery_rules()))}
    assert rows["RestartRequest"] == ["RestartRequest", "restart,replace", "60", "60,-"]
    assert rows["SubHealth"] == ["SubHealth", "-", "-", "-"]


def test_no_word_means_two_nouns() -> None:
    words = [word for noun in LISTED_KINDS for word in {noun.name, *filter(None, noun.aliases.split(", "))}]
    assert len(words) == len(set(words))
    assert "" not in words


def test_times_of_the_services_are_called_emulated() -> None:
    assert titles("name, at, created:createdAt, damped:dampedUntil, state") == [
        "name",
        "at (emulated)",
        "created (emulated)",
        "damped (emulated)",
        "state",
    ]


def test_injected_faults_are_one_list_and_found_ones_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fleet = Fleet([NodeName("sn0-c03-n2")], InMemoryFleetStore(), FixedClock(), 1)
    agents = TestClient(create_app("agents", "Emulated nodes", all_routes(fleet, tmp_path), ACCESS))
    connect_matrixctl(monkeypatch, {"agents": agents})
    code, _, err = run_line_normalised(capsys, "get injected-faults")
    assert (code, "`get faults` lists those that the control plane has detected" in err) == (0, True)
    assert run_line_normalised(capsys, "fault inject npu-fault sn0-c03-n2-npu5")[0] == 0
    listed = run_line_normalised(capsys, "fault list")
    assert listed == run_line_normalised(capsys, "get injected-faults")
    assert "npu-fault sn0-c03-n2 npu=5" in listed[1]
    code, _, err = run_line_normalised(capsys, "delete injected-faults npu-fault-sn0-c03-n2-npu5 npu-fault-none")
    assert (code, "npu-fault-none" in err) == (1, True)
    assert not fleet.faults


def test_a_word_that_there_is_not_is_answered_in_whole_sentences():
    assert unknown_word("xyzzy", "NOUN", ["nodes", "links"]).message == "there is no 'xyzzy'. There are nodes, links"
    assert (
        unknown_word("nodez", "NOUN", ["nodes"]).message == "there is no 'nodez'; did you mean 'nodes'? There are nodes"
    )


@pytest.mark.parametrize(("word", "name"), [("cmi", "instances"), ("cminf", "deployments"), ("sp", "scaling-policies")])
def test_short_names_of_kubernetes_kinds_name_what_is_behind_them(word: str, name: str) -> None:
    assert find_kind(word).name == name


def test_events_are_those_of_all_services_in_the_order_of_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switch that went down is MatrixLink's news, a lost node MatrixResource's: neither is left out."""
    happened = {
        "compute": ("2026-01-01T00:00:03Z", "one", "NodeReplaced"),
        "resource": ("2026-01-01T00:00:02Z", "sn0-c03-n2", "NodeLost"),
        "link": ("2026-01-01T00:00:01Z", "sn0-l2p3-k11", "SwitchDown"),
    }

    def service(name: str) -> httpx.Client:
        at, about, reason = happened[name]
        event = {"name": f"{about}.1", "at": at, "type": "Warning", "about": about, "reason": reason, "message": "-"}

        def answer(request: httpx.Request) -> httpx.Response:
            items = [event] if request.url.params.get("filter", f"about={about}") == f"about={about}" else []
            return httpx.Response(200, json={"items": items})

        return httpx.Client(transport=httpx.MockTransport(answer), base_url=f"http://{name}")

    connect_matrixctl(monkeypatch, {name: service(name) for name in happened})
    lines = run_line_normalised(capsys, "events -o json")[1]
    assert [(each["service"], each["reason"]) for each in json.loads(lines)["items"]] == [
        ("link", "SwitchDown"),
        ("resource", "NodeLost"),
        ("compute", "NodeReplaced"),
    ]
    found = json.loads(run_line_normalised(capsys, "events --filter about=sn0-c03-n2 -o json")[1])["items"]
    assert [each["reason"] for each in found] == ["NodeLost"]
