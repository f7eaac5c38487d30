"""quota, reserve, allocation: limits of projects, reservations for later, and leases of allocations."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import timestamp
from services.matrixctl.commands.capacity.allocation_options import AllocationOptions
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Lease, ProjectOptions, StackOptions, parse_instant_s, parse_seconds
from services.matrixctl.output.screen import echo, echo_deleted

group("quota", "Limit how much a project may hold at once. `get quotas` lists all.")
group("reservation", "Reservations for later. `get reservations` lists all.")
group("allocation", "Allocations, whoever requested them. `get allocations` lists all.")

Whose = Annotated[
    str,
    typer.Argument(
        help="The project; `default` is the one used when none is given.", autocompletion=names_of("quotas")
    ),
]
Allocation = Annotated[str, typer.Argument(help="Name of the allocation.", autocompletion=names_of("allocations"))]
Reservation = Annotated[str, typer.Argument(help="Name of the reservation.", autocompletion=names_of("reservations"))]


@command("quota set")
def quota_set(
    stack: StackOptions,
    project: Whose,
    npus: Annotated[float | None, typer.Option(help="Maximum NPUs, including spares.")] = None,
    cpus: Annotated[int | None, typer.Option(help="Maximum CPU sockets.")] = None,
    memory_gib: Annotated[int | None, typer.Option(help="Maximum memory in GiB.")] = None,
) -> None:
    """Set a project's quota; what is not given is unlimited. The project keeps what it already holds."""
    given = (("npus", npus), ("cpus", cpus), ("memoryGib", memory_gib))
    limits = {key: value for key, value in given if value is not None}
    if not limits:
        raise InvalidField(
            "give a limit, or remove the quota with `quota delete`", field="--npus, --cpus, --memory-gib"
        )
    view = stack.client.call("resource", "PUT", resource_path("quotas", project), body=limits)
    text = ", ".join(f"{view[key]:g} {key} ({view['used' + key[0].upper() + key[1:]]:g} held)" for key in limits)
    echo(f"{project} may hold {text}")


@command("quota delete")
def quota_delete(stack: StackOptions, project: Whose) -> None:
    """Remove a project's quota."""
    stack.client.call("resource", "DELETE", resource_path("quotas", project))
    echo(f"{project} has no limit")


@command("reserve")
def reserve(
    stack: ProjectOptions,
    wanted: AllocationOptions,
    name: Reservation,
    starts_at: Annotated[
        str,
        typer.Option("--at", help="Start, in emulated time: 2026-01-31T08:00:00Z, 14:00 (its next occurrence) or +2h."),
    ],
    lasts: Annotated[
        str, typer.Option("--for", help="Duration, emulated: 90s, 20m, 4h, 2d; a plain number is seconds.")
    ],
) -> None:
    """Reserve room for later: it is held from --at on, and allocations can draw on it by its name."""
    duration = parse_seconds(lasts)
    start = parse_instant_s(starts_at, stack.emulated_now_s, "--at")
    body = wanted.request(startsAt=timestamp(start), durationS=duration)
    view = stack.client.call("resource", "PUT", resource_path("reservations", name), body=body)
    echo(f"{name} is {view['state']} from {view['startsAt']} to {view['endsAt']} on {len(view['nodes'])} nodes")


@command("reservation delete")
def reservation_delete(stack: ProjectOptions, name: Reservation) -> None:
    """Delete a reservation."""
    stack.client.call("resource", "DELETE", resource_path("reservations", name))
    echo(f"reservation {name} is deleted")


@command("allocation renew")
def allocation_renew(stack: ProjectOptions, name: Allocation, lease: Lease) -> None:
    """Restart an allocation's lease."""
    body = {"leaseS": parse_seconds(lease, "--lease")}
    view = stack.client.call("resource", "POST", resource_path("allocations", name, ":renew"), body=body)
    echo(f"{name} is held until {view['expiresAt']}")


@command("allocation replace")
def allocation_replace(
    stack: ProjectOptions,
    name: Allocation,
    node: Annotated[str, typer.Argument(help="The member or spare to replace.")],
    reason: Annotated[str, typer.Option(help="Reason; kept with the allocation.")] = "Requested",
) -> None:
    """Replace a member by a spare, or else by a free node; the other members stay."""
    body = {"node": node, "reason": reason}
    view = stack.client.call("resource", "POST", resource_path("allocations", name, ":replace"), body=body)
    echo(f"{name} is {view['state']} on {', '.join(member['node'] for member in view['members'])}")


@command("allocation release")
def allocation_release(stack: ProjectOptions, name: Allocation) -> None:
    """Release an allocation. One owned by an instance is allocated again: delete the instance instead."""
    view = stack.client.call("resource", "DELETE", resource_path("allocations", name))
    echo_deleted(name, view)
