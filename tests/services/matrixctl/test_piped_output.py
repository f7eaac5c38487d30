"""What is printed into a pipe or a file has every column whole, each row in one line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from matrixresource.agent.fault_catalogue import CATALOGUE
from services.matrixctl.output import screen
from tests.services.matrixctl.inprocess import ran


@pytest.fixture(autouse=True)
def fresh_console() -> Iterator[None]:
    """The console of this test's standard output, which is no terminal."""
    screen.console.cache_clear()
    yield
    screen.console.cache_clear()


def test_a_wide_table_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "fault", "kinds")
    title, *rows = out.splitlines()
    assert (code, title.split()[0], len(rows)) == (0, "KIND", len(CATALOGUE))
    for row, (name, kind) in zip(rows, CATALOGUE.items(), strict=True):
        assert row.split()[0] == name
        assert all(cell in row for cell in (kind.strikes, kind.means, kind.level, kind.found_by))


def test_a_long_sentence_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = " ".join(["sn0-c00-n0,"] * 100)
    screen.say(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"


def test_text_of_a_table_is_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ["a" * 300, "b" * 300, "c" * 300]
    screen.table(["one", "two", "three"], [cells])
    assert capsys.readouterr().out.splitlines()[1].split() == cells
