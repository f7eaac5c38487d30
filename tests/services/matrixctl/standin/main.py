"""Answers /healthz and /readyz, shows its settings at /settings, dies at /die?code=N, stops on SIGTERM.

CLOUDMATRIX_STANDIN_<NAME> may say `exit` (ends at once), `deaf` (ignores SIGTERM) or `asks` (on SIGTERM asks alpha once
more, and logs whether it answered) for the process of that name.
"""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/die"):
            os._exit(int(self.path.rpartition("=")[2]))
        settings = {key: value for key, value in os.environ.items() if key.startswith("CLOUDMATRIX_")}
        body = json.dumps(settings | {"cwd": os.getcwd(), "pid": os.getpid(), "sid": os.getsid(0)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(HTTPServer):
    allow_reuse_address = True


def ask_alpha(*_: object) -> None:
    try:
        with urlopen(os.environ["CLOUDMATRIX_ALPHA_URL"], timeout=5) as answer:
            print(f"alpha answered {answer.status}", file=sys.stderr)
    except OSError as failure:
        print(f"alpha did not answer: {failure}", file=sys.stderr)
    sys.exit(0)


def main(argv: list[str] | None = None) -> None:
    name = Path("/proc/self/comm").read_text().strip().removeprefix("cm-")
    manner = os.environ.get(f"CLOUDMATRIX_STANDIN_{name.upper()}", "")
    if manner == "exit":
        raise SystemExit(3)
    if manner == "asks":
        signal.signal(signal.SIGTERM, ask_alpha)
    elif manner != "deaf":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"{name} says hello", file=sys.stderr)
    with Server((os.environ["CLOUDMATRIX_HOST"], int(os.environ["CLOUDMATRIX_PORT"])), Answers) as server:
        server.serve_forever(poll_interval=0.05)
