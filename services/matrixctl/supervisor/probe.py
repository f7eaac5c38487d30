"""What a process looks like from outside: does it answer, and what does it weigh."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class Readiness:
    """`alive` when anything answered over HTTP; `ready` when it says so; else what it waits for."""

    alive: bool
    ready: bool
    waiting_for: str = ""


def readiness(url: str, timeout_wall_s: float, pid: int = 0) -> Readiness:
    """Ask `/readyz` of the process at `url`. With `pid`, another process that answers there does not count as ours."""
    import httpx

    try:
        answer = _client().get(f"{url}/readyz", timeout=timeout_wall_s)
    except httpx.ConnectError:
        return Readiness(False, False, "not listening yet")
    except httpx.HTTPError as wrong:
        return Readiness(False, False, f"no answer: {wrong or type(wrong).__name__}")
    answered_by = answer.headers.get("X-Process-Id", "")
    if pid and answered_by and answered_by != str(pid):
        return Readiness(False, False, f"another process ({answered_by}) answers at {url}")
    return Readiness(True, answer.is_success, "" if answer.is_success else _waiting_for(answer))


@cache
def _client() -> httpx.Client:
    """A readiness question on loopback carries no secret, and the certificate may not be written yet. Connections are
    not kept: the next question may be to another process."""
    import httpx

    return httpx.Client(verify=False, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def _waiting_for(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("waitingFor") or "not ready")
    except (ValueError, AttributeError):
        return answer.text.strip()[:200] or "not ready"


def port_is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str) -> int:
    with socket.socket(socket.AF_INET) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Memory:
    """Bytes. `rss` counts shared pages fully in every process; `pss` gives each its share, so it adds up."""

    pss: int | None
    rss: int | None


def memory(pid: int) -> Memory:
    """Of one process; None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        return Memory(sizes["Pss"], sizes["Rss"])
    except (OSError, KeyError, IndexError, ValueError):
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        text = shown.stdout.strip()
        return Memory(None, int(text) * 1024 if text.isdigit() else None)


if __name__ == "__main__":
    import sys

    seen = readiness(sys.argv[1], 3.0)
    print(seen.waiting_for or "ready")
    sys.exit(0 if seen.ready else 1)
