"""matrixctl: one command line over the whole stack.

A refusal is one line on standard error that gives the reason, and an exit code a script can use; a traceback is a bug.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from services.matrixctl.commands import apply, scenario
from services.matrixctl.commands.capacity import defrag, plan, quotas
from services.matrixctl.commands.command import declared_in
from services.matrixctl.commands.experiments import autoscaling, reports, runs, studies, timings
from services.matrixctl.commands.help import explain
from services.matrixctl.commands.machine import drains, hardware, maintenance, peerings, topology
from services.matrixctl.commands.reading import get, top
from services.matrixctl.commands.running import bundle, clock, console, demo, record, snapshot, stack
from services.matrixctl.commands.workloads import caches, instances, traffic
from services.matrixctl.output.screen import EXIT_OUTPUT_CLOSED, EXIT_USAGE, NotAccessible, refuse

EPILOG = """Exit codes: 0 done; 1 refused or failed; 2 wrong use, or a command of a later version; 3 the stack is not
running or does not answer; 130 interrupted; 141 standard output was closed before all was printed."""

MODULES = (
    stack,
    snapshot,
    record,
    console,
    get,
    explain,
    apply,
    hardware,
    topology,
    plan,
    quotas,
    instances,
    maintenance,
    defrag,
    drains,
    peerings,
    caches,
    top,
    traffic,
    scenario,
    runs,
    studies,
    autoscaling,
    reports,
    timings,
    demo,
    clock,
    bundle,
)
"""With commands, in the order in which help shows them."""


def app(word: str = "") -> typer.Typer:
    """matrixctl with all its commands, or with those that begin with this word, where there are any."""
    made = typer.Typer(
        name="matrixctl",
        help="Run an emulated CloudMatrix384 supernode and its control plane, and ask it things.",
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    made.callback()(_options)
    return declared_in(MODULES, made, word)


def _print_version(asked: bool) -> None:
    if asked:
        stack.version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Of matrixctl itself."""


def run(arguments: list[str] | None = None) -> None:
    """The console script: the app, with refusals printed instead of raised."""
    code = _code_of(arguments)
    try:
        sys.stdout.flush()  # here, where what fails can be said; the interpreter would only mutter
    except BrokenPipeError:
        _drop_output()  # all was done, and nobody wants to know
    except OSError as wrong:
        _drop_output()
        code = refuse(_not_accessible(wrong))
    sys.exit(code)


def _code_of(arguments: list[str] | None) -> int:
    """Run it; returns the exit code that its end deserves."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app(*words[:1])(arguments)
    except SystemExit as end:
        # Rich and Typer end so in the middle of what they print; who read it has left, and it may be half done.
        closed = isinstance(end.__context__, BrokenPipeError)
        return EXIT_OUTPUT_CLOSED if closed else end.code if isinstance(end.code, int) else int(end.code is not None)
    except InvalidField as wrong:
        code = refuse(wrong)
        # A flag (--role) or an argument (NOUN) of ours that makes no sense is wrong use; a field of a request is a
        # refusal.
        field = wrong.field or ""
        return EXIT_USAGE if field.startswith("--") or field.partition(",")[0].isupper() else code
    except MatrixError as refused:
        return refuse(refused)
    except KeyboardInterrupt:
        return 130
    except OSError as wrong:
        return refuse(_not_accessible(wrong))
    return 0


def _not_accessible(wrong: OSError) -> NotAccessible:
    return NotAccessible(f"{wrong.filename}: {wrong.strerror}" if wrong.filename else str(wrong))


def _drop_output() -> None:
    """What could not be written is not tried again at the interpreter's end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
