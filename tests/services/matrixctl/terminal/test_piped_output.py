"""What is printed into a pipe or a file has every column whole, each row in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrixresource.agent.fault_catalogue import CATALOGUE
from services.matrixctl.output import screen
from tests.services.matrixctl.inprocess import run_matrixctl


@pytest.fixture(autouse=True)
def fresh_console() -> Iterator[None]:
    """The console of this test's standard output, which is no terminal."""
    screen.console.cache_clear()
    yield
    screen.console.cache_clear()


def test_a_wide_table_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "fault", "kinds")
    title, *rows = out.splitlines()
    assert (code, title.split()[0], len(rows)) == (0, "KIND", len(CATALOGUE))
    for row, (name, kind) in zip(rows, CATALOGUE.items(), strict=True):
        assert row.split()[0] == name
        assert all(cell in row for cell in (kind.scope, kind.description, kind.level, kind.detected_by))


def test_a_long_sentence_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = " ".join(["sn0-c00-n0,"] * 100)
    screen.echo(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"


def test_text_of_a_table_is_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["a" * 300, "b" * 300, "c" * 300]
    screen.table(["one", "two", "three"], [cells])
    assert capsys.readouterr().out.splitlines()[1].split() == cells


@pytest.mark.parametrize("folder", ["a[b]", "a[/b]", "[/]", "[link=x]", ":key:", "a[0]"])
def test_a_name_with_brackets_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str
) -> None:
    code, out, _ = run_matrixctl(capsys, "down", "--state", str(tmp_path / folder))
    assert (code, out) == (0, f"nothing runs in {tmp_path / folder}\n")


def test_what_is_marked_is_marked_and_what_was_escaped_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    screen.echo(f"[bold]name[/]: [red]bad[/] {screen.escape_markup('[red] [x] [/x]')} [y]")
    assert capsys.readouterr().out == "name: bad [red] [x] [/x] [y]\n"


def run_into(descriptor: int, *words: str, unbuffered: str) -> tuple[int, str]:
    """matrixctl with that standard output: exit code, standard error."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[4]), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "services.matrixctl", *words]
    ended = subprocess.run(
        command, stdout=descriptor, stderr=subprocess.PIPE, text=True, env=environment, check=False, timeout=60
    )
    os.close(descriptor)
    return ended.returncode, ended.stderr


def closed_pipe() -> int:
    """Its writing end, of which nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize(
    ("words", "unbuffered", "code"),
    [
        (("fault", "kinds"), "", 141),
        (("fault", "kinds", "-o", "json"), "1", 141),
        (("scenario", "list", "-o", "name"), "", 0),
        (("status", "--state", "/nowhere", "-o", "json"), "", 3),
    ],
)
def test_who_reads_only_the_beginning_is_told_nothing_on_standard_error(
    words: tuple[str, ...], unbuffered: str, code: int
) -> None:
    """What was done before its output was found closed has its own exit code."""
    assert run_into(closed_pipe(), *words, unbuffered=unbuffered) == (code, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_printed_is_a_refusal(unbuffered: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    code, err = run_into(full, "scenario", "list", "-o", "name", unbuffered=unbuffered)
    assert (code, err.startswith("NotAccessible: [Errno 28]"), err.count("\n")) == (1, True, 1)
