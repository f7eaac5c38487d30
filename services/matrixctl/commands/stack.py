"""up, down, status, kubeconfig, token: the stack as a whole."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.model.quantities import timestamp
from matrixresource.topology.loading import load_spec
from services.matrixctl.commands.options import DEFAULT_STATE, Output, State
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_UNREACHABLE, Form, NotRunning, document, mib, say, table

token_app = typer.Typer(help="Bearer tokens of this stack.", no_args_is_help=True)


def up(
    state: State = DEFAULT_STATE,
    time_scale: Annotated[
        float | None,
        typer.Option(help="Emulated seconds that pass in one second (default: as this state last ran; at first 1)."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Start only these processes: a,b,...")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for everything left to chance.")] = None,
    database: Annotated[
        str, typer.Option(help="SQLAlchemy URL with {service} in it, e.g. postgresql://me@host/cm_{service}.")
    ] = "",
    topology: Annotated[
        Path | None,
        typer.Option(help="A supernode as it was drawn (node-link JSON, GraphML); a new state's supernodes are so."),
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and log to the terminal.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait until everything is ready.")] = 120.0,
) -> None:
    """Start the stack and keep it running; what dies is started again.

    Asked twice, it shows the stack that runs. After its supervisor was killed, it takes over what that one left.
    """
    from services.matrixctl.supervisor.progress import show_progress
    from services.matrixctl.supervisor.state_folder import Folder
    from services.matrixctl.supervisor.supervisor import Request
    from services.matrixctl.supervisor.up import choose, start, supervisor_command, supervisor_environment

    if time_scale is not None and not 0 < time_scale <= 100_000:
        raise InvalidField("must be over 0 and at most 100000", field="--time-scale")
    if database and "{service}" not in database:
        raise InvalidField("each service has a database of its own: put {service} into the URL", field="--database")
    if topology is not None:
        _check_drawing(topology)
        topology = topology.absolute()
    folder = Folder(state)
    request = Request(choose(only), time_scale, seed, database, topology=str(topology or "")).to_json()
    if folder.supervisor() is not None:
        say(f"already running in {folder.path}; `matrixctl down` stops it")
        _refuse_other_settings(folder, time_scale, only)
        show_status(folder, Form.TABLE)
        return
    if foreground:
        folder.prepare()
        command = supervisor_command(folder)
        os.execve(command[0], command, supervisor_environment(request))
    supervisor = start(folder, request)
    show_progress(folder, supervisor, wait)
    show_where(folder)


def _check_drawing(file: Path) -> None:
    """Before anything is started. Raises InvalidField with a sentence for each fault."""
    from matrixresource.topology.graph_document import compiled_drawing, read_file

    compiled_drawing(read_file(file), load_spec())


def _refuse_other_settings(folder: Any, time_scale: float | None, only: str | None) -> None:
    """A running stack is not changed behind its users' backs."""
    from matrixcommon.model.errors import Conflict
    from services.matrixctl.supervisor.up import choose

    stack = folder.read()
    if stack is None:
        return
    if time_scale is not None and time_scale != stack.time.scale:
        raise Conflict(f"it runs at --time-scale {stack.time.scale:g}; take it down first", field="--time-scale")
    if only is not None and {process.name for process in choose(only)} - set(stack.children):
        raise Conflict(f"it runs only {', '.join(stack.children)}; take it down first", field="--only")


def show_where(folder: Any) -> None:
    """What a person needs next."""
    stack = folder.read()
    say(f"\nUp at time scale {stack.time.scale:g}. Everything is in {folder.path}.")
    flag = "" if folder.path == DEFAULT_STATE.expanduser().absolute() else f" --state {folder.path}"
    if "kube" in stack.children:
        say(f"  export KUBECONFIG={folder.kubeconfig}     then: kubectl get nodes")
    say(f"  matrixctl get nodes{flag}")
    say(f"  matrixctl down{flag}")


def down(state: State = DEFAULT_STATE) -> None:
    """Stop everything of this stack and leave nothing running. What it knows stays in the state folder."""
    from services.matrixctl.supervisor.state_folder import Folder, Unreadable
    from services.matrixctl.supervisor.up import halt

    folder = Folder(state)
    with suppress(Unreadable):
        stack = folder.read()
        if stack is not None and stack.contained:
            raise NotRunning(f"the stack in {folder.path} is made of containers; `docker compose down` stops them")
    ended = halt(folder)
    say(f"stopped {', '.join(ended)}" if ended else f"nothing runs in {folder.path}")


def status(state: State = DEFAULT_STATE, output: Output = Form.TABLE) -> None:
    """Each process with pid, address, readiness, restarts and memory.

    Exit code 0 when all are ready, 1 when something is not, 3 when nothing runs.
    """
    from services.matrixctl.supervisor.state_folder import Folder

    raise typer.Exit(show_status(Folder(state), output))


def show_status(folder: Any, form: Form) -> int:
    from services.matrixctl.supervisor.up import look

    report = look(folder)
    current = report.document()
    if form in (Form.JSON, Form.YAML):
        document(current, form)
    elif report.stack is not None and report.stack.contained:
        raise NotRunning(f"the stack in {folder.path} is made of containers; `docker compose ps` shows them")
    elif not report.running:
        raise NotRunning(f"no stack runs in {folder.path}; `matrixctl up --state {folder.path}` starts one")
    elif report.stack is None:
        say("the supervisor is just starting; ask again")
    else:
        wide = ("waiting for", "last exit", "log") if form is Form.WIDE else ()
        rows = [
            [
                row["name"],
                row["pid"] or "-",
                row["state"],
                row["url"],
                row["restarts"],
                mib(row["memory"]["pss"]),
                mib(row["memory"]["rss"]),
                *((row["waitingFor"] or "-", row["lastExit"] or "-", row["log"]) if wide else ()),
            ]
            for row in current["processes"]
        ]
        supervisor = current["supervisor"]
        state = "Ready" if supervisor["pid"] else "Stopped"
        sizes = [mib(supervisor["memory"]["pss"]), mib(supervisor["memory"]["rss"])]
        rows.append(["supervisor", supervisor["pid"] or "-", state, "-", 0, *sizes, *(("-",) * len(wide))])
        table(["name", "pid", "state", "url", "restarts", "memory (pss)", "rss", *wide], rows)
        say(
            f"\ntime scale {current['timeScale']:g}, emulated time {current['emulatedTime']}, "
            f"memory {mib(current['memory']['pss'])} with shared pages counted once "
            f"({mib(current['memory']['rss'])} counting them in every process)"
        )
        if report.supervisor is None:
            say(
                f"[red]the supervisor is not running[/]; `matrixctl up --state {folder.path}` takes over what it left, "
                "`matrixctl down` ends it"
            )
    return EXIT_UNREACHABLE if not report.running else 0 if report.ready else EXIT_REFUSED


def kubeconfig(state: State = DEFAULT_STATE) -> None:
    """Print the path of the kubeconfig: export KUBECONFIG=$(matrixctl kubeconfig)."""
    from services.matrixctl.supervisor.state_folder import Folder

    folder = Folder(state)
    if not folder.kubeconfig.exists():
        raise NotRunning(f"{folder.kubeconfig} is not there; the `kube` process writes it (`matrixctl up`)")
    print(folder.kubeconfig)


@token_app.command("create")
def token_create(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    role: Annotated[str, typer.Option(help="viewer, editor, admin, agent, or user (of the model endpoint)")] = "viewer",
    project: Annotated[str, typer.Option(help="The project it belongs to.")] = "default",
    node: Annotated[
        str, typer.Option(help="For an agent: the node it speaks for, or a pattern such as 'sn0-c03-*'.")
    ] = "",
    expires: Annotated[str, typer.Option(help="After how long it ends, such as 12h or 30d; never by default.")] = "",
    state: State = DEFAULT_STATE,
) -> None:
    """Make a bearer token and print it, once. The services know it at once."""
    from matrixcommon.model.hardware_names import RESOURCE_NAME
    from services.chassis.access import ROLES, create_token
    from services.matrixctl.supervisor.state_folder import Folder

    if role not in ROLES:
        raise InvalidField(f"there is no role {role!r}; use one of {', '.join(ROLES)}", field="--role")
    for field, text in (("name", name), ("--project", project)):
        if not RESOURCE_NAME.fullmatch(text):
            raise InvalidField(f"{text!r} is no name: small letters, digits and dashes, at most 63", field=field)
    if (role == "agent") != bool(node):
        raise InvalidField("an agent's token names its node, and no other does", field="--node")
    expires_at = time.time() + _seconds(expires) if expires else None
    folder = Folder(state)
    folder.prepare()
    print(create_token(folder.tokens, name, project, role, node, expires_at))


def _seconds(text: str) -> float:
    """A duration as people write it: 90s, 15m, 12h, 30d."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[-1:] not in units or not text[:-1].isdigit() or int(text[:-1]) == 0:
        raise InvalidField(f"{text!r} is no duration such as 12h or 30d", field="--expires")
    return float(int(text[:-1]) * units[text[-1]])


@token_app.command("revoke")
def token_revoke(
    which: Annotated[str, typer.Argument(help="Its name, or the beginning of its digest as `token list` shows it.")],
    state: State = DEFAULT_STATE,
) -> None:
    """Have a token, or all of a name, known no more. It ends at once."""
    from services.chassis.access import revoke_token
    from services.matrixctl.supervisor.state_folder import Folder

    gone = revoke_token(Folder(state).tokens, which)
    say(f"{len(gone)} tokens of {which} are revoked")


@token_app.command("list")
def token_list(state: State = DEFAULT_STATE, output: Output = Form.TABLE) -> None:
    """Who holds tokens (their digests are kept, never the tokens)."""
    import json

    from services.matrixctl.supervisor.state_folder import Folder

    folder = Folder(state)
    current = json.loads(folder.tokens.read_text()) if folder.tokens.exists() else {}
    items = [value | {"digest": key[:12]} for key, value in current.items()]
    if output in (Form.JSON, Form.YAML):
        document({"items": items}, output)
    else:
        columns = ["name", "project", "role", "nodes", "expires", "digest"]
        table(columns, [[_shown(item, column) for column in columns] for item in items])


def _shown(token: dict[str, Any], column: str) -> str:
    if column == "expires":
        return timestamp(token["expires_at"]) if token.get("expires_at") else "never"
    return str(token.get(column, ""))


def version() -> None:
    """The version of this package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        print(f"cloudmatrix {installed('cloudmatrix')}")
    except PackageNotFoundError:
        raise MatrixError("cloudmatrix runs from a folder and is not installed; there is no version to show") from None


def register(app: typer.Typer) -> None:
    for command in (up, down, status, kubeconfig, version):
        app.command()(command)
    app.add_typer(token_app, name="token")
