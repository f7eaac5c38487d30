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

Work = Callable[[], tuple[dict[str, Any], list[int]]]


class Refused(Exception):
    """A failure to report to the user as one line without a traceback."""


class Child:
    """Runs `work` in a forked child, starting at once; `result` waits for its return value, a dict and open files."""

    def __init__(self, work: Work) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            _run(work, theirs)
        theirs.close()

    def result(self) -> tuple[dict[str, Any], list[int]]:
        """The child's result. If it exited without one, having printed why, exit with its code."""
        reported, files, _, _ = socket.recv_fds(self._ours, RESULT_BYTES_MAX, FILES_MAX)
        self._ours.close()
        _, status = os.waitpid(self._pid, 0)
        if not reported:
            raise SystemExit(max(os.waitstatus_to_exitcode(status), -1) % 256)
        return json.loads(reported), files


def _run(work: Work, end: socket.socket) -> NoReturn:
    code = 1
    try:
        result, files = work()
        socket.send_fds(end, [json.dumps(result).encode()], files)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except Refused as failure:
        print(f"kube: {failure}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
