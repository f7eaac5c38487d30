"""Declaration of commands: the words of a command, and a function whose parameters are its arguments and options.

    @command("traffic remove")
    def remove(stack: OfProject, name: Annotated[str, typer.Argument(help="Name of the load.")]) -> None: ...

A parameter whose type is a dataclass holds options that several commands share: its fields are the options, and the
function receives them as one object.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from math import isfinite
from types import ModuleType
from typing import Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, ParameterInfo

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.validation import without_prefix
from services.matrixctl.commands.help.examples import help_with_examples

F = TypeVar("F", bound=Callable[..., None])


class _Command(TyperCommand):
    """A command whose usage errors have no prefix of Pydantic, by which Typer converts arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _plain_messages():
            return super().parse_args(ctx, args)


class _Group(TyperGroup):
    """The same for a group that is a command itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _plain_messages():
            return super().parse_args(ctx, args)


@contextmanager
def _plain_messages() -> Iterator[None]:
    try:
        yield
    except typer.BadParameter as wrong:
        wrong.message = without_prefix(wrong.message)
        raise


_declared: list[tuple[str, Callable[..., None], dict[str, Any]]] = []
_groups: dict[str, str] = {}


def group(word: str, help: str) -> None:
    """Declare a group: commands of two words that start with `word`, and the group's help."""
    _groups[word] = help


def command(words: str, **settings: Any) -> Callable[[F], F]:
    """Declare a command of one word, or of two: its group's and its own. `settings` go to Typer."""

    def declare(function: F) -> F:
        _declared.append((words, function, settings))
        return function

    return declare


def add_commands(modules: Iterable[ModuleType], app: typer.Typer, word: str = "") -> typer.Typer:
    """Add the commands of these modules to `app`, in their order. A command named like a group runs when no subcommand
    follows. If any command starts with `word`, only those are added, so that start-up does not build all the others."""
    places = [module.__name__ for module in modules]
    groups: dict[str, typer.Typer] = {}
    wanted = [each for each in _declared if each[0].partition(" ")[0] == word] or _declared
    for words, function, own in sorted(wanted, key=lambda each: places.index(each[1].__module__)):
        first, _, second = words.partition(" ")
        if second and first not in groups:
            groups[first] = typer.Typer(cls=_Group, help=_groups[first], no_args_is_help=True)
            app.add_typer(groups[first], name=first)
        settings = own | {"help": help_with_examples(words, own.get("help") or inspect.getdoc(function) or "")}
        if not second and first in _groups:
            _register_default(groups, first, app, settings)(_flatten_options(function))
        else:
            (groups[first] if second else app).command(second or first, cls=_Command, **settings)(
                _flatten_options(function)
            )
    return app


def _register_default(
    groups: dict[str, typer.Typer], word: str, app: typer.Typer, settings: dict[str, Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the command as the group's callback; it does nothing when a subcommand is called."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(context: typer.Context, **given: Any) -> None:
            if context.invoked_subcommand is None:
                function(**given)

        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        own = inspect.signature(function)
        run.__signature__ = own.replace(parameters=[context, *own.parameters.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {"context": typer.Context, **function.__annotations__}
        if word not in groups:
            groups[word] = typer.Typer(cls=_Group)
            app.add_typer(groups[word], name=word)
        groups[word].info.no_args_is_help = False
        groups[word].info.help = settings.get("help") or function.__doc__
        groups[word].callback(invoke_without_command=True)(run)
        return run

    return register


def _flatten_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function in the form Typer expects: a flat list of parameters, shared options after its own."""
    types = get_type_hints(function, include_extras=True)
    shared: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [each for name, each in inspect.signature(function).parameters.items() if name not in shared]
    parameters = [each.replace(kind=keyword, annotation=types[each.name]) for each in own]
    for kind in shared.values():
        for name, annotation in get_type_hints(kind, include_extras=True).items():
            parameters.append(inspect.Parameter(name, keyword, default=getattr(kind, name), annotation=annotation))

    @functools.wraps(function)
    def run(**given: Any) -> None:
        for each in parameters:
            _check_finite(each, given[each.name])
        for name, kind in shared.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _check_finite(parameter: inspect.Parameter, given: Any) -> None:
    """Raises InvalidField for NaN and infinity: no quantity has such a value, JSON cannot represent them, and NaN slips
    through bounds checks, since every comparison with it is false."""
    values = given if isinstance(given, list) else [given]
    if any(isinstance(value, float) and not isfinite(value) for value in values):
        raise InvalidField("must be a finite number", field=_displayed_name(parameter))


def _displayed_name(parameter: inspect.Parameter) -> str:
    """The parameter's name as help shows it: --for, or NAME."""
    declared = next((each for each in get_args(parameter.annotation) if isinstance(each, ParameterInfo)), None)
    if isinstance(declared, ArgumentInfo):
        return parameter.name.upper()
    # In an annotation, Typer stores an option's first name in `default`.
    names = () if declared is None else (declared.default, *(declared.param_decls or ()))
    written = next((name for name in names if isinstance(name, str) and name.startswith("--")), "")
    return written or f"--{parameter.name.replace('_', '-')}"
