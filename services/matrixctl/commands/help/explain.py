"""explain: describe a kind, a field, a state, a condition or a reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.matrixctl.commands.command import command
from services.matrixctl.commands.help.completion import complete_words
from services.matrixctl.commands.options import Output, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.resource_kinds import LISTED_KINDS
from services.matrixctl.output.screen import OutputFormat, echo, escape_markup

if TYPE_CHECKING:
    from services.matrixctl.explain.catalogue import Field, Kind, Word


@command("explain")
def explain(
    word: Annotated[
        str | None,
        typer.Argument(
            help="A kind, a field of a kind, a reason, a condition or a state.", autocompletion=complete_words
        ),
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", help="Include nested fields.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain a kind, a field, a reason, a condition type or a state, and what to do about it.

    Needs no stack. Without a word it lists everything that it explains.
    """
    from services.matrixctl.explain import catalogue

    if word is None:
        _all(output)
        return
    name, _, path = word.partition(".")
    kind = catalogue.lookup_kind(name)
    # A word spelt exactly like a reason, such as Preempted, is not taken for a kind.
    meant = None if path or (kind is not None and name not in catalogue.words()) else catalogue.lookup_word(name)
    if meant is not None and (kind is None or kind.name != name):
        if not print_for_programs(_word_document(meant), output):
            _print_word(meant)
    elif kind is None:
        raise catalogue.unknown_word_error(name)
    elif path:
        found = catalogue.lookup_field(kind, path)
        if not print_for_programs(asdict(found), output):
            _print_field(kind, path, found, recursive)
    elif not print_for_programs(asdict(kind), output):
        _print_kind(kind, recursive)


def _all(output: OutputFormat) -> None:
    from matrixcommon.model.reasons import reasons
    from services.matrixctl.explain.catalogue import CONDITIONS, custom_kinds, rest_kind

    rows = [
        *({"word": noun.name, "what": "kind", "means": rest_kind(noun).means} for noun in LISTED_KINDS),
        *({"word": kind.name, "what": "Kubernetes kind", "means": kind.means} for kind in custom_kinds().values()),
        *({"word": name, "what": "condition", "means": means} for name, means in CONDITIONS.items()),
        *({"word": each.name, "what": f"reason ({each.group})", "means": each.means} for each in reasons().values()),
    ]
    if not print_for_programs({"items": rows}, output):
        print_table("word, what, means", rows)


def _word_document(word: Word) -> dict[str, Any]:
    return {
        "name": word.name,
        "reason": word.reason and {"group": word.reason.group, "means": word.reason.means, "do": word.reason.do},
        "condition": word.condition or None,
        "states": [
            {"kind": kind, "means": state.sentence, "deadlineS": state.deadline_s} for kind, state in word.states
        ],
    }


def _print_word(word: Word) -> None:
    if word.reason is not None:
        echo(f"[bold]{word.name}[/], a reason ({word.reason.group}): {escape_markup(word.reason.means)}")
        if word.reason.do:
            echo(f"  what to do: {escape_markup(word.reason.do)}")
    if word.condition:
        echo(f"[bold]{word.name}[/], a type of conditions: {escape_markup(word.condition)}")
    for kind, state in word.states:
        late = f" (stuck after {state.deadline_s:g} emulated s)" if state.deadline_s else ""
        echo(f"[bold]{word.name}[/], a state of {kind}: {escape_markup(state.sentence)}{late}")


def _print_kind(kind: Kind, recursive: bool) -> None:
    echo(f"[bold]{kind.name}[/]: {escape_markup(kind.means)}")
    echo(f"  {escape_markup(kind.where)}; also {', '.join(kind.aliases)}")
    if kind.states:
        echo("\n[bold]states[/]")
        print_table("name, sentence, stuck after (s):deadline_s", [asdict(state) for state in kind.states])
    for title, fields in (("fields", kind.fields), ("what may be set", kind.settable)):
        if fields:
            echo(f"\n[bold]{title}[/]")
            _print_fields(fields, recursive, 1)


def _print_field(kind: Kind, path: str, field: Field, recursive: bool) -> None:
    echo(f"[bold]{kind.name}.{path}[/] <{escape_markup(field.type)}>: {escape_markup(field.means)}")
    if field.inside:
        echo("\n[bold]fields[/]")
        _print_fields(field.inside, recursive, 1)


def _print_fields(fields: tuple[Field, ...], recursive: bool, depth: int) -> None:
    for each in fields:
        required = ", required" if each.required else ""
        echo(f"{'  ' * depth}[cyan]{each.name}[/] <{escape_markup(each.type)}{required}>  {escape_markup(each.means)}")
        if recursive:
            _print_fields(each.inside, recursive, depth + 1)
