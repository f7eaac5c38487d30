"""peering: slices of a plane that reach each other, with both projects' consent."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import at
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import of
from services.matrixctl.commands.options import OfProject
from services.matrixctl.output.screen import say, say_deleted

group("peering", "Have two slices of a plane reach each other. `get peerings` shows all.")

Peering = Annotated[
    str, typer.Argument(help="NAME, or PROJECT/NAME of who asks for it.", autocompletion=of("peerings"))
]
Slice = Annotated[str, typer.Argument(help="NAME, or PROJECT/NAME of another project's.", autocompletion=of("slices"))]


@command("peering create")
def create(stack: OfProject, name: Peering, one: Slice, other: Slice) -> None:
    """Ask for a peering of two slices of one plane. Another project's slice takes its consent: `peering accept`. Rules
    on VPC are set by `put peering`."""
    body = {"project": stack.project or DEFAULT_PROJECT, "slices": [one, other]}
    _tell(stack.client.call("link", "PUT", at("peerings", name), body=body))


@command("peering accept")
def accept(stack: OfProject, name: Peering) -> None:
    """Consent to a peering in the name of --project, whose slice the other one wants to reach."""
    body = {"project": stack.project or DEFAULT_PROJECT}
    _tell(stack.client.call("link", "POST", at("peerings", name, ":accept"), body=body))


@command("peering delete")
def delete(stack: OfProject, name: Peering) -> None:
    """Have both sides forget each other."""
    view = stack.client.call("link", "DELETE", at("peerings", name))
    say_deleted(name, view)


def _tell(view: dict[str, Any]) -> None:
    say(f"{view['name']} is {view['state']}" + (f": {view['message']}" if view.get("message") else ""))
