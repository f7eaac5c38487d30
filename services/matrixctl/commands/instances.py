"""instance: what instances are asked beyond apply and delete."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixcommon.api.client import at
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OfProject
from services.matrixctl.output.screen import say

group("instance", "Instances beyond apply and delete. `get instances` shows all.")

Name = Annotated[str, typer.Argument(help="Which one.")]
LeaseS = Annotated[float, typer.Option("--lease", help="Emulated seconds from now.")]


@command("instance renew")
def instance_renew(stack: OfProject, name: Name, lease_s: LeaseS) -> None:
    """Let its lease start again; without it the instance is deleted when that ends."""
    view = stack.client.call("compute", "POST", at("instances", name, ":renew"), body={"leaseS": lease_s})
    say(f"{name} is held until {view['expiresAt']}")


@command("instance stop")
def instance_stop(stack: OfProject, name: Name) -> None:
    """Switch its nodes off and keep them, with what links promise it; `instance start` has them back within a boot.

    Of an instance that a CloudMatrixInstance describes, the resource says whether it is on:
    `kubectl patch cmi NAME --type merge -p '{"spec": {"power": "Off"}}'`.
    """
    _instance_verb(stack, name, "stop")


@command("instance start")
def instance_start(stack: OfProject, name: Name) -> None:
    """Switch the nodes of a stopped instance on again; what broke meanwhile is replaced."""
    _instance_verb(stack, name, "start")


@command("instance restart")
def instance_restart(stack: OfProject, name: Name) -> None:
    """Switch its nodes off and on again. Only for one that is Active."""
    _instance_verb(stack, name, "restart")


def _instance_verb(stack: OfProject, name: str, verb: str) -> None:
    view = stack.client.call("compute", "POST", at("instances", name, f":{verb}"))
    follow = f"; `matrixctl get operations {view['operation']} --watch` follows it" if view.get("operation") else ""
    say(f"{name} is {view['state']}{follow}")


@command("instance retry")
def instance_retry(stack: OfProject, name: Name) -> None:
    """Try now what was refused, instead of when its time comes; also one that has Failed."""
    view = stack.client.call("compute", "POST", at("instances", name, ":retry"))
    say(f"{name} is {view['state']}")
