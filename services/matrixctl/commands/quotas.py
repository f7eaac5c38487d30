"""quota, reserve, allocation, instance: what a project may hold, what is kept for later, and how long it is held."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixcommon.api.client import at
from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands import allocation_options
from services.matrixctl.commands.options import DEFAULT_STATE, Project, State, reach
from services.matrixctl.output.screen import say

quota_app = typer.Typer(help="How much a project may hold at once. `get quotas` shows all.", no_args_is_help=True)
reservation_app = typer.Typer(help="What is kept for later. `get reservations` shows all.", no_args_is_help=True)
allocation_app = typer.Typer(
    help="What is held, whoever asked for it. `get allocations` shows all.", no_args_is_help=True
)
instance_app = typer.Typer(help="Instances beyond apply and delete. `get instances` shows all.", no_args_is_help=True)

Whose = Annotated[str, typer.Argument(help="Whose it is; `default` unless a project was named.")]
Name = Annotated[str, typer.Argument(help="Which one.")]
LeaseS = Annotated[float, typer.Option("--lease", help="Emulated seconds from now.")]


@quota_app.command("set")
def quota_set(
    project: Whose,
    npus: Annotated[float | None, typer.Option(help="NPUs at most, spares among them.")] = None,
    cpus: Annotated[int | None, typer.Option(help="CPU sockets at most.")] = None,
    memory_gib: Annotated[int | None, typer.Option(help="GiB of memory at most.")] = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Limit a project; what is not given has no limit. What it holds already it keeps."""
    given = (("npus", npus), ("cpus", cpus), ("memoryGib", memory_gib))
    limits = {key: value for key, value in given if value is not None}
    if not limits:
        raise InvalidField("give a limit, or `quota delete` the quota", field="--npus, --cpus, --memory-gib")
    view = reach(state).call("resource", "PUT", f"/v1/quotas/{project}", body=limits)
    text = ", ".join(f"{view[key]:g} {key} ({view['used' + key[0].upper() + key[1:]]:g} held)" for key in limits)
    say(f"{project} may hold {text}")


@quota_app.command("delete")
def quota_delete(project: Whose, state: State = DEFAULT_STATE) -> None:
    """Let a project hold what there is."""
    reach(state).call("resource", "DELETE", f"/v1/quotas/{project}")
    say(f"{project} has no limit")


def reserve(
    context: typer.Context,
    name: Name,
    starts_at: Annotated[str, typer.Option("--at", help="When, in emulated time: 2026-01-31T08:00:00Z.")],
    duration_s: Annotated[float, typer.Option("--for", help="For how many emulated seconds.")],
    nodes: allocation_options.Nodes = None,
    npus: allocation_options.Npus = None,
    npus_per_node: allocation_options.NpusPerNode = None,
    cpus: allocation_options.Cpus = 0,
    memory_gib: allocation_options.MemoryGib = 0,
    spares: allocation_options.Spares = 0,
    policy: allocation_options.Policy = "pack",
    level: allocation_options.Level = "cabinet",
    required: allocation_options.Required = False,
    max_per_domain: allocation_options.MaxPerDomain = None,
    block: allocation_options.Blocks = None,
    affinity: allocation_options.AffinityOption = None,
    anti_affinity: allocation_options.AntiAffinityOption = None,
    priority: allocation_options.Priority = 0,
    exclude: allocation_options.Exclude = None,
    project: Project = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Have room kept for later: from --at on it is held, and allocations may take from it by its name."""
    body = allocation_options.request(context.params)
    asked = body | {"startsAt": starts_at, "durationS": duration_s}
    view = reach(state, project).call("resource", "PUT", at("reservations", name), body=asked)
    say(f"{name} is {view['state']} from {view['startsAt']} to {view['endsAt']} on {len(view['nodes'])} nodes")


@reservation_app.command("delete")
def reservation_delete(name: Name, project: Project = None, state: State = DEFAULT_STATE) -> None:
    """Keep nothing for it any more."""
    reach(state, project).call("resource", "DELETE", at("reservations", name))
    say(f"nothing is kept for {name}")


@allocation_app.command("renew")
def allocation_renew(name: Name, lease_s: LeaseS, project: Project = None, state: State = DEFAULT_STATE) -> None:
    """Let its lease start again."""
    view = reach(state, project).call("resource", "POST", at("allocations", name, ":renew"), body={"leaseS": lease_s})
    say(f"{name} is held until {view['expiresAt']}")


@allocation_app.command("replace")
def allocation_replace(
    name: Name,
    node: Annotated[str, typer.Argument(help="The member or spare to give up.")],
    reason: Annotated[str, typer.Option(help="Why; it is kept with the allocation.")] = "Requested",
    project: Project = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Let a spare, else a free node, take a member's place; the others stay where they are."""
    body = {"node": node, "reason": reason}
    view = reach(state, project).call("resource", "POST", at("allocations", name, ":replace"), body=body)
    say(f"{name} is {view['state']} on {', '.join(member['node'] for member in view['members'])}")


@allocation_app.command("release")
def allocation_release(name: Name, project: Project = None, state: State = DEFAULT_STATE) -> None:
    """Give it back. One that an instance owns is taken again: delete the instance instead."""
    view = reach(state, project).call("resource", "DELETE", at("allocations", name))
    say(f"{name} is {view['state']}" if view else f"{name} is gone")


@instance_app.command("renew")
def instance_renew(name: Name, lease_s: LeaseS, project: Project = None, state: State = DEFAULT_STATE) -> None:
    """Let its lease start again; without it the instance is deleted when that ends."""
    view = reach(state, project).call("compute", "POST", at("instances", name, ":renew"), body={"leaseS": lease_s})
    say(f"{name} is held until {view['expiresAt']}")


@instance_app.command("retry")
def instance_retry(name: Name, project: Project = None, state: State = DEFAULT_STATE) -> None:
    """Try now what was refused, instead of when its time comes."""
    view = reach(state, project).call("compute", "POST", at("instances", name, ":retry"))
    say(f"{name} is {view['state']}")


def register(app: typer.Typer) -> None:
    app.command()(reserve)
    app.add_typer(quota_app, name="quota")
    app.add_typer(reservation_app, name="reservation")
    app.add_typer(allocation_app, name="allocation")
    app.add_typer(instance_app, name="instance")
