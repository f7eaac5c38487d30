"""Every command of matrixctl that a page names is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from tests.services.matrixctl.terminal.test_help import understood

ROOT = Path(__file__).parents[4]
FOLDERS = (
    *("docs", "matrixcommon", "matrixresource", "matrixlink", "matrixcompute", "matrixcontainer"),
    *("infer_workload", "services"),
)
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
    if page.parent.name != "decisions" and page.name != "matrixctl.md"
]
"""All but what was decided in the words of its day, and the reference, of which test_help looks at each example."""
PLACEHOLDER = re.compile(r"\.\.\.|\b(VERB|N)\b|\$|--install-completion")
"""What stands for something that a reader puts there, or a shell; and what would be carried out while it is read."""

NOT_UNDERSTOOD = ("No such", "Got unexpected", "Invalid value", "Input should", "No closing")


def commands(text: str) -> Iterator[str]:
    """What is typed, without what a shell does with it and what is said of it on the same line."""
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        found = re.match(r"(?: {4}|\$ )?(matrixctl [^`]*)$", line)
        typed = [found[1]] if found and (fenced or found.start(1)) else []
        for command in typed + re.findall(r"`(matrixctl [^`]*)`", line):
            yield re.split(r"\s*(?:#|\||&&|;|>|<| {2,})", command)[0].rstrip("\\ ")


def wrong_in(command: str) -> str:
    """Why the command line does not understand it; one that only names a command may leave out what that needs."""
    try:
        understood(shlex.split(command)[1:])
    except (Exception, typer.Exit) as wrong:
        return f"{command}: {wrong}" if str(wrong).startswith(NOT_UNDERSTOOD) else ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_a_page_names_is_understood(page: Path) -> None:
    found = [command for command in commands(page.read_text()) if not PLACEHOLDER.search(command)]
    assert [wrong for wrong in map(wrong_in, found) if wrong] == []


def test_what_is_not_understood_is_found() -> None:
    assert [*commands("    matrixctl get nodes   all of them\nby `matrixctl budget put` too\n")] == [
        "matrixctl get nodes",
        "matrixctl budget put",
    ]
    assert "No such command" in wrong_in("matrixctl budget put")
    assert "No such option" in wrong_in("matrixctl get nodes --filtr x")
    assert wrong_in("matrixctl node recover") == ""
