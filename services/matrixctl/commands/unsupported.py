"""Commands of the contract that are not there yet: refused with a sentence, never half done."""

from __future__ import annotations

import sys

import typer

from services.matrixctl.commands.command import command
from services.matrixctl.output.screen import EXIT_USAGE

NOT_YET = {
    "snapshot": "keep a copy of a whole stack's state",
    "restore": "go back to a snapshot",
}


def _refusing(name: str, purpose: str) -> None:
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    @command(name, help=f"Not yet: {purpose}.", context_settings=settings, hidden=True)
    def refuse(context: typer.Context) -> None:
        print(f"NotYetSupported: `matrixctl {name}` will {purpose}; it is not in this version", file=sys.stderr)
        raise typer.Exit(EXIT_USAGE)


for _name, _purpose in NOT_YET.items():
    _refusing(_name, _purpose)
