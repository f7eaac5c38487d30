"""Starting a process of the stack.

Where the system can fork, the supervisor imports the modules that services share once, and each child starts as a copy:
the memory of those modules is shared, and no child waits for the import. The embedded Kubernetes API, which needs few
of them, starts before. A child gets its own session, environment, folder and log, acquires its lock, and then runs
`services.<x>.main.main([])`. Elsewhere a child is a new interpreter that does the same (`python -m
services.matrixctl.supervisor.process_spawn`).
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from services.catalogue import PROCESSES
from services.chassis.interpreter import block_modules
from services.matrixctl.supervisor.process_lock import LockUnavailable, ProcessLock

SHARED_MODULES = (
    "anyio._backends._asyncio",
    "asyncio",
    "concurrent.futures.thread",
    "h11",
    "httpcore",
    "httptools",
    "logging.config",
    "pydantic",
    "sqlite3",
    "fastapi.applications",
    "fastapi.responses",
    "starlette.middleware.errors",
    "httpx",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.sqlite",
    "prometheus_client",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.loops.asyncio",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.websockets.auto",
    "yaml",
    "services.chassis.app",
    "services.chassis.database",
    "services.chassis.http",
    "services.chassis.run",
    "services.chassis.settings",
    "matrixcommon.api.client",
    "matrixcommon.model.hardware_names",
    "matrixcommon.model.planes",
    "matrixcommon.persistence.database_session",
    "matrixcommon.api.listing",
    "matrixcommon.model.state_machine",
    "networkx",
    "numpy",
    "matrixcommon.api.operations",
    "matrixcommon.model.process_pauses",
    "matrixresource.client",
    "matrixresource.nodes.expected_inventory",
    "matrixresource.nodes.fault_levels",
    "matrixlink.client",
    "matrixlink.fabric.condition.fabric",
    "matrixlink.fabric.condition.planes",
    "matrixlink.fabric.contention.patterns",
    "matrixlink.fabric.contention.ports_left",
    "matrixlink.fabric.sharing.max_min_arrays",
    "matrixlink.model.program_digest",
    "matrixlink.ports",
    "matrixlink.probing.tomography",
    "matrixcompute.autoscaling.policy_view",
    "matrixcompute.clients.inference",
    "matrixcompute.scenarios.runs",
    "matrixcompute.scenarios.fault_injections",
)
"""Modules that at least two processes import; those that only one needs are left out."""

RESERVED_SETTINGS = frozenset(
    f"CLOUDMATRIX_{key}"
    for key in (
        *("HOST", "PORT", "STATE", "TIME_SCALE", "TIME_ANCHOR_WALL", "TIME_ANCHOR_EMULATED"),
        *("CLOCK_FILE", "TOKENS", "TOKEN"),
        *("SEED", "DATABASE", "TOPOLOGY", "SPEC", "KUBECONFIG", "KUBE_ADMIN_TOKEN"),
        *(f"{process.name.upper()}_URL" for process in PROCESSES),
    )
)
"""Settings reserved to the supervisor; others, such as CLOUDMATRIX_LOG_LEVEL, pass through from the caller."""

LOCK_TIMEOUT_WALL_S = 2.0
EXIT_LOCK_UNAVAILABLE = 75
EXIT_CRASHED = 70


def can_fork() -> bool:
    """Forking without exec is safe only from a single thread, and not on macOS, whose libraries forbid it."""
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def preload(modules: Iterable[str], prebuild: Callable[[], object] = lambda: None) -> None:
    """Build what all children would build (`prebuild` stores it for them) and import what they share; freeze it for the
    garbage collector, so that the pages stay shared."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # or numpy starts threads, before the forks
    block_modules()
    prebuild()  # before the modules, which reuse the 10 MB it needs only while being built
    gc.collect()
    gc.disable()  # modules are not garbage; collecting took a fifth of the import time
    for module in modules:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


def spawn(name: str, module: str, environ: dict[str, str], lock_file: Path, log: Path, forking: bool) -> int:
    """Start a process in the state folder, in its own session; returns its pid."""
    folder = lock_file.parent.parent
    if forking:
        pid = os.fork()
        if pid == 0:
            _become_child(name, module, environ, lock_file, log, folder)
        return pid
    with log.open("ab") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "services.matrixctl.supervisor.process_spawn", name, module, str(lock_file)],
            env=environ | {"PYTHONPATH": _import_path(environ)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    child.returncode = 0  # the supervisor reaps by pid; this keeps Popen from warning about it
    return child.pid


def inherited_environment() -> dict[str, str]:
    """The part of the supervisor's environment that a process inherits."""
    return {key: value for key, value in os.environ.items() if key not in RESERVED_SETTINGS}


def exit_text(status: int) -> str:
    """How a process ended, from the status of `waitpid`."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit {os.waitstatus_to_exitcode(status)}"


def _import_path(environ: dict[str, str]) -> str:
    root = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([root, *filter(None, [environ.get("PYTHONPATH", "")])])


def _become_child(name: str, module: str, environ: dict[str, str], lock_file: Path, log: Path, folder: Path) -> None:
    """Run a forked child to its end; must never return into the supervisor's code."""
    code = EXIT_CRASHED
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, 1024)
        _redirect(os.open(os.devnull, os.O_RDONLY), 0)
        out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        _redirect(out, 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        code = run(name, module, lock_file)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _redirect(source: int, target: int) -> None:
    os.dup2(source, target)
    if source != target:
        os.close(source)


def run(name: str, module: str, lock_file: Path) -> int:
    """Acquire the lock, then run the service; returns its exit code."""
    _set_title(name)
    sys.argv = [module]
    block_modules()
    gc.disable()  # starting a service creates little garbage; it turns collection on (`chassis/interpreter.py`)
    try:
        ProcessLock(lock_file).acquire(LOCK_TIMEOUT_WALL_S)
        importlib.import_module(f"{module}.main").main([])
    except LockUnavailable as taken:
        print(f"{name}: {taken}", file=sys.stderr)
        return EXIT_LOCK_UNAVAILABLE
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # as the interpreter would: why a setting or a database cannot be used
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 0
    except BaseException:
        traceback.print_exc()
        return EXIT_CRASHED
    return 0


def _set_title(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show; possible only on Linux."""
    try:
        Path("/proc/self/comm").write_text(f"cm-{name}")
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
