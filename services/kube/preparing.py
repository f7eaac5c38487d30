"""What is needed once, before serving: certificates and migrations, done in a child process.

Alembic and the certificate library are tens of megabytes that a server at rest has no use for. The child loads them,
does the work and ends, and the memory goes with it. It is forked before any thread, loop or connection exists.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def in_a_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child; exits with 1 when it fails, after the child has told why."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(1)
