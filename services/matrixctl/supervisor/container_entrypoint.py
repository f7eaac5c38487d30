"""Entry point of a container that runs one process of the stack.

    python -m services.matrixctl.supervisor.container_entrypoint NAME

`prepare` runs first and alone, with access to the whole state folder: it creates the secrets and sets the time.
Each process sees its own folder, with its private settings (its token, the password of its database), and the digests
of all tokens. docker-compose.yml sets its address and those of the processes it calls.

    stack.json, admin-token, kubeconfig   for users of the stack outside, as in every state folder
    PROCESS-token, database-passwords     created once; process containers do not see them here
    shared/tokens.json                    digests, read by all
    shared/clock.json                     speed of emulated time, read by all
    processes/NAME/                       the folder of a process: settings.json and its data
    processes/demo/                       an administrator's credentials, with addresses inside the network: for the
    demos postgres/                             script that creates the databases, each with its own role
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import sys
import time
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path

from matrixcommon.emulation.stack_clock import change_timeline, read_timeline, write_timeline
from matrixcommon.model.errors import MatrixError
from services.catalogue import BY_NAME, PROCESSES
from services.chassis.interpreter import block_modules
from services.matrixctl.supervisor.state_folder import Child, Stack, StackTime, StateFolder, write_atomically

PREPARE = "prepare"
DEMO = "demo"
SETTINGS = "settings.json"
SHARED_TOKENS = "/shared/tokens.json"
SHARED_CLOCK = "/shared/clock.json"
DATABASES = tuple(process.name for process in PROCESSES if process.has_database)


def prepare(folder: StateFolder, scale: float) -> Stack:
    """Create tokens, passwords and time for a run. If the other containers already run, their time is kept."""
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.path.chmod(0o700)  # the engine may have created it, world-readable
    _link_shared_files(folder, folder.tokens, folder.clock_file)
    folder.prepare()
    before, now = folder.read(), time.time()
    when = before.time.next_run(scale, now) if before else StackTime(scale, now, now)
    _prepare_clock(folder.clock_file, when)
    children = {
        process.name: Child(process.name, port=process.port, url=f"{process.scheme}://127.0.0.1:{process.port}")
        for process in PROCESSES
    }
    stack = Stack(PROCESSES, when, children=children, contained=True)
    folder.write(stack)
    passwords = _ensure_passwords(folder)
    _prepare_databases(folder.path / "postgres", passwords)
    operator_token = _prepare_kube(folder)
    _prepare_demo(folder, stack)
    for process in PROCESSES:
        settings = {"CLOCK_FILE": SHARED_CLOCK, "TOKENS": SHARED_TOKENS, "TOKEN": folder.token_of(process)}
        if process.has_database:
            settings["DATABASE"] = f"postgresql://{process.name}:{passwords[process.name]}@postgres/{process.name}"
        if process.name == "kube":
            settings |= {"KUBE_ADMIN_TOKEN": folder.admin_token(), "KUBE_OPERATOR_TOKEN": operator_token}
        if process.name == "operator":
            settings["KUBECONFIG"] = "/state/kubeconfig"
        own = _process_folder(folder, process.name)
        write_atomically(
            own / SETTINGS, json.dumps({f"CLOUDMATRIX_{key}": value for key, value in settings.items()}, indent=1)
        )
    return stack


def _process_folder(folder: StateFolder, name: str) -> Path:
    """The folder that a process sees as /state; it sees no other part of the state folder."""
    own = folder.path / "processes" / name
    own.mkdir(parents=True, exist_ok=True, mode=0o700)
    return own


def _link_shared_files(folder: StateFolder, *files: Path) -> None:
    """The folder shared by all containers. Files in it are replaced as a whole when they change."""
    shared = folder.path / "shared"
    shared.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in files:
        if not file.is_symlink():
            file.symlink_to(Path(shared.name) / file.name)


def _prepare_clock(file: Path, when: StackTime) -> None:
    """Containers of an earlier run may still read the file, so time continues, at the requested speed."""
    if not file.exists():
        write_timeline(file, when.timeline())
    elif read_timeline(file).speed(time.time()) != when.scale:
        change_timeline(file, lambda timeline, at: timeline.changed(at, when.scale))


def _ensure_passwords(folder: StateFolder) -> dict[str, str]:
    file = folder.path / "database-passwords"
    known = json.loads(file.read_text()) if file.exists() else {}
    made = {name: known.get(name) or secrets.token_urlsafe(24) for name in ("superuser", *DATABASES)}
    write_atomically(file, json.dumps(made, indent=1))
    return made


def _prepare_databases(place: Path, passwords: dict[str, str]) -> None:
    """Write the script that PostgreSQL's image runs once, on a new volume. The image's user, which is unknown, has to
    be able to read it; the state folder around it keeps everyone else out."""
    first = place / "first-start"
    first.mkdir(parents=True, exist_ok=True)
    lines = ["-- A database for each service, and a role that may enter no other."]
    for name in DATABASES:
        lines += [
            f"CREATE ROLE {name} LOGIN PASSWORD '{passwords[name]}';",
            f"CREATE DATABASE {name} OWNER {name};",
            f"REVOKE CONNECT, TEMPORARY ON DATABASE {name} FROM PUBLIC;",
        ]
    for file, text in ((first / "databases.sql", "\n".join(lines)), (place / "password", passwords["superuser"])):
        write_atomically(file, text + "\n")
        file.chmod(0o644)
    for each in (place, first):
        each.chmod(0o755)


def _prepare_kube(folder: StateFolder) -> str:
    """Create the Kubernetes API's certificate authority and the operator's kubeconfig; returns the operator's token.
    The API writes the administrator's kubeconfig, which appears in its usual place outside."""
    from matrixcontainer.kubeapi.transport.certificates import ensure_certificates, write_kubeconfig

    kube = BY_NAME["kube"]
    authority = _process_folder(folder, kube.name) / "kube"
    ensure_certificates(authority, [kube.name])
    known = _process_folder(folder, "operator") / "kube-token"
    if not known.exists():
        write_atomically(known, secrets.token_urlsafe(24))
    token = known.read_text().strip()
    server = f"{kube.scheme}://{kube.name}:{kube.port}"
    write_kubeconfig(known.with_name("kubeconfig"), server, authority / "ca.crt", "cloudmatrix-operator", token)
    if not folder.kubeconfig.is_symlink():
        folder.kubeconfig.symlink_to(Path("processes") / kube.name / "kubeconfig")
    return token


def _prepare_demo(folder: StateFolder, stack: Stack) -> None:
    """A folder like the stack's own, with addresses inside the containers' network."""
    from matrixcontainer.kubeapi.transport.certificates import write_kubeconfig

    inside = StateFolder(_process_folder(folder, DEMO))
    children = {
        process.name: replace(stack.children[process.name], url=f"{process.scheme}://{process.name}:{process.port}")
        for process in PROCESSES
    }
    inside.write(replace(stack, children=children))
    write_atomically(inside.path / "admin-token", folder.admin_token() + "\n")
    authority = _process_folder(folder, "kube") / "kube" / "ca.crt"
    server = children["kube"].url
    write_kubeconfig(inside.kubeconfig, server, authority, "cloudmatrix-admin", folder.admin_token())


def change_owner(folder: Path, owner: str) -> None:
    """Give the folder to `uid:gid`, the user of the processes; files for PostgreSQL are readable by all."""
    uid, _, gid = owner.partition(":")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, int(uid), int(gid or uid), follow_symlinks=False)


def load_settings(folder: Path, environ: MutableMapping[str, str]) -> None:
    """Add the settings that `prepare` wrote for this process to the environment."""
    file = folder / SETTINGS
    if not file.exists():
        raise SystemExit(f"{file} does not exist; run `prepare` first")
    environ.update(json.loads(file.read_text()))


def main(arguments: list[str]) -> None:
    name = arguments[0] if arguments else ""
    place = Path(os.environ.get("CLOUDMATRIX_STATE", "/state"))
    if name == PREPARE:
        try:
            stack = prepare(StateFolder(place), float(os.environ.get("CLOUDMATRIX_TIME_SCALE", "1")))
            if owner := os.environ.get("CLOUDMATRIX_OWNER"):
                change_owner(place, owner)
        except (MatrixError, OSError) as wrong:
            raise SystemExit(f"{type(wrong).__name__}: {wrong}") from None
        print(f"prepared {place} at time scale {stack.time.scale:g}")
        return
    if name not in BY_NAME:
        raise SystemExit(f"there is no process {name!r}; choose from {PREPARE}, {', '.join(BY_NAME)}")
    load_settings(place, os.environ)
    block_modules()
    importlib.import_module(f"{BY_NAME[name].module}.main").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
