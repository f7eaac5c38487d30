"""instance, operation: what instances are asked beyond apply and delete; long work of all services, and its drains."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from matrixcommon.api.client import at
from services.matrixctl.clients.collections import owner, served
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import of
from services.matrixctl.commands.options import Lease, OfProject, OnStack, lasting_s
from services.matrixctl.output.resource_kinds import noun_of
from services.matrixctl.output.screen import say

group("instance", "Instances beyond apply and delete. `get instances` shows all.")
group(
    "operation",
    "Long work on instances, drains of the fabric, defragmentations and their moves. `get operations` shows all, "
    "`describe operation NAME` its steps.",
)

Instance = Annotated[str, typer.Argument(help="Which one.", autocompletion=of("instances"))]
Operation = Annotated[str, typer.Argument(help="Which one.", autocompletion=of("operations"))]
Service = Annotated[str | None, typer.Option("--service", help="Only of this one: compute, link or resource.")]
DrainName = Annotated[str, typer.Argument(help="What the drain is called.", autocompletion=of("workflow-drains"))]
POWERS = {"stop": "Off", "start": "On"}
"""What a CloudMatrixInstance says of an instance that is asked for that."""


@command("instance renew")
def instance_renew(stack: OfProject, name: Instance, lease: Lease) -> None:
    """Let its lease start again; without it the instance is deleted when that ends."""
    body = {"leaseS": lasting_s(lease, "--lease")}
    view = stack.client.call("compute", "POST", at("instances", name, ":renew"), body=body)
    say(f"{name} is held until {view['expiresAt']}")


@command("instance stop")
def instance_stop(stack: OfProject, name: Instance) -> None:
    """Switch its nodes off and keep them, with what links promise it; `instance start` has them back within a boot.

    Of an instance that a CloudMatrixInstance describes, the resource says whether it is on:
    `kubectl patch cmi NAME --type merge -p '{"spec": {"power": "Off"}}'`.
    """
    _instance_verb(stack, name, "stop")


@command("instance start")
def instance_start(stack: OfProject, name: Instance) -> None:
    """Switch the nodes of a stopped instance on again; what broke meanwhile is replaced."""
    _instance_verb(stack, name, "start")


@command("instance restart")
def instance_restart(stack: OfProject, name: Instance) -> None:
    """Switch its nodes off and on again. Only for one that is Active."""
    _instance_verb(stack, name, "restart")


def _instance_verb(stack: OfProject, name: str, verb: str) -> None:
    view = stack.client.call("compute", "POST", at("instances", name, f":{verb}"))
    follow = f"; `matrixctl get operations {view['operation']} --watch` follows it" if view.get("operation") else ""
    say(f"{name} is {view['state']}{follow}")
    if verb in POWERS:
        patch = f" --type merge -p '{json.dumps({'spec': {'power': POWERS[verb]}})}'"
        warn_of_owner(view, "says whether it is on; change that", "patch", patch)


def warn_of_owner(view: dict[str, Any], what: str, verb: str, more: str = "") -> None:
    """Where an instance is what a CloudMatrixInstance asks for: what that does, and which command of kubectl helps."""
    from matrixcontainer.operator.decision import SOURCE_LABEL

    if namespace := (view.get("labels") or {}).get(SOURCE_LABEL):
        command = f"kubectl {verb} cloudmatrixinstance {view['name']} --namespace {namespace}{more}"
        print(f"its CloudMatrixInstance {what}: {command}", file=sys.stderr)


@command("instance retry")
def instance_retry(stack: OfProject, name: Instance) -> None:
    """Try now what was refused, instead of when its time comes; also one that has Failed."""
    view = stack.client.call("compute", "POST", at("instances", name, ":retry"))
    say(f"{name} is {view['state']}")


@command("operation cancel")
def operation_cancel(stack: OfProject, name: Operation) -> None:
    """Undo what it did so far, and leave everything as it was; refused once it is past the step that commits it."""
    view = _asked(stack, name, "cancel")
    say(f"{name} is {view['state']}: {view['message']}")


@command("operation resume")
def operation_resume(stack: OfProject, name: Operation) -> None:
    """Have one that is stuck tried again. `describe operation NAME` shows its steps and what each said last."""
    view = _asked(stack, name, "resume")
    say(f"{name} is {view['state']} at {view['step']}")


@command("operation abandon")
def operation_abandon(
    stack: OfProject, name: Operation, reason: Annotated[str, typer.Option("--reason", help="Why; kept with it.")]
) -> None:
    """Give one up where it stands, without undoing what it did; for one that will never succeed, nor be undone.

    `operation cancel` undoes, and is the better way where it is not refused. What is not so afterwards, the conditions
    of an instance say; `instance retry`, another shape or its deletion puts it right.
    """
    view = _asked(stack, name, "abandon", {"reason": reason})
    say(f"{name} is {view['state']}: {view['message']}")


def _asked(stack: OfProject, name: str, verb: str, body: Any = None) -> dict[str, Any]:
    service = owner(stack.client, noun_of("operations"), name)
    return stack.client.call(service, "POST", at("operations", name, f":{verb}"), body=body)


@command("operation drain")
def operation_drain(
    stack: OnStack,
    name: DrainName,
    service: Service = None,
    reason: Annotated[str, typer.Option(help="Why; it is shown with the drain.")] = "",
    grace_s: Annotated[
        float, typer.Option("--grace", min=0, help="Emulated seconds until what still runs stops at a safe point.")
    ] = 600.0,
) -> None:
    """Have operations come to rest, before an upgrade: none begins, what is under way ends or stops at a safe point.

    `get workflow-drains` shows how many are left; once all are Drained, nothing changes any more. What is asked for
    meanwhile is accepted and begins after `operation undrain`.
    """
    for each in _services(stack, service):
        body = {"reason": reason, "graceSeconds": grace_s}
        view = stack.client.call(each, "PUT", at("workflow-drains", name), body=body)
        say(f"{each}: {name} is {view['state']}")


@command("operation undrain")
def operation_undrain(stack: OnStack, name: DrainName, service: Service = None) -> None:
    """End a drain: what rests continues where it was, and what waited begins."""
    for each in _services(stack, service):
        stack.client.call(each, "DELETE", at("workflow-drains", name))
        say(f"{each}: {name} is gone")


def _services(stack: OnStack, service: str | None) -> list[str]:
    return [service] if service else served(stack.client, noun_of("workflow-drains"))
