"""What is needed once, before serving: certificates and migrations, done in a child process.

Alembic and the certificate library are tens of megabytes that a server at rest has no use for. The child loads them,
does the work and ends, and the memory goes with it. It is forked before any thread, loop or connection exists.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


class Refused(Exception):
    """What the person who starts the process should read: one line, and no traceback."""


class Child:
    """`work` in a forked child, which begins at once; `wait` for its end before its results are used."""

    def __init__(self, work: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _run(work)

    def wait(self) -> None:
        """Exits with 1 when the work failed, after the child has told why."""
        _, status = os.waitpid(self._pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(1)


def _run(work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except Refused as failure:
        print(f"kube: {failure}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
