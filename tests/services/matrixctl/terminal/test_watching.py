"""get --watch: each service is followed by itself, also where another one is away, and found again where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml

from matrixcommon.model.errors import Conflict, Unavailable
from services.matrixctl.clients import api_client
from services.matrixctl.commands.reading import get, top
from services.matrixctl.output.screen import NotRunning
from tests.services.matrixctl import inprocess
from tests.services.matrixctl.inprocess import run_matrixctl

Change = tuple[str, dict[str, Any]]


class ScriptedClient:
    """A stack of which each service tells what its script has. `watches` counts how often each was followed."""

    def __init__(self, **scripts: Callable[[int], Iterator[Change]]) -> None:
        self._scripts = scripts
        self.stack = SimpleNamespace(children=dict.fromkeys(scripts))
        self.watches = dict.fromkeys(scripts, 0)

    def url(self, service: str) -> str:
        if service not in self._scripts:
            raise NotRunning(f"{service} is not part of this stack")
        return f"http://{service}"

    def watch(self, service: str, path: str, params: dict[str, str]) -> Iterator[Change]:
        self.watches[service] += 1
        yield from self._scripts[service](self.watches[service])


def reached(monkeypatch: pytest.MonkeyPatch, there: ScriptedClient) -> None:
    monkeypatch.setattr(get, "RETRY_PERIOD_WALL_S", 0.0)
    monkeypatch.setattr(api_client.ApiClient, "of", lambda folder, project=None: there)


def test_a_service_that_is_away_is_asked_again_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, over = Event(), Event()

    def compute(_: int) -> Iterator[Change]:
        yield "ADDED", {"name": "one"}
        given.set()
        over.wait()
        raise Conflict("and its thread ends")

    def link(times: int) -> Iterator[Change]:
        if times < 4:
            raise Unavailable("link does not answer")
        yield "ADDED", {"name": "two"}
        given.wait()
        raise Conflict("that is all")

    there = ScriptedClient(compute=compute, link=link)
    reached(monkeypatch, there)
    code, out, err = run_matrixctl(capsys, "operations", "--watch", "-o", "name")
    over.set()
    assert (code, sorted(out.split())) == (1, ["one", "two"])
    assert there.watches == {"compute": 1, "link": 4}
    assert err.count("link does not answer; trying again") == 1
    assert err.splitlines()[-1].startswith("Conflict: that is all")


def names(*views: tuple[str, str]) -> Callable[[int], Iterator[Change]]:
    def script(_: int) -> Iterator[Change]:
        for project, name in views:
            yield "ADDED", {"name": name, "project": project, "state": "Bücher"}
        raise Conflict("that is all")

    return script


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("instances", "a"), [("default", "a")]),
        (("instances", "p/a"), [("p", "a")]),
        (("instances", "a", "--project", "p"), [("p", "a")]),
        (("instances",), [("default", "a"), ("p", "a"), ("p", "b")]),
    ],
)
def test_one_by_its_name_is_that_of_its_project_and_yaml_is_yaml(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    shown: list[tuple[str, str]],
) -> None:
    reached(monkeypatch, ScriptedClient(compute=names(("default", "a"), ("p", "a"), ("p", "b"))))
    _, out, _ = run_matrixctl(capsys, "get", *words, "--watch", "-o", "yaml")
    found = [document["object"] for document in yaml.safe_load_all(out)]
    assert [(view["project"], view["name"]) for view in found] == shown
    assert "Bücher" in out


@pytest.mark.parametrize("form", ["name", "table"])
def test_resources_of_one_name_in_two_projects_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    reached(monkeypatch, ScriptedClient(compute=names(("default", "a"), ("p", "a"))))
    _, out, _ = run_matrixctl(capsys, "get", "instances", "--watch", "-o", form)
    words = [word for line in out.splitlines() for word in line.split()]
    assert [word for word in words if word in ("a", "p/a")] == ["a", "p/a"]


@pytest.mark.parametrize("left", [{"state": "Failed", "nodes": 4}, {}])
def test_what_leaves_a_filtered_watch_is_shown_as_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: dict[str, Any]
) -> None:
    """Also where no more of it may be seen than what it is called."""

    def compute(_: int) -> Iterator[Change]:
        yield "ADDED", {"name": "a", "project": "default", "state": "Active", "nodes": 4}
        yield "DELETED", {"name": "a", "project": "default", **left}
        raise Conflict("that is all")

    reached(monkeypatch, ScriptedClient(compute=compute))
    _, out, _ = run_matrixctl(capsys, "get", "instances", "--watch", "--filter", "state=Active")
    changes = [line.split() for line in out.splitlines()[1:]]
    assert [line[:2] for line in changes] == [["ADDED", "a"], ["DELETED", "a"]]
    assert ("Failed" in changes[1]) == bool(left)


def test_what_is_no_part_of_the_stack_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached(monkeypatch, ScriptedClient(compute=names()))
    code, _, err = run_matrixctl(capsys, "get", "nodes", "--watch")
    assert (code, "resource is not part of this stack" in err) == (3, True)


def test_the_busiest_are_watched_while_their_service_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = {"resourceVersion": 1, "items": [], "by": "link"}
    answers = iter([(200, quiet), (503, {}), (200, quiet | {"resourceVersion": 2}), (409, {"reason": "Conflict"})])

    def answer(_: httpx.Request) -> httpx.Response:
        status, body = next(answers)
        return httpx.Response(status, json=body)

    monkeypatch.setattr(api_client, "RETRY_PERIOD_WALL_S", 0.0)
    monkeypatch.setattr(top, "WATCH_PERIOD_WALL_S", 0.0)
    inprocess.connect_matrixctl(
        monkeypatch, {"link": httpx.Client(transport=httpx.MockTransport(answer), base_url="http://link")}
    )
    code, out, err = run_matrixctl(capsys, "top", "links", "--watch", "-o", "json")
    assert (code, out.count("resourceVersion"), err.startswith("Conflict")) == (1, 2, True)
