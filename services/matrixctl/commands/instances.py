"""instance, operation: what instances are asked beyond apply and delete, and the long work that carries it out."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixcommon.api.client import at
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OfProject
from services.matrixctl.output.screen import say

group("instance", "Instances beyond apply and delete. `get instances` shows all.")
group("operation", "Long work on instances. `get operations` shows all, `describe operation NAME` its steps.")

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


@command("operation cancel")
def operation_cancel(stack: OfProject, name: Name) -> None:
    """Undo what it did so far, and leave the instance as it was; refused once it is past the step that commits it."""
    view = stack.client.call("compute", "POST", at("operations", name, ":cancel"))
    say(f"{name} is {view['state']}: {view['message']}")


@command("operation resume")
def operation_resume(stack: OfProject, name: Name) -> None:
    """Have one that is stuck tried again. `describe operation NAME` shows its steps and what each said last."""
    view = stack.client.call("compute", "POST", at("operations", name, ":resume"))
    say(f"{name} is {view['state']} at {view['step']}")


@command("operation abandon")
def operation_abandon(
    stack: OfProject, name: Name, reason: Annotated[str, typer.Option("--reason", help="Why; kept with it.")]
) -> None:
    """Give one up where it stands, without undoing what it did; for one that will never succeed, nor be undone.

    `operation cancel` undoes, and is the better way where it is not refused. What is not so afterwards, the instance's
    conditions say; `instance retry`, another shape or its deletion puts it right.
    """
    view = stack.client.call("compute", "POST", at("operations", name, ":abandon"), body={"reason": reason})
    say(f"{name} is {view['state']}: {view['message']}")


@command("instance retry")
def instance_retry(stack: OfProject, name: Name) -> None:
    """Try now what was refused, instead of when its time comes; also one that has Failed."""
    view = stack.client.call("compute", "POST", at("instances", name, ":retry"))
    say(f"{name} is {view['state']}")
