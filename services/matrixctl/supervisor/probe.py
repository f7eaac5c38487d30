"""Readiness probes of processes, and free ports."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Readiness:
    """`alive`: anything answered over HTTP. `ready`: it reports ready. Otherwise, what it waits for."""

    alive: bool
    ready: bool
    waiting_for: str = ""


def probe_readiness(url: str, timeout_wall_s: float, pid: int = 0) -> Readiness:
    """Request `/readyz` of the process at `url`. With `pid`, an answer from another process does not count.

    Uses only the standard library: containers run this every few seconds, and importing an HTTP client takes longer.
    """
    connection = _connection(url, timeout_wall_s)
    try:
        connection.request("GET", "/readyz", headers={"Connection": "close"})
        answer = connection.getresponse()
        text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
    except (ConnectionRefusedError, socket.gaierror):
        return Readiness(False, False, "not listening yet")
    except (OSError, http.client.HTTPException) as wrong:
        return Readiness(False, False, f"no answer: {wrong or type(wrong).__name__}")
    finally:
        connection.close()
    answered_by = answer.headers.get("X-Process-Id", "")
    if pid and answered_by and answered_by != str(pid):
        return Readiness(False, False, f"another process ({answered_by}) answers at {url}")
    ready = 200 <= answer.status < 300
    return Readiness(True, ready, "" if ready else _waiting_for(text))


def _connection(url: str, timeout_wall_s: float) -> http.client.HTTPConnection:
    """Certificates are not verified: the request carries no secret, and the certificate may not be written yet."""
    at = urlsplit(url)
    if at.scheme != "https":
        return http.client.HTTPConnection(at.hostname or "", at.port, timeout=timeout_wall_s)
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(at.hostname or "", at.port, timeout=timeout_wall_s, context=context)


def _waiting_for(text: str) -> str:
    try:
        return str(json.loads(text).get("waitingFor") or "not ready")
    except (ValueError, AttributeError):
        return text.strip()[:200] or "not ready"


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


if __name__ == "__main__":
    import sys

    seen = probe_readiness(sys.argv[1], 3.0)
    print(seen.waiting_for or "ready")
    sys.exit(0 if seen.ready else 1)
