"""Rewrite every generated text: `python -m tests.upkeep.regenerate`; with --check only say which are out of date."""

from __future__ import annotations

import sys

from tests.upkeep.generated import GENERATED


def main(arguments: list[str]) -> int:
    checking = "--check" in arguments
    here = [entry for entry in GENERATED if not entry.missing()]
    late = [entry for entry in here if (entry.stored() != entry.expected() if checking else entry.rewrite())]
    for entry in GENERATED:
        if why := entry.missing():
            print(f"not looked at: {entry.file}: {why}")
    for entry in late:
        place = f"{entry.file} ({entry.marker})" if entry.marker else entry.file
        print(f"{'out of date' if checking else 'rewrote'}: {place}")
    if checking and late:
        print("`make regenerate` rewrites them")
    return 1 if checking and late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
