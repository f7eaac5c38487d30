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
from matrixcommon.model.quantities import LATEST_S, timestamp
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import DEFAULT_STATE, OnStack, Output, printed
from services.matrixctl.output.columns import listing
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_UNREACHABLE, Form, NotRunning, say, size_text
from services.matrixctl.supervisor.state_folder import HOST, Unreadable
from services.matrixctl.supervisor.up import (
    choose,
    halt,
    look,
    show_progress,
    start,
    supervisor_command,
    supervisor_environment,
)

PROCESS_COLUMNS = "name, pid, state, url, restarts, memory (pss):memory.pss, rss:memory.rss"
PROCESS_COLUMNS_WIDE = ", waiting for:waitingFor, last exit:lastExit, log"

group("token", "Bearer tokens of this stack.")


@command("up")
def up(
    stack: OnStack,
    time_scale: Annotated[
        float | None,
        typer.Option(help="Emulated seconds that pass in one second (default: as this state last ran; at first 1)."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Start only these processes: a,b,...")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for everything left to chance (default: as before).")] = None,
    database: Annotated[
        str,
        typer.Option(
            help="URL with {service} in it, e.g. postgresql://me@host/cm_{service} (default: as this state last ran; "
            "at first files in it)."
        ),
    ] = "",
    topology: Annotated[
        str,
        typer.Option(
            help="What a new state's supernodes are: a machine by name (`matrixctl topology list`), a file with its "
            "numbers (YAML), or a supernode as it was drawn (node-link JSON, GraphML)."
        ),
    ] = "",
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on (default: 127.0.0.1); 0.0.0.0 is for containers: everybody with a token gets in."
        ),
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and log to the terminal.")] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds to wait until everything is ready (default: 120; for a machine of more than 240 nodes half a "
            "second for each)."
        ),
    ] = None,
) -> None:
    """Start the stack and keep it running; what dies is started again.

    Asked twice, it shows the stack that runs. After its supervisor was killed, it takes over what that one left.
    """
    from services.matrixctl.supervisor.machine_numbers import checked, ready_patience_wall_s
    from services.matrixctl.supervisor.supervisor import Request

    if time_scale is not None and not 0 < time_scale <= 100_000:
        raise InvalidField("must be over 0 and at most 100000", field="--time-scale")
    if host is not None:
        _check_host(host)
    if database:
        _check_database(database)
    folder = stack.folder
    machine = checked(topology, folder)
    request = Request(choose(only), time_scale, seed, database, topology=machine, host=host or HOST).to_json()
    if folder.supervisor() is not None:
        say(f"already running in {folder.path}; `matrixctl down` stops it")
        _refuse_other_settings(folder, time_scale, only, {"seed": seed, "database": database or None, "host": host})
        show_status(folder, Form.TABLE)
        return
    if foreground:
        folder.prepare()
        command = supervisor_command(folder)
        os.execve(command[0], command, supervisor_environment(request))
    supervisor = start(folder, request)
    show_progress(folder, supervisor, ready_patience_wall_s(folder, machine) if wait is None else wait)
    show_where(folder)


def _check_database(url: str) -> None:
    """Raises InvalidField for what cannot be the database of each service."""
    from services.chassis.database_url import check_database_url

    if "{service}" not in url:
        raise InvalidField("each service has a database of its own: put {service} into the URL", field="--database")
    try:
        check_database_url(url)
    except ValueError as wrong:
        raise InvalidField(str(wrong), field="--database") from wrong


def _check_host(host: str) -> None:
    """Raises InvalidField for what is no address of IPv4, as which the processes find each other."""
    from ipaddress import AddressValueError, IPv4Address

    try:
        IPv4Address(host)
    except AddressValueError as wrong:
        raise InvalidField(f"{host!r} is no address such as 127.0.0.1 or 0.0.0.0", field="--host") from wrong


def _refuse_other_settings(
    folder: Any, time_scale: float | None, only: str | None, settings: dict[str, object]
) -> None:
    """A running stack is not changed behind its users' backs. `settings`: others, None where it is to stay."""
    stack = folder.read()
    if stack is None:
        return
    if time_scale is not None and time_scale != stack.time.scale:
        raise Conflict(
            f"it runs at --time-scale {stack.time.scale:g}; `matrixctl clock speed {time_scale:g}` changes that",
            field="--time-scale",
        )
    if only is not None and {process.name for process in choose(only)} - set(stack.children):
        raise Conflict(f"it runs only {', '.join(stack.children)}; take it down first", field="--only")
    for name, asked in settings.items():
        if asked not in (None, getattr(stack, name)):
            raise Conflict(f"it runs with another {name}; take it down first", field=f"--{name}")


def show_where(folder: Any) -> None:
    """What a person needs next."""
    stack = folder.read()
    say(f"\nUp at time scale {stack.time.scale:g}. Everything is in {folder.path}.")
    flag = "" if folder.path == DEFAULT_STATE.expanduser().absolute() else f" --state {folder.path}"
    if "kube" in stack.children:
        say(f"  export KUBECONFIG={folder.kubeconfig}     then: kubectl get nodes")
    if "console" in stack.children:
        say(f"  matrixctl console{flag}")
    say(f"  matrixctl get nodes{flag}")
    say(
        f"The services and matrixctl tell emulated time, {timestamp(stack.time.emulated(time.time()))} now; "
        "kubectl tells the wall's."
    )
    say(f"  matrixctl down{flag}")


@command("down")
def down(stack: OnStack) -> None:
    """Stop everything of this stack and leave nothing running. What it knows stays in the state folder."""
    folder = stack.folder
    with suppress(Unreadable):
        current = folder.read()
        if current is not None and current.contained:
            raise NotRunning(f"the stack in {folder.path} is made of containers; `docker compose down` stops them")
    ended = halt(folder)
    say(f"stopped {', '.join(ended)}" if ended else f"nothing runs in {folder.path}")


@command("status")
def status(stack: OnStack, output: Output = Form.TABLE) -> None:
    """Each process with pid, address, readiness, restarts and memory.

    Exit code 0 when all are ready, 1 when something is not, 3 when nothing runs.
    """
    raise typer.Exit(show_status(stack.folder, output))


def show_status(folder: Any, form: Form) -> int:
    report = look(folder)
    current = report.document()
    if printed(current, form):
        pass
    elif report.stack is not None and report.stack.contained:
        raise NotRunning(f"the stack in {folder.path} is made of containers; `docker compose ps` shows them")
    elif not report.running:
        raise NotRunning(f"no stack runs in {folder.path}; `matrixctl up --state {folder.path}` starts one")
    elif report.stack is None:
        say("the supervisor is just starting; ask again")
    else:
        state = {"name": "supervisor", "state": "Ready" if report.supervisor else "Stopped", "restarts": 0}
        rows = [*current["processes"], current["supervisor"] | state]
        listing(
            PROCESS_COLUMNS + (PROCESS_COLUMNS_WIDE if form is Form.WIDE else ""),
            [row | {"memory": {kind: size_text(size) for kind, size in row["memory"].items()}} for row in rows],
        )
        say(
            f"\ntime scale {current['timeScale']:g}, emulated time {current['emulatedTime']}, "
            f"memory {size_text(current['memory']['pss'])} with shared pages counted once "
            f"({size_text(current['memory']['rss'])} counting them in every process)"
        )
        if report.supervisor is None:
            say(
                f"[red]the supervisor is not running[/]; `matrixctl up --state {folder.path}` takes over what it left, "
                "`matrixctl down` ends it"
            )
    return EXIT_UNREACHABLE if not report.running else 0 if report.ready else EXIT_REFUSED


@command("kubeconfig")
def kubeconfig(stack: OnStack) -> None:
    """Print the path of the kubeconfig: export KUBECONFIG=$(matrixctl kubeconfig)."""
    folder = stack.folder
    if not folder.kubeconfig.exists():
        raise NotRunning(f"{folder.kubeconfig} is not there; the `kube` process writes it (`matrixctl up`)")
    print(folder.kubeconfig)


@command("token create")
def token_create(
    stack: OnStack,
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    role: Annotated[str, typer.Option(help="viewer, editor, admin, agent, or user (of the model endpoint)")] = "viewer",
    project: Annotated[str, typer.Option(help="The project it belongs to; * for all of them.")] = "default",
    node: Annotated[
        str, typer.Option(help="For an agent: the node it speaks for, or a pattern such as 'sn0-c03-*'.")
    ] = "",
    expires: Annotated[str, typer.Option(help="After how long it ends, such as 12h or 30d; never by default.")] = "",
) -> None:
    """Make a bearer token and print it, once. The services know it at once, and the model endpoint.

    The Kubernetes API takes its own accounts: `matrixctl kubeconfig` has an administrator's, and
    `kubectl create token ACCOUNT` makes one for a service account.
    """
    from services.chassis.access import EVERY_PROJECT, ROLES, create_token

    if role not in ROLES:
        raise InvalidField(f"there is no role {role!r}; use one of {', '.join(ROLES)}", field="--role")
    for field, text in (("NAME", name), ("--project", project)):
        if not RESOURCE_NAME.fullmatch(text) and (field, text) != ("--project", EVERY_PROJECT):
            raise InvalidField(f"{text!r} is no name: small letters, digits and dashes, at most 63", field=field)
    if (role == "agent") != bool(node):
        raise InvalidField("an agent's token names its node, and no other does", field="--node")
    expires_at = _moment_in(expires) if expires else None
    print(create_token(_tokens(stack), name, project, role, node, expires_at))


def _tokens(stack: OnStack) -> Path:
    """The file of this stack's tokens. Raises NotRunning where no stack ever was."""
    folder = stack.folder
    if not folder.tokens.exists():
        raise NotRunning(f"there is no stack in {folder.path}; `matrixctl up --state {folder.path}` makes one")
    return folder.tokens


def _moment_in(text: str) -> float:
    """The moment after a duration as people write it: 90s, 15m, 12h, 30d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    found = re.fullmatch(r"([0-9]{1,15})([smhd])", text)
    if found is None or not int(found[1]):
        raise InvalidField(f"{text[:40]!r} is no duration such as 12h or 30d", field="--expires")
    moment = time.time() + int(found[1]) * units[found[2]]
    if moment > LATEST_S:
        raise InvalidField(f"{text} from now is after {timestamp(LATEST_S)}; give none for never", field="--expires")
    return moment


@command("token revoke")
def token_revoke(
    stack: OnStack,
    which: Annotated[str, typer.Argument(help="Its name, or the beginning of its digest as `token list` shows it.")],
) -> None:
    """Have a token, or all of a name, known no more. It ends at once."""
    from services.chassis.access import revoke_token

    gone = revoke_token(_tokens(stack), which)
    say(f"revoked {', '.join(each[:12] for each in gone)}")


@command("token list")
def token_list(stack: OnStack, output: Output = Form.TABLE) -> None:
    """Who holds tokens (their digests are kept, never the tokens)."""
    from services.chassis.access import read_tokens

    current = read_tokens(_tokens(stack))
    items = [value | {"digest": key[:12]} for key, value in current.items()]
    if not printed({"items": items}, output):
        # Earlier versions made tokens that end after the last moment there is.
        ends = [timestamp(min(item["expires_at"], LATEST_S)) if item.get("expires_at") else "never" for item in items]
        rows = [item | {"expires": end} for item, end in zip(items, ends, strict=True)]
        listing("name, project, role, nodes, expires, digest", rows)


@command("version")
def version() -> None:
    """The version of this package."""
    try:
        print(f"cloudmatrix {metadata.version('cloudmatrix')}")
    except metadata.PackageNotFoundError:
        raise MatrixError("cloudmatrix runs from a folder and is not installed; there is no version to show") from None
