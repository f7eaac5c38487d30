"""A child process for one-time preparation before serving.

The child is forked before any thread, event loop or connection exists. It loads what it needs, does the work, sends its
result and open files to the parent, and exits, which frees its memory. Meanwhile the parent loads what serving needs.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

RESULT_BYTES_MAX = 64 * 1024
FILES_MAX = 4

BootstrapTask = Callable[[], tuple[dict[str, Any], list[int]]]


class BootstrapError(Exception):
    """A failure to report to the user as one line without a traceback."""


class BootstrapProcess:
    """Runs `work` in a forked child, starting at once; `result` waits for its return value, a dict and open files."""

    def __init__(self, task: BootstrapTask) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._socket, child_socket = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _run(task, child_socket)
        child_socket.close()

    def result(self) -> tuple[dict[str, Any], list[int]]:
        """The child's result. If it exited without one, having printed why, exit with its code."""
        reported, files, _, _ = socket.recv_fds(self._socket, RESULT_BYTES_MAX, FILES_MAX)
        self._socket.close()
        _, status = os.waitpid(self._pid, 0)
        if not reported:
            raise SystemExit(max(os.waitstatus_to_exitcode(status), -1) % 256)
        return json.loads(reported), files


def _run(task: BootstrapTask, child_socket: socket.socket) -> NoReturn:
    code = 1
    try:
        result, files = task()
        socket.send_fds(child_socket, [json.dumps(result).encode()], files)
        code = 0
    except SystemExit as exit_request:
        code = exit_request.code if isinstance(exit_request.code, int) else 1
    except BootstrapError as failure:
        print(f"kube: {failure}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
