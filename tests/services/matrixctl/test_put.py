"""`put`, and peerings: resources of a service made and changed from the command line."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from tests.matrixlink.fleet import NODES, LinkStack, slice_request
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised, run_matrixctl


class CliHarness:
    """matrixctl before a MatrixLink with a slice of project default and one of project blue."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        stack = LinkStack(folder)

        async def furnish() -> None:
            await stack.active("a-ub", slice_request(members=NODES[:2]))
            await stack.active("blue/b-ub", slice_request(members=NODES[2:], instance="b", project="blue"))

        asyncio.run(furnish())
        connect_matrixctl(monkeypatch, {"link": TestClient(stack.app)})

    def run(self, line: str, given: str = "") -> tuple[int, str, str]:
        """Run it with that on standard input."""
        self.monkeypatch.setattr("sys.stdin", io.StringIO(given))
        return run_line_normalised(self.capsys, line)

    def raw(self, line: str) -> str:
        return run_matrixctl(self.capsys, *line.split())[1]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliHarness:
    return CliHarness(tmp_path, monkeypatch, capsys)


def test_a_peering_takes_both_projects_consent(harness: CliHarness) -> None:
    assert (
        harness.run("peering create p1 a-ub blue/b-ub")[1]
        == "p1 is PendingAcceptance: waiting for project blue to accept"
    )
    assert harness.run("peering accept default/p1 --project blue")[1] == "p1 is Programming", (
        "default's p1, and not blue's"
    )
    assert harness.run("peering accept p1 --project blue")[0] == 1, "blue has none of that name"
    assert harness.run("peering delete p1")[1] == "p1 is Deleting"


def test_what_get_printed_is_put_back_unless_somebody_changed_it_since(harness: CliHarness) -> None:
    code, out, _ = harness.run("put peering p1 -f -", "slices: [a-ub, blue/b-ub]")
    assert (code, "p1 PendingAcceptance ub" in out) == (0, True), out
    shown = yaml.safe_load(harness.raw("get peering p1 -o yaml"))
    changed = yaml.safe_dump(shown | {"labels": {"team": "one"}})
    assert harness.run("put peering p1 -f -", changed)[0] == 0
    assert yaml.safe_load(harness.raw("get peering p1 -o yaml"))["labels"] == {"team": "one"}
    code, _, err = harness.run("put peering p1 -f -", changed)
    assert (code, "PreconditionFailed" in err) == (1, True), err


def test_a_dry_run_makes_nothing(harness: CliHarness) -> None:
    code, out, _ = harness.run("put peering p1 --dry-run -f -", "slices: [a-ub, blue/b-ub]")
    assert (code, "PendingAcceptance" in out) == (0, True)
    assert harness.run("get peering p1")[0] == 1


@pytest.mark.parametrize(
    ("line", "given", "sentence"),
    [
        ("put link x -f -", "lanes: 1", "links cannot be put"),
        ("delete link x", "", "links cannot be deleted"),
        ("put peering p -f -", "slice: [a]", "slice: unknown field; did you mean 'slices'?"),
        ("put peering p -f -", "[a]", "not a YAML file with one mapping"),
        ("put nonsense p -f -", "a: b", "nonsense"),
    ],
)
def test_what_cannot_be_is_refused_in_words(harness: CliHarness, line: str, given: str, sentence: str) -> None:
    code, out, err = harness.run(line, given)
    assert (code in (1, 2), out, sentence in err) == (True, "", True), err
