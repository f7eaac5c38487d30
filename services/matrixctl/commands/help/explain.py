"""explain: describe a kind, a field, a state, a condition or a reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.matrixctl.commands.command import command
from services.matrixctl.commands.help.completion import explainable
from services.matrixctl.commands.options import Output, printed
from services.matrixctl.output.columns import listing
from services.matrixctl.output.resource_kinds import NOUNS
from services.matrixctl.output.screen import Form, say, text

if TYPE_CHECKING:
    from services.matrixctl.explain.catalogue import Field, Kind, Word


@command("explain")
def explain(
    word: Annotated[
        str | None,
        typer.Argument(help="A kind, a field of a kind, a reason, a condition or a state.", autocompletion=explainable),
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", help="Include nested fields.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """Explain a kind, a field, a reason, a condition type or a state, and what to do about it.

    Needs no stack. Without a word it lists everything that it explains.
    """
    from services.matrixctl.explain import catalogue

    if word is None:
        _all(output)
        return
    name, _, path = word.partition(".")
    kind = catalogue.kind_of(name)
    # A word spelt exactly like a reason, such as Preempted, is not taken for a kind.
    meant = None if path or (kind is not None and name not in catalogue.words()) else catalogue.word_of(name)
    if meant is not None and (kind is None or kind.name != name):
        if not printed(_word_document(meant), output):
            _say_word(meant)
    elif kind is None:
        raise catalogue.nothing(name)
    elif path:
        found = catalogue.field_of(kind, path)
        if not printed(asdict(found), output):
            _say_field(kind, path, found, recursive)
    elif not printed(asdict(kind), output):
        _say_kind(kind, recursive)


def _all(output: Form) -> None:
    from matrixcommon.model.reasons import reasons
    from services.matrixctl.explain.catalogue import CONDITIONS, custom_kinds, rest_kind

    rows = [
        *({"word": noun.name, "what": "kind", "means": rest_kind(noun).means} for noun in NOUNS),
        *({"word": kind.name, "what": "Kubernetes kind", "means": kind.means} for kind in custom_kinds().values()),
        *({"word": name, "what": "condition", "means": means} for name, means in CONDITIONS.items()),
        *({"word": each.name, "what": f"reason ({each.group})", "means": each.means} for each in reasons().values()),
    ]
    if not printed({"items": rows}, output):
        listing("word, what, means", rows)


def _word_document(word: Word) -> dict[str, Any]:
    return {
        "name": word.name,
        "reason": word.reason and {"group": word.reason.group, "means": word.reason.means, "do": word.reason.do},
        "condition": word.condition or None,
        "states": [
            {"kind": kind, "means": state.sentence, "deadlineS": state.deadline_s} for kind, state in word.states
        ],
    }


def _say_word(word: Word) -> None:
    if word.reason is not None:
        say(f"[bold]{word.name}[/], a reason ({word.reason.group}): {text(word.reason.means)}")
        if word.reason.do:
            say(f"  what to do: {text(word.reason.do)}")
    if word.condition:
        say(f"[bold]{word.name}[/], a type of conditions: {text(word.condition)}")
    for kind, state in word.states:
        late = f" (stuck after {state.deadline_s:g} emulated s)" if state.deadline_s else ""
        say(f"[bold]{word.name}[/], a state of {kind}: {text(state.sentence)}{late}")


def _say_kind(kind: Kind, recursive: bool) -> None:
    say(f"[bold]{kind.name}[/]: {text(kind.means)}")
    say(f"  {text(kind.where)}; also {', '.join(kind.aliases)}")
    if kind.states:
        say("\n[bold]states[/]")
        listing("name, sentence, stuck after (s):deadline_s", [asdict(state) for state in kind.states])
    for title, fields in (("fields", kind.fields), ("what may be set", kind.settable)):
        if fields:
            say(f"\n[bold]{title}[/]")
            _say_fields(fields, recursive, 1)


def _say_field(kind: Kind, path: str, field: Field, recursive: bool) -> None:
    say(f"[bold]{kind.name}.{path}[/] <{text(field.type)}>: {text(field.means)}")
    if field.inside:
        say("\n[bold]fields[/]")
        _say_fields(field.inside, recursive, 1)


def _say_fields(fields: tuple[Field, ...], recursive: bool, depth: int) -> None:
    for each in fields:
        required = ", required" if each.required else ""
        say(f"{'  ' * depth}[cyan]{each.name}[/] <{text(each.type)}{required}>  {text(each.means)}")
        if recursive:
            _say_fields(each.inside, recursive, depth + 1)
