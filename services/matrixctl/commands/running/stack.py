"""up, down, status, kubeconfig, token: the stack as a whole."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import Conflict, InvalidField, MatrixError
from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.quantities import TIMESTAMP_MAX_S, timestamp
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import DEFAULT_STATE, Output, StackOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_UNREACHABLE, NotRunning, OutputFormat, echo, format_size
from services.matrixctl.supervisor.state_folder import LOOPBACK, Unreadable
from services.matrixctl.supervisor.up import (
    choose_processes,
    show_progress,
    stack_report,
    start_supervisor,
    stop_stack,
    supervisor_command,
    supervisor_environment,
)

PROCESS_COLUMNS = "name, pid, state, url, restarts, memory (pss):memory.pss, rss:memory.rss"
PROCESS_COLUMNS_WIDE = ", waiting for:waitingFor, last exit:lastExit, log"

group("token", "Bearer tokens of this stack.")


@command("up")
def up(
    stack: StackOptions,
    time_scale: Annotated[
        float | None,
        typer.Option(help="Emulated seconds per second (default: as this state folder last ran; 1 for a new one)."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Start only these processes: a,b,...")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default: as before).")] = None,
    database: Annotated[
        str,
        typer.Option(
            help="URL that contains {service}, e.g. postgresql://me@host/cm_{service} (default: as this state folder "
            "last ran; SQLite files in a new one)."
        ),
    ] = "",
    topology: Annotated[
        str,
        typer.Option(
            help="Supernodes of a new state folder: a machine by name (`matrixctl topology list`), a machine file "
            "(YAML), or a drawn supernode (node-link JSON, GraphML)."
        ),
    ] = "",
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on (default: 127.0.0.1). 0.0.0.0 is for containers: anybody with a token has "
            "access."
        ),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground and log to the terminal.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait until everything is ready (default: 120; with more than 240 nodes, half a second per "
            "node)."
        ),
    ] = None,
) -> None:
    """Start the stack and keep it running; processes that die are restarted.

    If the stack already runs, its status is shown. If its supervisor was killed, a new one adopts the processes.
    """
    from services.matrixctl.supervisor.machine_check import check_topology, ready_timeout_wall_s
    from services.matrixctl.supervisor.stack_request import StackRequest

    if time_scale is not None and not 0 < time_scale <= 100_000:
        raise InvalidField("must be over 0 and at most 100000", field="--time-scale")
    if host is not None:
        _check_host(host)
    if database:
        _check_database(database)
    folder = stack.folder
    machine = check_topology(topology, folder)
    processes = choose_processes(only)
    request = StackRequest(processes, time_scale, seed, database, topology=machine, host=host or LOOPBACK).to_json()
    if folder.supervisor() is not None:
        echo(f"already running in {folder.path}; `matrixctl down` stops it")
        _refuse_other_settings(folder, time_scale, only, {"seed": seed, "database": database or None, "host": host})
        show_status(folder, OutputFormat.TABLE)
        return
    if foreground:
        folder.prepare()
        command = supervisor_command(folder)
        os.execve(command[0], command, supervisor_environment(request))
    supervisor = start_supervisor(folder, request)
    show_progress(folder, supervisor, ready_timeout_wall_s(folder, machine) if wait is None else wait)
    show_where(folder)


def _check_database(url: str) -> None:
    """Raises InvalidField for a URL that cannot name a database for each service."""
    from services.chassis.database_url import check_database_url

    if "{service}" not in url:
        raise InvalidField("each service needs its own database: put {service} into the URL", field="--database")
    try:
        check_database_url(url)
    except ValueError as wrong:
        raise InvalidField(str(wrong), field="--database") from wrong


def _check_host(host: str) -> None:
    """Raises InvalidField unless it is an IPv4 address, which the processes use to reach each other."""
    from ipaddress import AddressValueError, IPv4Address

    try:
        IPv4Address(host)
    except AddressValueError as wrong:
        raise InvalidField(f"{host!r} is not an address such as 127.0.0.1 or 0.0.0.0", field="--host") from wrong


def _refuse_other_settings(
    folder: Any, time_scale: float | None, only: str | None, settings: dict[str, object]
) -> None:
    """Raises Conflict if the running stack has other settings than requested. In `settings`, None means unspecified."""
    stack = folder.read()
    if stack is None:
        return
    if time_scale is not None and time_scale != stack.time.scale:
        raise Conflict(
            f"it runs at --time-scale {stack.time.scale:g}; change that with `matrixctl clock speed {time_scale:g}`",
            field="--time-scale",
        )
    if only is not None and {process.name for process in choose_processes(only)} - set(stack.children):
        raise Conflict(f"it runs only {', '.join(stack.children)}; stop it with `matrixctl down` first", field="--only")
    for name, asked in settings.items():
        if asked not in (None, getattr(stack, name)):
            raise Conflict(f"it runs with another {name}; stop it with `matrixctl down` first", field=f"--{name}")


def show_where(folder: Any) -> None:
    """Print what a user needs next."""
    stack = folder.read()
    echo(f"\nUp at time scale {stack.time.scale:g}. State folder: {folder.path}.")
    flag = "" if folder.path == DEFAULT_STATE.expanduser().absolute() else f" --state {folder.path}"
    if "kube" in stack.children:
        echo(f"  export KUBECONFIG={folder.kubeconfig}     then: kubectl get nodes")
    if "console" in stack.children:
        echo(f"  matrixctl console{flag}")
    echo(f"  matrixctl get nodes{flag}")
    echo(
        f"Services and matrixctl show emulated time, now {timestamp(stack.time.emulated(time.time()))}; "
        "kubectl shows wall time."
    )
    echo(f"  matrixctl down{flag}")


@command("down")
def down(stack: StackOptions) -> None:
    """Stop all processes of the stack. Its data stays in the state folder."""
    folder = stack.folder
    with suppress(Unreadable):
        current = folder.read()
        if current is not None and current.contained:
            raise NotRunning(f"the stack in {folder.path} runs in containers; stop them with `docker compose down`")
    ended = stop_stack(folder)
    echo(f"stopped {', '.join(ended)}" if ended else f"nothing runs in {folder.path}")


@command("status")
def status(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """Show each process with pid, address, readiness, restarts and memory.

    Exit code 0 if all are ready, 1 if any is not, 3 if nothing runs.
    """
    raise typer.Exit(show_status(stack.folder, output))


def show_status(folder: Any, form: OutputFormat) -> int:
    report = stack_report(folder)
    current = report.document()
    if print_for_programs(current, form):
        pass
    elif report.stack is not None and report.stack.contained:
        raise NotRunning(f"the stack in {folder.path} runs in containers; see them with `docker compose ps`")
    elif not report.running:
        raise NotRunning(f"no stack runs in {folder.path}; start one with `matrixctl up --state {folder.path}`")
    elif report.stack is None:
        echo("the supervisor is still starting; try again")
    else:
        state = {"name": "supervisor", "state": "Ready" if report.supervisor else "Stopped", "restarts": 0}
        rows = [*current["processes"], current["supervisor"] | state]
        print_table(
            PROCESS_COLUMNS + (PROCESS_COLUMNS_WIDE if form is OutputFormat.WIDE else ""),
            [row | {"memory": {kind: format_size(size) for kind, size in row["memory"].items()}} for row in rows],
        )
        echo(
            f"\ntime scale {current['timeScale']:g}, emulated time {current['emulatedTime']}, "
            f"memory {format_size(current['memory']['pss'])} counting shared pages once "
            f"({format_size(current['memory']['rss'])} counting them in every process)"
        )
        if report.supervisor is None:
            echo(
                f"[red]the supervisor is not running[/]; `matrixctl up --state {folder.path}` starts one that adopts "
                "the processes, `matrixctl down` stops them"
            )
    return EXIT_UNREACHABLE if not report.running else 0 if report.ready else EXIT_REFUSED


@command("kubeconfig")
def kubeconfig(stack: StackOptions) -> None:
    """Print the path of the kubeconfig: export KUBECONFIG=$(matrixctl kubeconfig)."""
    folder = stack.folder
    if not folder.kubeconfig.exists():
        raise NotRunning(f"{folder.kubeconfig} does not exist; the `kube` process writes it (`matrixctl up`)")
    print(folder.kubeconfig)


@command("token create")
def token_create(
    stack: StackOptions,
    name: Annotated[str, typer.Argument(help="Name of the token's owner.")],
    role: Annotated[str, typer.Option(help="viewer, editor, admin, agent, or user (of the model endpoint)")] = "viewer",
    project: Annotated[str, typer.Option(help="Project of the token; * for all projects.")] = "default",
    node: Annotated[str, typer.Option(help="For role agent: its node, or a pattern such as 'sn0-c03-*'.")] = "",
    expires: Annotated[str, typer.Option(help="Lifetime, such as 12h or 30d (default: unlimited).")] = "",
) -> None:
    """Create a bearer token and print it. It is shown only once; services and the model endpoint accept it immediately.

    The Kubernetes API has its own accounts: `matrixctl kubeconfig` has an administrator's credentials, and
    `kubectl create token ACCOUNT` creates a service account's token.
    """
    from services.chassis.access import EVERY_PROJECT, ROLES, create_token

    if role not in ROLES:
        raise InvalidField(f"there is no role {role!r}; use one of {', '.join(ROLES)}", field="--role")
    for field, text in (("NAME", name), ("--project", project)):
        if not RESOURCE_NAME.fullmatch(text) and (field, text) != ("--project", EVERY_PROJECT):
            raise InvalidField(
                f"{text!r} is not a valid name: use lower-case letters, digits and dashes, at most 63", field=field
            )
    if (role == "agent") != bool(node):
        raise InvalidField("--node is required for role agent, and not allowed for other roles", field="--node")
    expires_at = _expiry_wall_s(expires) if expires else None
    print(create_token(_tokens(stack), name, project, role, node, expires_at))


def _tokens(stack: StackOptions) -> Path:
    """The stack's token file. Raises NotRunning if there never was a stack here."""
    folder = stack.folder
    if not folder.tokens.exists():
        raise NotRunning(f"there is no stack in {folder.path}; create one with `matrixctl up --state {folder.path}`")
    return folder.tokens


def _expiry_wall_s(text: str) -> float:
    """The wall-clock time after a duration such as 90s, 15m, 12h or 30d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    found = re.fullmatch(r"([0-9]{1,15})([smhd])", text)
    if found is None or not int(found[1]):
        raise InvalidField(f"{text[:40]!r} is not a duration such as 12h or 30d", field="--expires")
    moment = time.time() + int(found[1]) * units[found[2]]
    if moment > TIMESTAMP_MAX_S:
        raise InvalidField(
            f"{text} from now is after {timestamp(TIMESTAMP_MAX_S)}; omit it for no expiry", field="--expires"
        )
    return moment


@command("token revoke")
def token_revoke(
    stack: StackOptions,
    which: Annotated[
        str, typer.Argument(help="Its name, or the first characters of its digest as shown by `token list`.")
    ],
) -> None:
    """Revoke a token, or all tokens of a name, immediately."""
    from services.chassis.access import revoke_token

    revoked = revoke_token(_tokens(stack), which)
    echo(f"revoked {', '.join(each[:12] for each in revoked)}")


@command("token list")
def token_list(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """List tokens by owner. Only their digests are stored, never the tokens themselves."""
    from services.chassis.access import read_tokens

    current = read_tokens(_tokens(stack))
    items = [value | {"digest": key[:12]} for key, value in current.items()]
    if not print_for_programs({"items": items}, output):
        # Earlier versions created tokens that expire after the latest representable time.
        ends = [
            timestamp(min(item["expires_at"], TIMESTAMP_MAX_S)) if item.get("expires_at") else "never" for item in items
        ]
        rows = [item | {"expires": end} for item, end in zip(items, ends, strict=True)]
        print_table("name, project, role, nodes, expires, digest", rows)


@command("version")
def version() -> None:
    """Print the version of this package."""
    try:
        print(f"cloudmatrix {metadata.version('cloudmatrix')}")
    except metadata.PackageNotFoundError:
        raise MatrixError("cloudmatrix runs from a folder and is not installed; there is no version to show") from None
