"""matrixctl against a real stack: every noun in every form, faults, tokens, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.matrixctl.main import run
from services.matrixctl.output.columns import cells, titles
from services.matrixctl.output.resource_kinds import LISTED_KINDS
from tests.e2e.conftest import RealStack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

MANIFEST = """\
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: looked-at}
spec: {nodes: 4, spares: 1}
"""


FEW = {"links": ("--filter", "plane=vpc"), "switches": ("--filter", "plane=rdma")}
"""Of thousands, some."""


class Ctl:
    """The command line on one stack."""

    def __init__(self, stack: RealStack, capsys: pytest.CaptureFixture[str]) -> None:
        self.stack = stack
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed: standard output, or the one line of a refusal where another exit code is expected and there is one."""
        seen = 0
        try:
            run([*words, "--state", str(self.stack.folder.path)])
        except SystemExit as end:
            seen = int(end.code or 0)
        reported = self._capsys.readouterr()
        assert seen == code, reported.out + reported.err
        return reported.out if code == 0 else reported.err or reported.out

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))


@pytest.fixture
def ctl(real_stack: RealStack, capsys: pytest.CaptureFixture[str]) -> Ctl:
    return Ctl(real_stack, capsys)


@pytest.fixture(scope="module")
def instance(real_stack: RealStack, tmp_path_factory: pytest.TempPathFactory) -> str:
    manifest = tmp_path_factory.mktemp("manifest") / "looked-at.yaml"
    manifest.write_text(MANIFEST)
    real_stack.cluster.apply(manifest)
    eventually(lambda: real_stack.active("looked-at"), "Active")
    return "looked-at"


@pytest.mark.parametrize("noun", LISTED_KINDS, ids=lambda noun: noun.name)
def test_every_noun_is_reported_in_every_form(ctl: Ctl, instance: str, noun: Any) -> None:
    few = FEW.get(noun.name, ())
    items = ctl.json("get", noun.name, *few)["items"]
    assert yaml.safe_load(ctl("get", noun.name, *few, "-o", "yaml")).keys() == {"items"}
    for form in ("table", "wide"):
        lines = ctl("get", noun.name, *few, "-o", form).splitlines()
        assert len(lines) == (len(items) + 1 if items else 0)
    if items and noun.name != "faults":
        name = items[0]["name"]
        assert ctl.json("get", noun.name, name)["name"] == name
        assert name in ctl("describe", noun.name, name)


def test_columns_are_fields_that_there_are(ctl: Ctl, instance: str) -> None:
    """A column that is empty for everything is a misspelt one, but for these, which are empty on a healthy stack."""
    may_be_empty = {
        "stage",
        "error",
        "endpoint",
        "cabinet",
        "node",
        "sub-plane",
        "operation",
        "step",
        "by",
        "reason",
        "message",
    } | {"lease ends", "preempted", "closed", "protected", "lanes", "damped until", "why", "recovered in (s)"}
    may_be_empty |= {"mttr (s)", "detect", "fence", "tell", "drain", "replace", "boot", "serve"}  # nothing has failed
    for noun in LISTED_KINDS:
        views = ctl.json("get", noun.name, *FEW.get(noun.name, ()))["items"]
        if not views:
            continue
        columns = noun.shown(wide=True)
        rows = [cells(columns, view) for view in views]
        named = [title.removesuffix(" (emulated)") for title in titles(columns)]
        empty = {title for at, title in enumerate(named) if all(row[at] == "-" for row in rows)}
        assert empty <= may_be_empty, noun.name


def test_a_filter_narrows_a_list(ctl: Ctl, instance: str) -> None:
    current = ctl.json("get", "nodes", "--filter", f"allocation={instance}")["items"]
    assert len(current) == 5
    assert "InvalidField" in ctl("get", "nodes", "--filter", "nonsense", code=1)


def test_what_is_not_there_is_one_line(ctl: Ctl) -> None:
    text = ctl("get", "instances", "nobody", code=1)
    assert text.startswith("NotFound:")
    assert text.count("\n") == 1
    assert ctl("get", "nodes", "no/such name", code=1).count("\n") == 1


def test_a_fault_is_injected_listed_and_cleared(ctl: Ctl) -> None:
    ctl("fault", "inject", "npu-fault", "sn0-c11-n3-npu5", "--name", "tired")
    assert [item["name"] for item in ctl.json("fault", "list")["items"]] == ["tired"]
    eventually(lambda: ctl.json("get", "npus", "sn0-c11-n3-npu5")["faults"], "the agent reports it")
    assert "Conflict" in ctl("fault", "inject", "npu-fault", "sn0-c11-n3-npu4", "--name", "tired", code=1)
    assert "NotFound" in ctl("fault", "inject", "node-down", "sn0-c99-n0", code=1)
    ctl("fault", "clear", "--all")
    assert ctl.json("fault", "list")["items"] == []
    eventually(lambda: not ctl.json("get", "npus", "sn0-c11-n3-npu5")["faults"], "the agent takes it back")


def test_a_move_is_planned_and_nothing_is_done(ctl: Ctl, instance: str, tmp_path: Path) -> None:
    before = ctl.stack.members(instance)
    request = yaml.safe_load(MANIFEST)
    request["spec"]["placement"] = {"policy": "spread"}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(request))
    (planned,) = json.loads(ctl("plan", "-f", str(tmp_path / "plan.yaml"), "-o", "json"))["items"]
    assert planned["moves"] == 3
    assert len({place["cabinet"] for place in planned["places"] if place["role"] == "member"}) == 4
    assert "3 of them move" in ctl("plan", "-f", str(tmp_path / "plan.yaml"))
    request["spec"]["nodes"] = 60
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(request))
    assert "do not fit" in ctl("plan", "-f", str(tmp_path / "plan.yaml"), code=1)
    assert ctl.stack.members(instance) == before


def test_nothing_is_stuck(ctl: Ctl, instance: str) -> None:
    assert ctl.json("stuck")["items"] == []


def test_a_watch_tells_the_present_and_what_changes(ctl: Ctl, instance: str) -> None:
    state = str(ctl.stack.folder.path)
    words = [sys.executable, "-m", "services.matrixctl", "get", "instances", "-w", "-o", "json", "--state", state]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["type"], first["object"]["name"]) == ("ADDED", instance)
        ctl.stack.cluster.scale(instance, 5)
        seen = json.loads(watching.stdout.readline())
        while not (seen["object"]["state"] == "Active" and seen["object"]["readyNodes"] == 5):
            seen = json.loads(watching.stdout.readline())
        watching.terminate()


def test_a_viewer_reads_and_may_not_change(ctl: Ctl) -> None:
    import httpx

    token = ctl("token", "create", "reader", "--role", "viewer").strip()
    headers = {"Authorization": f"Bearer {token}"}
    url = ctl.stack.client.url("compute") + "/v1/instances"
    assert httpx.get(url, headers=headers, trust_env=False).status_code == 200
    assert httpx.put(url + "/x", headers=headers, json={"nodes": 1}, trust_env=False).status_code == 403
    assert httpx.get(url, trust_env=False).status_code == 401


def test_a_plan_says_whether_it_fits_and_what_would_help(ctl: Ctl, instance: str) -> None:
    assert "fits: 2 nodes" in ctl("plan", "--nodes", "2")
    refused = ctl("plan", "--nodes", "48", code=1)
    assert "does not fit" in refused
    assert f"it would fit without {instance}" in refused
    assert "IN THE WAY" in refused
    fewer = json.loads(ctl("plan", "--nodes", "48", "-o", "json", code=1))["changes"][0]
    assert fewer["kind"] == "Fewer"
    assert json.loads(ctl("plan", "--nodes", str(fewer["nodes"]), "-o", "json"))["fits"]
    ctl("plan", code=2)
