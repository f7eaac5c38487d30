"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml

from matrixcommon.model.errors import Unavailable
from services.catalogue import PROCESSES
from services.chassis.access import Principal, add_token
from services.matrixctl.commands.apply import fault_target
from services.matrixctl.main import app
from services.matrixctl.output.columns import cells, titles
from services.matrixctl.output.resource_kinds import LISTED_KINDS, find_kind
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import stop_stack
from tests.services.matrixctl.conftest import SupervisedStack, eventually
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised, run_matrixctl

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ctl:
    """Run matrixctl on the test's state folder: exit code, standard output, standard error."""

    return partial(run_matrixctl, capsys)


def test_status_of_nothing_is_3_and_one_line(ctl: Ctl, tmp_path: Path) -> None:
    code, out, err = ctl("status", "--state", str(tmp_path / "none"))
    assert code == 3
    assert err.startswith("NotRunning: no stack runs in")
    assert err.count("\n") == 1
    code, out, err = ctl("status", "--state", str(tmp_path / "none"), "-o", "json")
    assert code == 3
    assert json.loads(out)["running"] is False
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("traffic put load --slice s --gbps={}", "--gbps"),
        ("instance renew one --lease={}", "--lease"),
        ("plan --nodes 3 --npus-per-node={}", "--npus-per-node"),
        ("reserve later --nodes 2 --at 2030-01-01T00:00:00Z --for={}", "--for"),
        ("clock speed -- {}", "SPEED"),
        ("up --wait={}", "--wait"),
    ],
)
def test_a_number_that_is_none_is_wrong_use(words: str, field: str, number: str, ctl: Ctl, tmp_path: Path) -> None:
    first, _, rest = words.format(number).partition(" -- ")
    state = ("--state", str(tmp_path / "none"))
    code, out, err = ctl(*first.split(), *state, *(("--", rest) if rest else ()))
    assert (code, out) == (2, "")
    assert f"must be a finite number [field {field}]" in err


def test_status_shows_each_process_for_people_and_programs(ctl: Ctl, supervised_stack: SupervisedStack) -> None:
    supervised_stack.up(scale=60.0)
    state = str(supervised_stack.folder.path)
    code, out, _ = ctl("status", "--state", state)
    assert code == 0
    assert "alpha" in out
    assert "Ready" in out
    code, out, _ = ctl("status", "--state", state, "-o", "json")
    current = json.loads(out)
    assert code == 0
    assert [row["name"] for row in current["processes"]] == ["alpha", "beta"]
    row = current["processes"][0]
    assert row["pid"] == supervised_stack.pid("alpha")
    assert row["ready"] is True
    assert row["restarts"] == 0
    assert row["memory"]["rss"] >= row["memory"]["pss"] > 0
    assert current["memory"]["pss"] > sum(row["memory"]["pss"] for row in current["processes"])
    _, out, _ = ctl("status", "--state", state, "-o", "yaml")
    assert yaml.safe_load(out)["timeScale"] == 60.0


def test_up_on_a_running_stack_shows_it_and_refuses_other_settings(ctl: Ctl, supervised_stack: SupervisedStack) -> None:
    supervised_stack.up(scale=60.0, seed=7, host="0.0.0.0")
    state = str(supervised_stack.folder.path)
    code, out, _ = ctl("up", "--state", state, "--seed", "7")
    assert code == 0
    assert "already running" in out
    for setting, value in (("--seed", "8"), ("--host", "127.0.0.1"), ("--database", "postgresql://me@there/{service}")):
        code, _, err = ctl("up", "--state", state, setting, value)
        assert (code, f"[field {setting}]" in err) == (1, True)
    code, _, err = ctl("up", "--state", state, "--time-scale", "10")
    assert code == 1
    assert "--time-scale 60" in err


def test_status_tells_of_a_dead_supervisor_and_down_ends_what_it_left(
    ctl: Ctl, supervised_stack: SupervisedStack
) -> None:
    supervised_stack.up()
    state = str(supervised_stack.folder.path)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    code, out, _ = ctl("status", "--state", state)
    assert code == 1
    assert "supervisor is not running" in out
    code, out, _ = ctl("down", "--state", state)
    assert (code, out.split()) == (0, ["stopped", "alpha,", "beta"])
    assert "nothing runs" in ctl("down", "--state", state)[1]


def test_asking_a_process_that_is_not_part_of_the_stack(ctl: Ctl, supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    code, _, err = ctl("get", "nodes", "--state", str(supervised_stack.folder.path))
    assert code == 3
    assert "this stack has no resource process" in err


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("up", "--only", "nope"), "--only"),
        (("up", "--only", ","), "--only"),
        (("up", "--time-scale", "-1"), "--time-scale"),
        (("up", "--database", "postgresql://one"), "--database"),
        (("up", "--database", "mongodb://host/{service}"), "--database"),
        (("up", "--database", "{service}"), "--database"),
        (("get", "unicorns"), "NOUN"),
        (("describe", "unicorns", "x"), "NOUN"),
        (("delete", "unicorns", "x"), "NOUN"),
        (("delete", "nodes"), "NAMES"),
        (("delete",), "NOUN, --filename"),
        (("delete", "-f", "/nowhere.yaml"), "--filename"),
        (("apply", "-f", "/nowhere.yaml"), "--filename"),
        (("token", "create", "Not A Name"), "NAME"),
        (("token", "create", "me", "--role", "king"), "--role"),
        (("token", "create", "me", "--expires", "\u00b2h"), "--expires"),
        (("token", "create", "me", "--expires", f"{'9' * 15}d"), "--expires"),
        (("token", "create", "me", "--expires", f"{'9' * 5000}d"), "--expires"),
        (("reserve", "r", "--nodes", "1", "--at", "2100-01-01T00:00:00Z", "--for", "4 hours"), "--for"),
        (("budget", "set", "b", "--nodes", "0", "--for", "-1"), "--for"),
        (("fault", "inject", "plague", "sn0-c00-n0"), "KIND"),
        (("fault", "inject", "node-down", "bad"), "TARGET"),
        (("fault", "clear"), "--all"),
    ],
)
def test_wrong_use_names_the_field(ctl: Ctl, tmp_path: Path, words: tuple[str, ...], field: str) -> None:
    code, _, err = ctl(*words, "--state", str(tmp_path / "none"))
    assert code == 2
    assert f"[field {field}]" in err
    assert "Traceback" not in err
    assert not (tmp_path / "none").exists()
    line = " ".join(words)
    taken = {each for name, command in every_command() if line.startswith(name) for each in taken_by(command)}
    assert set(field.split(", ")) <= taken, "it names what the command takes"


def every_command() -> list[tuple[str, Any]]:
    def walk(name: str, command: Any) -> list[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return [(name, command)]
        return [each for word, child in inner.items() for each in walk(f"{name} {word}".strip(), child)]

    return walk("", typer.main.get_command(app()))


def taken_by(command: Any) -> set[str]:
    return {
        each.name.upper() if each.param_type_name == "argument" else each.opts[0]
        for each in command.params
        if each.name
    }


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("get", "instnaces"), "instances"),
        (("get", "forwarding-table-s"), "forwarding-tables"),
        (("fault", "inject", "nod-down", "sn0-c00-n0"), "node-down"),
        (("gt", "nodes"), "get"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(ctl: Ctl, words: tuple[str, ...], meant: str) -> None:
    code, _, err = ctl(*words)
    assert code == 2
    assert f"did you mean '{meant}'?" in err.lower()


def test_help_and_version_are_options_as_everywhere(ctl: Ctl) -> None:
    assert ctl("--version") == ctl("version")
    assert ctl("--version")[1].startswith("cloudmatrix ")
    for words in ((), ("get",), ("token", "create")):
        assert ctl(*words, "-h") == ctl(*words, "--help")
        assert ctl(*words, "-h")[0] == 0


@pytest.mark.parametrize(
    "words", [("up",), ("token", "create", "me"), ("token", "list"), ("token", "revoke", "me"), ("status",), ("down",)]
)
def test_a_state_folder_that_cannot_be_is_refused_in_a_line(ctl: Ctl, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.write_text("I am no folder")
    for place in (file, file / "below", Path("/proc/nowhere")):
        code, out, err = ctl(*words, "--state", str(place))
        assert code in (1, 3) or words == ("down",), (place, out, err)
        assert (out + err).count("\n") == 1
        assert str(place) in out + err
    assert file.read_text() == "I am no folder"


@pytest.mark.parametrize("words", [("create", "me"), ("list",), ("revoke", "me")])
def test_tokens_are_of_a_stack_that_is_there(ctl: Ctl, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, _, err = ctl("token", *words, "--state", str(tmp_path / "tpyo"))
    assert code == 3
    assert f"there is no stack in {tmp_path / 'tpyo'}" in err
    assert not (tmp_path / "tpyo").exists()


def test_a_token_that_ends_after_all_time_is_listed(ctl: Ctl, tmp_path: Path) -> None:
    add_token(tmp_path / "tokens.json", "cm_one", Principal("late", "default", "viewer", expires_at=1e21))
    code, out, _ = ctl("token", "list", "--state", str(tmp_path))
    assert (code, "9999-12-31T23:59:59.000Z" in out) == (0, True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"name": "b"}}'])
def test_damaged_tokens_are_told_of_in_a_line_and_let_nobody_in(ctl: Ctl, tmp_path: Path, text: str) -> None:
    from services.chassis.access import Tokens

    state = tmp_path / "state"
    StateFolder(state).prepare()
    (state / "tokens.json").write_text(text)
    for words in (("up",), ("token", "create", "me"), ("token", "list"), ("token", "revoke", "me")):
        code, _, err = ctl(*words, "--state", str(state))
        assert (code, err.count("\n")) == (1, 1), err
        assert "tokens.json is damaged" in err
    assert (state / "tokens.json").read_text() == text
    with pytest.raises(Unavailable):
        Tokens(state / "tokens.json").principal(f"Bearer {StateFolder(state).admin_token()}")


def test_a_token_is_shown_once_and_known_at_once(ctl: Ctl, tmp_path: Path) -> None:
    from services.chassis.access import Tokens

    state = tmp_path / "state"
    StateFolder(state).prepare()
    code, out, _ = ctl("token", "create", "reader", "--role", "viewer", "--project", "blue", "--state", str(state))
    principal = Tokens(state / "tokens.json").principal(f"Bearer {out.strip()}")
    assert (code, principal.name, principal.project, principal.role) == (0, "reader", "blue", "viewer")
    current = json.loads(ctl("token", "list", "--state", str(state), "-o", "json")[1])["items"]
    processes = [process.name for process in PROCESSES if process.role]
    assert [item["name"] for item in current] == ["matrixctl", *processes, "reader"]
    assert out.strip() not in (state / "tokens.json").read_text()
    assert (state / "admin-token").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "node", "parameters"),
    [
        ("sn0-c03-n2", "sn0-c03-n2", {}),
        ("sn0-c03-n2-npu5", "sn0-c03-n2", {"npu": 5}),
        ("sn0-c03-n2/ub-p3-k11", "sn0-c03-n2", {"port": "ub-p3-k11"}),
    ],
)
def test_a_fault_target_is_a_node_an_npu_or_a_port(text: str, node: str, parameters: dict[str, object]) -> None:
    assert fault_target(text) == (node, parameters)


def test_nouns_are_found_by_plural_singular_and_short_name() -> None:
    assert find_kind("nodes") is find_kind("node") is find_kind("NO")
    noun = find_kind("allocations")
    columns = noun.shown(wide=True)
    row = cells(columns, {"name": "a", "nodes": 3, "bound": True})
    assert dict(zip(titles(columns), row, strict=True))["bound"] == "yes"
    assert "-" in row
    assert len({noun.name for noun in LISTED_KINDS}) == len(LISTED_KINDS)


def test_down_ends_a_stack_whose_record_is_damaged(ctl: Ctl, supervised_stack: SupervisedStack) -> None:
    supervised_stack.up()
    state = str(supervised_stack.folder.path)
    supervisor = supervised_stack.folder.supervisor()
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not supervisor.alive())
    supervised_stack.folder.stack_file.write_text('{"processes": [')
    code, _, err = ctl("status", "--state", state)
    assert (code, err.count("\n")) == (1, 1)
    assert "move it away" in err
    assert ctl("down", "--state", state)[0] == 0
    assert not supervised_stack.folder.holders()


def test_a_record_of_another_version_is_read_as_far_as_it_is_known(supervised_stack: SupervisedStack) -> None:
    stack = supervised_stack.up()
    stop_stack(supervised_stack.folder)
    current = json.loads(supervised_stack.folder.stack_file.read_text())
    del current["contained"]
    current["children"]["alpha"]["mood"] = "cheerful"
    supervised_stack.folder.stack_file.write_text(json.dumps(current))
    again = supervised_stack.folder.read()
    assert again is not None
    assert again.children["alpha"].port == stack.children["alpha"].port


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("delete instance {}", "kubectl delete cloudmatrixinstance one --namespace red"),
        (
            "instance stop {}",
            """kubectl patch cloudmatrixinstance one --namespace red --type merge -p '{"spec": {"power": "Off"}}'""",
        ),
    ],
)
@pytest.mark.parametrize("asked_for_by", [{}, {"cloudmatrix.io/namespace": "red"}])
def test_who_undoes_what_an_object_of_kubernetes_asks_for_learns_what_that_object_has_to_say(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked_for_by: dict[str, str],
    words: str,
    helps: str,
) -> None:
    view = {"name": "one", "project": "red", "state": "Deleting", "labels": asked_for_by}
    changing = httpx.MockTransport(lambda request: httpx.Response(202, json=view))
    connect_matrixctl(monkeypatch, {"compute": httpx.Client(transport=changing, base_url="http://compute")})
    code, out, err = run_line_normalised(capsys, words.format("red/one"))
    assert (code, out) == (0, "red/one is Deleting")
    assert (helps in err) is bool(asked_for_by)


def test_what_is_listed_by_name_in_several_projects_is_what_a_command_then_reaches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`get -o name | xargs matrixctl delete` of two of one name would delete one of them twice, and not the other."""
    there = {project: {"name": "one", "project": project, "state": "Active"} for project in ("default", "red")}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(202, json=there.pop(request.url.params.get("project", "default")))
        return httpx.Response(200, json={"items": list(there.values())})

    client = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://compute")
    connect_matrixctl(monkeypatch, {"compute": client})
    code, out, _ = run_line_normalised(capsys, "get instances")
    words = out.split()
    assert (code, [word for word in words if word in ("PROJECT", "default", "red")]) == (
        0,
        ["PROJECT", "default", "red"],
    )
    assert [view["name"] for view in json.loads(run_line_normalised(capsys, "get instances -o json")[1])["items"]] == [
        "one",
        "one",
    ]
    names = run_line_normalised(capsys, "get instances -o name")[1].split()
    assert names == ["one", "red/one"]
    assert run_line_normalised(capsys, f"delete instances {names[1]}")[0] == 0
    assert list(there) == ["default"]
    assert "PROJECT" not in run_line_normalised(capsys, "get instances")[1]


def test_what_is_described_has_the_events_of_its_own_project(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/events":
            events = [{"about": "one", "project": each, "message": f"of {each}"} for each in ("default", "red")]
            return httpx.Response(200, json={"items": events})
        return httpx.Response(200, json={"name": "one", "project": request.url.params.get("project", "default")})

    connect_matrixctl(
        monkeypatch, {"compute": httpx.Client(transport=httpx.MockTransport(answer), base_url="http://compute")}
    )
    assert "of red" in (out := run_line_normalised(capsys, "describe instance red/one")[1])
    assert "of default" not in out
    assert "of red" not in run_line_normalised(capsys, "describe instance one")[1]
