"""One process of the stack as the only one in a container.

    python -m services.matrixctl.supervisor.container_entrypoint NAME

The containers of a stack share a state folder, as processes under the supervisor do. `prepare` runs first and alone: it
makes the tokens and says what time it is. Each process then takes its token and the time from there; where it listens,
which database it has and where its neighbours are comes from docker-compose.yml.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import MutableMapping
from pathlib import Path

from matrixcommon.model.errors import MatrixError
from services.catalogue import BY_NAME, PROCESSES
from services.matrixctl.supervisor.state_folder import Child, Folder, Stack, StackTime, write

PREPARE = "prepare"


def prepare(folder: Folder, scale: float) -> Stack:
    """Tokens and time for a run. Prepared again while the others run, time stays where they see it."""
    folder.prepare()
    before, now = folder.read(), time.time()
    when = before.time.next_run(scale, now) if before else StackTime(scale, now, now)
    children = {
        process.name: Child(process.name, port=process.port, url=f"{process.scheme}://127.0.0.1:{process.port}")
        for process in PROCESSES
    }
    stack = Stack(PROCESSES, when, children=children, contained=True)
    folder.write(stack)
    return stack


def settings_for(name: str, folder: Folder, environ: MutableMapping[str, str]) -> None:
    """Add to the environment what the state folder knows."""
    stack = folder.read()
    if stack is None:
        raise SystemExit(f"{folder.stack_file} is not there; run `prepare` first")
    environ["CLOUDMATRIX_TIME_SCALE"] = repr(stack.time.scale)
    environ["CLOUDMATRIX_TIME_ANCHOR_WALL"] = repr(stack.time.anchor_wall)
    environ["CLOUDMATRIX_TIME_ANCHOR_EMULATED"] = repr(stack.time.anchor_emulated)
    environ["CLOUDMATRIX_TOKENS"] = str(folder.tokens)
    environ["CLOUDMATRIX_TOKEN"] = folder.agent_token() if name == "agents" else folder.admin_token()
    if name == "kube":
        environ["CLOUDMATRIX_KUBE_ADMIN_TOKEN"] = folder.admin_token()
    if name == "operator":
        environ["CLOUDMATRIX_KUBECONFIG"] = str(_kubeconfig_inside(folder))


def _kubeconfig_inside(folder: Folder, patience_wall_s: float = 60.0) -> Path:
    """The operator's kubeconfig with the address that containers know the API by; the one beside it is for the host."""
    until = time.monotonic() + patience_wall_s
    while not folder.operator_kubeconfig.exists() and time.monotonic() < until:
        time.sleep(0.2)
    inside = folder.path / "kubeconfig-inside"
    port = BY_NAME["kube"].port
    write(inside, folder.operator_kubeconfig.read_text().replace(f"https://127.0.0.1:{port}", f"https://kube:{port}"))
    return inside


def main(arguments: list[str]) -> None:
    name = arguments[0] if arguments else ""
    folder = Folder(Path(os.environ.get("CLOUDMATRIX_STATE", "/state")))
    if name == PREPARE:
        try:
            stack = prepare(folder, float(os.environ.get("CLOUDMATRIX_TIME_SCALE", "1")))
        except (MatrixError, OSError) as wrong:
            raise SystemExit(f"{type(wrong).__name__}: {wrong}") from None
        print(f"prepared {folder.path} at time scale {stack.time.scale:g}")
        return
    if name not in BY_NAME:
        raise SystemExit(f"there is no process {name!r}; there are {PREPARE}, {', '.join(BY_NAME)}")
    settings_for(name, folder, os.environ)
    importlib.import_module(f"{BY_NAME[name].module}.main").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
