"""instance, operation: verbs on instances beyond apply and delete; operations of all services, and draining them."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from services.matrixctl.clients.collections import find_service, serving_services
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Lease, ProjectOptions, StackOptions, parse_seconds
from services.matrixctl.output.resource_kinds import find_kind
from services.matrixctl.output.screen import echo

group("instance", "Verbs on instances beyond apply and delete. `get instances` lists all.")
group(
    "operation",
    "Long-running operations: on instances, drains of the fabric, defragmentations and their moves. `get operations` "
    "lists all, `describe operation NAME` shows the steps of one.",
)

Instance = Annotated[str, typer.Argument(help="Name of the instance.", autocompletion=names_of("instances"))]
Operation = Annotated[str, typer.Argument(help="Name of the operation.", autocompletion=names_of("operations"))]
Service = Annotated[str | None, typer.Option("--service", help="Only of this service: compute, link or resource.")]
DrainName = Annotated[str, typer.Argument(help="The drain's name.", autocompletion=names_of("workflow-drains"))]
POWERS = {"stop": "Off", "start": "On"}
"""The `power` that a CloudMatrixInstance has to set for each verb."""


@command("instance renew")
def instance_renew(stack: ProjectOptions, name: Instance, lease: Lease) -> None:
    """Restart an instance's lease; the instance is deleted when the lease expires."""
    body = {"leaseS": parse_seconds(lease, "--lease")}
    view = stack.client.call("compute", "POST", resource_path("instances", name, ":renew"), body=body)
    echo(f"{name} is held until {view['expiresAt']}")


@command("instance stop")
def instance_stop(stack: ProjectOptions, name: Instance) -> None:
    """Power an instance's nodes off, keeping them and their guaranteed bandwidth; `instance start` boots them again.

    If a CloudMatrixInstance owns the instance, set its power there instead:
    `kubectl patch cmi NAME --type merge -p '{"spec": {"power": "Off"}}'`.
    """
    _instance_verb(stack, name, "stop")


@command("instance start")
def instance_start(stack: ProjectOptions, name: Instance) -> None:
    """Power the nodes of a stopped instance on; nodes that broke meanwhile are replaced."""
    _instance_verb(stack, name, "start")


@command("instance restart")
def instance_restart(stack: ProjectOptions, name: Instance) -> None:
    """Power-cycle the nodes of an instance, which must be Active."""
    _instance_verb(stack, name, "restart")


def _instance_verb(stack: ProjectOptions, name: str, verb: str) -> None:
    view = stack.client.call("compute", "POST", resource_path("instances", name, f":{verb}"))
    echo(f"{name} is {view['state']}{_describe_progress(view)}")
    if verb in POWERS:
        patch = f" --type merge -p '{json.dumps({'spec': {'power': POWERS[verb]}})}'"
        warn_of_owner(view, "controls its power; change that instead", "patch", patch)


def _describe_progress(view: dict[str, Any]) -> str:
    """What an instance does now, to follow its state: the operation under way, what a change waits for, or what the
    state means where nothing happens by itself. An operation that has ended is not shown."""
    from matrixcompute.model.states import INSTANCE_STATES

    state = INSTANCE_STATES.states.get(view["state"])
    if state is None or state.deadline_s is not None:
        operation = view.get("operation")
        return f"; follow it with `matrixctl get operations {operation} --watch`" if operation else ""
    if state.name in ("Pending", "Suspended", "Failed"):
        return f": {state.sentence}"
    if view.get("generation") != view.get("observedGeneration"):
        reasons = [each["message"] for each in view.get("conditions", ()) if each["type"] == "Progressing"]
        return f"; its change waits: {reasons[0]}" if reasons else "; its change waits"
    return ""


def warn_of_owner(view: dict[str, Any], what: str, verb: str, more: str = "") -> None:
    """If a CloudMatrixInstance owns the instance, warn what it will do, with the kubectl command to use instead."""
    from matrixcontainer.operator.decision import SOURCE_LABEL

    if namespace := (view.get("labels") or {}).get(SOURCE_LABEL):
        command = f"kubectl {verb} cloudmatrixinstance {view['name']} --namespace {namespace}{more}"
        print(f"its CloudMatrixInstance {what}: {command}", file=sys.stderr)


@command("instance retry")
def instance_retry(stack: ProjectOptions, name: Instance) -> None:
    """Retry now what was refused, without waiting for the next automatic attempt; also for a Failed instance."""
    view = stack.client.call("compute", "POST", resource_path("instances", name, ":retry"))
    echo(f"{name} is {view['state']}")


@command("operation cancel")
def operation_cancel(stack: ProjectOptions, name: Operation) -> None:
    """Cancel an operation and undo what it has done; refused once it is past its commit step."""
    view = _post_verb(stack, name, "cancel")
    echo(f"{name} is {view['state']}: {view['message']}")


@command("operation resume")
def operation_resume(stack: ProjectOptions, name: Operation) -> None:
    """Resume a stuck operation. `describe operation NAME` shows its steps and the last message of each."""
    view = _post_verb(stack, name, "resume")
    echo(f"{name} is {view['state']} at {view['step']}")


@command("operation abandon")
def operation_abandon(
    stack: ProjectOptions,
    name: Operation,
    reason: Annotated[str, typer.Option("--reason", help="Reason; kept with the operation.")],
) -> None:
    """Abandon an operation where it stands, without undoing anything; for one that can neither succeed nor be undone.

    Prefer `operation cancel`, which undoes, unless it is refused. The instance's conditions show what is wrong
    afterwards; `instance retry`, another shape, or deletion fixes it.
    """
    view = _post_verb(stack, name, "abandon", {"reason": reason})
    echo(f"{name} is {view['state']}: {view['message']}")


def _post_verb(stack: ProjectOptions, name: str, verb: str, body: Any = None) -> dict[str, Any]:
    service = find_service(stack.client, find_kind("operations"), name)
    return stack.client.call(service, "POST", resource_path("operations", name, f":{verb}"), body=body)


@command("operation drain")
def operation_drain(
    stack: StackOptions,
    name: DrainName,
    service: Service = None,
    reason: Annotated[str, typer.Option(help="Reason; shown with the drain.")] = "",
    grace_s: Annotated[
        float, typer.Option("--grace", min=0, help="Emulated seconds until running operations stop at a safe point.")
    ] = 600.0,
) -> None:
    """Drain operations before an upgrade: none starts, running ones finish or stop at a safe point.

    `get workflow-drains` shows how many are left; once all are Drained, nothing changes any more. New requests are
    accepted meanwhile and start after `operation undrain`.
    """
    for each in _services(stack, service):
        body = {"reason": reason, "graceSeconds": grace_s}
        view = stack.client.call(each, "PUT", resource_path("workflow-drains", name), body=body)
        echo(f"{each}: {name} is {view['state']}")


@command("operation undrain")
def operation_undrain(stack: StackOptions, name: DrainName, service: Service = None) -> None:
    """End a drain: stopped operations continue where they were, and waiting ones start."""
    for each in _services(stack, service):
        stack.client.call(each, "DELETE", resource_path("workflow-drains", name))
        echo(f"{each}: {name} is gone")


def _services(stack: StackOptions, service: str | None) -> list[str]:
    serving = serving_services(stack.client, find_kind("workflow-drains"))
    if service is not None and service not in serving:
        raise InvalidField(f"{service} has no operations; give one of {', '.join(serving)}", field="--service")
    return serving if service is None else [service]
