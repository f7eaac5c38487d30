"""Compile the allocator's core to machine code: `python -m matrixresource.native_allocator`, needed once per version.

Exit code 0: compiled, now or earlier; 3: cannot be compiled here, with the reason; 1: compiling failed. With `--check`
it prints which form this process would use, and exits with 1 if that is the interpreted one.
"""

from __future__ import annotations

import sys
import time

from matrixcommon.native.build import BuildFailed, build, missing_requirements
from matrixcommon.native.loader import build_folder
from matrixresource.scheduler import ALLOCATOR, FORM

EXIT_CANNOT_COMPILE = 3


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        return check()
    if (missing_tool := missing_requirements()) and not build_folder(ALLOCATOR).exists():
        print(f"the allocator is not compiled: {missing_tool}; it runs interpreted, more slowly")
        return EXIT_CANNOT_COMPILE
    started, exists = time.monotonic(), build_folder(ALLOCATOR).exists()
    try:
        target = build(ALLOCATOR)
    except (BuildFailed, OSError) as error:
        print(f"the allocator could not be compiled: {error}", file=sys.stderr)
        return 1
    print(f"the allocator is compiled {'already' if exists else f'in {time.monotonic() - started:.0f} s'}: {target}")
    return 0


def check() -> int:
    print(f"the allocator is {FORM}")
    return 0 if FORM.compiled else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
