"""peering: let two slices of a plane reach each other, with the consent of both projects."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.resource_key import DEFAULT_PROJECT
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import ProjectOptions
from services.matrixctl.output.screen import echo, echo_deleted

group("peering", "Let two slices of a plane reach each other. `get peerings` lists all.")

Peering = Annotated[
    str, typer.Argument(help="NAME, or PROJECT/NAME of the requesting project.", autocompletion=names_of("peerings"))
]
Slice = Annotated[
    str, typer.Argument(help="NAME, or PROJECT/NAME of another project's.", autocompletion=names_of("slices"))
]


@command("peering create")
def create(stack: ProjectOptions, name: Peering, one: Slice, other: Slice) -> None:
    """Request a peering of two slices of one plane. If one belongs to another project, that project has to consent with
    `peering accept`. Set VPC rules with `put peering`. A peering ends with either slice, also if its instance is
    suspended, and then has to be requested again."""
    body = {"project": stack.project or DEFAULT_PROJECT, "slices": [one, other]}
    _tell(stack.client.call("link", "PUT", resource_path("peerings", name), body=body))


@command("peering accept")
def accept(stack: ProjectOptions, name: Peering) -> None:
    """Consent to a peering on behalf of --project, whose slice the other project wants to reach."""
    body = {"project": stack.project or DEFAULT_PROJECT}
    _tell(stack.client.call("link", "POST", resource_path("peerings", name, ":accept"), body=body))


@command("peering delete")
def delete(stack: ProjectOptions, name: Peering) -> None:
    """Delete a peering for both sides."""
    view = stack.client.call("link", "DELETE", resource_path("peerings", name))
    echo_deleted(name, view)


def _tell(view: dict[str, Any]) -> None:
    echo(f"{view['name']} is {view['state']}" + (f": {view['message']}" if view.get("message") else ""))
