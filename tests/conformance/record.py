"""Writes anew what differs: `python -m tests.conformance.record` runs every case on both servers and rewrites open.yaml.

    python -m tests.conformance.record [--print] [case ...]

With case names (or parts of them) only those are run, and nothing is written; `--print` shows every difference in full.
Prints failures on the real server: those are faults of the suite, and are never recorded.
"""

import argparse
import sys

import yaml

from tests.conformance.catalogue import CASES
from tests.conformance.differences import OPEN, parted
from tests.conformance.runner import EMBEDDED, REAL, Bench

KEPT_LINES = 3
KEPT_CHARACTERS = 260


def main() -> int:
    parser = argparse.ArgumentParser(description="Record what differs between the embedded API and a real one.")
    parser.add_argument("--print", action="store_true", help="show every difference in full")
    parser.add_argument("parts", nargs="*", help="only cases whose names hold one of these; nothing is written")
    given = parser.parse_args()
    names = [name for name in sorted(CASES) if not given.parts or any(part in name for part in given.parts)]
    found, wrong = {}, 0
    with Bench() as bench:
        for server in (EMBEDDED, REAL):
            bench.begin(server, names)
        for name in names:
            ours, theirs = bench.outcome(EMBEDDED, name), bench.outcome(REAL, name)
            if theirs.failure:
                wrong += 1
                print(f"the real server fails {name}: {theirs.failure[:1500]}")
            lines = parted(name, ours, theirs)
            entry = {"fails": ours.failure[:KEPT_CHARACTERS]} if ours.failure else {}
            if lines:
                entry |= {"differs": [line[:KEPT_CHARACTERS] for line in lines[:KEPT_LINES]]}
            if entry:
                found[name] = entry
            if given.print and entry:
                print(f"\n{name} [{CASES[name].level}]", *([ours.failure] if ours.failure else []), *lines, sep="\n  ")
    if not given.parts and not wrong:
        OPEN.write_text(yaml.safe_dump(found, sort_keys=True, allow_unicode=True, width=118))
    by_level = {level: sum(1 for name in found if CASES[name].level == level) for level in ("P0", "P1", "P2")}
    print(f"{len(names)} cases; {len(found)} differ ({by_level}); the real server fails {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
