"""quota, reserve, allocation: what a project may hold, what is kept for later, and how long it is held."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixcommon.api.client import at
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import timestamp
from services.matrixctl.commands.capacity.allocation_options import AllocationOptions
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import of
from services.matrixctl.commands.options import Lease, OfProject, OnStack, instant_s, lasting_s
from services.matrixctl.output.screen import say, say_deleted

group("quota", "How much a project may hold at once. `get quotas` shows all.")
group("reservation", "What is kept for later. `get reservations` shows all.")
group("allocation", "What is held, whoever asked for it. `get allocations` shows all.")

Whose = Annotated[
    str, typer.Argument(help="Whose it is; `default` unless a project was named.", autocompletion=of("quotas"))
]
Allocation = Annotated[str, typer.Argument(help="Which one.", autocompletion=of("allocations"))]
Reservation = Annotated[str, typer.Argument(help="Which one.", autocompletion=of("reservations"))]


@command("quota set")
def quota_set(
    stack: OnStack,
    project: Whose,
    npus: Annotated[float | None, typer.Option(help="NPUs at most, spares among them.")] = None,
    cpus: Annotated[int | None, typer.Option(help="CPU sockets at most.")] = None,
    memory_gib: Annotated[int | None, typer.Option(help="GiB of memory at most.")] = None,
) -> None:
    """Limit a project; what is not given has no limit. What it holds already it keeps."""
    given = (("npus", npus), ("cpus", cpus), ("memoryGib", memory_gib))
    limits = {key: value for key, value in given if value is not None}
    if not limits:
        raise InvalidField("give a limit, or `quota delete` the quota", field="--npus, --cpus, --memory-gib")
    view = stack.client.call("resource", "PUT", at("quotas", project), body=limits)
    text = ", ".join(f"{view[key]:g} {key} ({view['used' + key[0].upper() + key[1:]]:g} held)" for key in limits)
    say(f"{project} may hold {text}")


@command("quota delete")
def quota_delete(stack: OnStack, project: Whose) -> None:
    """Let a project hold what there is."""
    stack.client.call("resource", "DELETE", at("quotas", project))
    say(f"{project} has no limit")


@command("reserve")
def reserve(
    stack: OfProject,
    wanted: AllocationOptions,
    name: Reservation,
    starts_at: Annotated[
        str, typer.Option("--at", help="When, in emulated time: 2026-01-31T08:00:00Z, 14:00 (the next one) or +2h.")
    ],
    lasts: Annotated[str, typer.Option("--for", help="For how long, emulated: 90s, 20m, 4h, 2d; a number is seconds.")],
) -> None:
    """Have room kept for later: from --at on it is held, and allocations may take from it by its name."""
    duration = lasting_s(lasts)
    start = instant_s(starts_at, stack.emulated_now_s, "--at")
    body = wanted.request(startsAt=timestamp(start), durationS=duration)
    view = stack.client.call("resource", "PUT", at("reservations", name), body=body)
    say(f"{name} is {view['state']} from {view['startsAt']} to {view['endsAt']} on {len(view['nodes'])} nodes")


@command("reservation delete")
def reservation_delete(stack: OfProject, name: Reservation) -> None:
    """Keep nothing for it any more."""
    stack.client.call("resource", "DELETE", at("reservations", name))
    say(f"nothing is kept for {name}")


@command("allocation renew")
def allocation_renew(stack: OfProject, name: Allocation, lease: Lease) -> None:
    """Let its lease start again."""
    body = {"leaseS": lasting_s(lease, "--lease")}
    view = stack.client.call("resource", "POST", at("allocations", name, ":renew"), body=body)
    say(f"{name} is held until {view['expiresAt']}")


@command("allocation replace")
def allocation_replace(
    stack: OfProject,
    name: Allocation,
    node: Annotated[str, typer.Argument(help="The member or spare to give up.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the allocation.")] = "Requested",
) -> None:
    """Let a spare, else a free node, take a member's place; the others stay where they are."""
    body = {"node": node, "reason": reason}
    view = stack.client.call("resource", "POST", at("allocations", name, ":replace"), body=body)
    say(f"{name} is {view['state']} on {', '.join(member['node'] for member in view['members'])}")


@command("allocation release")
def allocation_release(stack: OfProject, name: Allocation) -> None:
    """Give it back. One that an instance owns is taken again: delete the instance instead."""
    view = stack.client.call("resource", "DELETE", at("allocations", name))
    say_deleted(name, view)
