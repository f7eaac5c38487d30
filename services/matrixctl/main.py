"""matrixctl: the command line of the whole stack.

An error is one line on standard error that starts with its reason, and an exit code that scripts can use; a traceback
is a bug.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from services.matrixctl.commands import apply, scenario
from services.matrixctl.commands.capacity import defrag, plan, quotas
from services.matrixctl.commands.command import add_commands
from services.matrixctl.commands.experiments import autoscaling, reports, runs, studies, timings
from services.matrixctl.commands.help import explain
from services.matrixctl.commands.machine import drains, hardware, maintenance, peerings, topology
from services.matrixctl.commands.reading import get, top
from services.matrixctl.commands.running import bundle, clock, console, demo, record, snapshot, stack
from services.matrixctl.commands.workloads import caches, instances, traffic
from services.matrixctl.output.screen import EXIT_OUTPUT_CLOSED, EXIT_USAGE, NotAccessible, print_error

EPILOG = """Exit codes: 0 success; 1 refused or failed; 2 usage error, or a command of a later version; 3 the stack is
not running or does not answer; 130 interrupted; 141 standard output was closed before everything was printed."""

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
"""The modules that declare commands, in the order of help."""


def app(word: str = "") -> typer.Typer:
    """Return matrixctl with all its commands, or, if any command begins with `word`, with only those."""
    made = typer.Typer(
        name="matrixctl",
        help="Run an emulated CloudMatrix384 supernode with its control plane, and query and operate it.",
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    made.callback()(_options)
    return add_commands(MODULES, made, word)


def _print_version(asked: bool) -> None:
    if asked:
        stack.version()
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of matrixctl itself."""


def run(arguments: list[str] | None = None) -> None:
    """Run the command line: the entry point of the console script. Errors are printed, not raised."""
    code = _exit_code(arguments)
    try:
        sys.stdout.flush()  # here, where a failure can be reported; at exit the interpreter only warns
    except BrokenPipeError:
        _drop_output()  # the work is done, and the reader has gone
    except OSError as wrong:
        _drop_output()
        code = print_error(_not_accessible(wrong))
    sys.exit(code)


def _exit_code(arguments: list[str] | None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        app(*words[:1])(arguments)
    except SystemExit as end:
        # Rich and Typer exit like this when the reader closes the pipe; the command may be half done.
        closed = isinstance(end.__context__, BrokenPipeError)
        return EXIT_OUTPUT_CLOSED if closed else end.code if isinstance(end.code, int) else int(end.code is not None)
    except InvalidField as wrong:
        code = print_error(wrong)
        # An invalid option (--role) or argument (NOUN) is a usage error; an invalid field of a request is a refusal.
        field = wrong.field or ""
        return EXIT_USAGE if field.startswith("--") or field.partition(",")[0].isupper() else code
    except MatrixError as refused:
        return print_error(refused)
    except KeyboardInterrupt:
        return 130
    except OSError as wrong:
        return print_error(_not_accessible(wrong))
    return 0


def _not_accessible(wrong: OSError) -> NotAccessible:
    return NotAccessible(f"{wrong.filename}: {wrong.strerror}" if wrong.filename else str(wrong))


def _drop_output() -> None:
    """Redirect standard output to the null device, so that the interpreter does not flush it again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
