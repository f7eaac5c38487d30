"""Help that teaches: every command has an example that the command line understands, and lists are printed in one style."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from services.matrixctl.commands.help.examples import EXAMPLES
from services.matrixctl.commands.options import FiguresFormat
from services.matrixctl.main import app
from services.matrixctl.output.screen import OutputFormat
from tests.services.matrixctl.inprocess import run_matrixctl

ROOT = typer.main.get_command(app())
NO_FORM = {"kubeconfig", "demo", "version", "apply"}
"""Commands that print one path, a story, or a line for each document, and nothing that could be had otherwise."""
READING = {
    *("get", "describe", "events", "operations", "stuck", "status", "plan", "what-if", "explain", "fault list"),
    *("fault kinds", "token list", "traffic list", "top capacity", "top links", "top slices", "top fabric"),
    *("maintenance list", "maintenance show", "defrag get", "scenario list", "scenario runs", "scenario show"),
    *("topology path", "topology neighbours", "topology cut", "topology bisection"),
}
FIGURES = {"experiment run", "sweep", "experiment sweep", "experiment validate", "experiment operators"}


def commands(command: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        if command.invoke_without_command and path:
            yield path, command
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}".strip())
    elif not command.hidden:
        yield path, command


ALL = dict(commands())


@pytest.mark.parametrize("word", sorted({path.split()[0] for path in ALL}))
def test_a_command_is_the_same_where_only_those_of_its_word_are_made(word: str) -> None:
    made = dict(commands(typer.main.get_command(app(word))))
    whole = {path: command for path, command in ALL.items() if path.split()[0] == word}
    assert list(made) == list(whole)
    for path, command in made.items():
        assert command.help == whole[path].help
        seen = [
            [(each.name, each.opts, each.required, each.help) for each in of.params] for of in (command, whole[path])
        ]
        assert seen[0] == seen[1]


def test_who_is_not_understood_hears_of_every_command() -> None:
    assert dict(commands(typer.main.get_command(app("clokc")))).keys() == ALL.keys()


def understood(words: list[str]) -> Any:
    """The command that the words lead to, with its arguments read, as the command line would; it is not carried out."""
    command, context = ROOT, None
    while True:
        context = command.make_context("matrixctl", list(words), parent=context)
        if not hasattr(command, "commands") or not (rest := [*context._protected_args, *context.args]):
            return command
        _, command, words = command.resolve_command(context, rest)


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_an_example_that_is_understood(path: str) -> None:
    assert path in EXAMPLES, "add one to services/matrixctl/commands/help/examples.py"
    for example in EXAMPLES[path]:
        typed = example.partition(" #")[0].strip()
        assert f"matrixctl {example}" in ALL[path].help
        assert understood(shlex.split(typed)) in (ALL[path], *getattr(ALL[path], "commands", {}).values())


@pytest.mark.parametrize("path", ALL)
def test_every_option_has_help(path: str) -> None:
    """An `Annotated` type inside a union loses its help."""
    assert not [each.name for each in ALL[path].params if each.name != "help" and not getattr(each, "help", None)]


@pytest.mark.parametrize("path", ["sweep", "experiment sweep"])
def test_no_default_depends_on_the_machine(path: str) -> None:
    """docs/reference/matrixctl.md has the defaults, and is the same on machines with more cores."""
    assert {each.name: each.default for each in ALL[path].params}["workers"] is None


def test_no_example_is_of_a_command_that_is_gone() -> None:
    assert set(EXAMPLES) <= set(ALL)


def test_an_example_that_is_not_understood_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood(["get", "nodes", "--filtr", "x"])
    with pytest.raises(Exception, match="No such command"):
        understood(["gett"])


@pytest.mark.parametrize("path", sorted(READING))
def test_what_lists_or_shows_has_one_style_of_output(path: str) -> None:
    output = next(each for each in ALL[path].params if "--output" in each.opts)
    assert output.opts == ["--output", "-o"]
    assert output.type_descriptor.annotation is OutputFormat
    assert [form.value for form in OutputFormat] == ["table", "wide", "json", "yaml", "name"]


@pytest.mark.parametrize("path", sorted(FIGURES))
def test_figures_have_the_same_output_but_for_names(path: str) -> None:
    output = next(each for each in ALL[path].params if "--output" in each.opts)
    assert output.opts == ["--output", "-o"]
    assert output.type_descriptor.annotation is FiguresFormat
    assert [*get_args(FiguresFormat)] == [form.value for form in OutputFormat if form is not OutputFormat.NAME]


def test_names_alone_are_printed_for_other_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "scenario", "list", "-o", "name")
    assert code == 0
    assert "node-loses-power\n" in out
    assert run_matrixctl(capsys, "scenario", "list", "-o", "nam")[0] == 2


def test_a_command_and_a_flag_that_do_not_exist_say_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'operations'" in run_matrixctl(capsys, "operatons")[2]
    assert "Did you mean 'stop'" in run_matrixctl(capsys, "instance", "stp", "x")[2]
    assert "--filter" in run_matrixctl(capsys, "get", "nodes", "--filtr", "x")[2]


def test_a_refusal_says_what_to_do_next_in_the_same_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run_matrixctl(capsys, "scenario", "run", str(tmp_path))
    assert code in (1, 2)
    assert "`matrixctl scenario list`" in err
    assert err.count("\n") == 1
