"""`python -m benchmarks [name ...]`: run the benchmarks named, or all of them. Exit code 1 when a goal was missed."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> int:
    known = [found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.name != "__main__"]
    unknown = set(names) - set(known)
    if unknown:
        print(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or known:
        module = importlib.import_module(f"benchmarks.{name}")
        if not hasattr(module, "measure"):
            continue
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        for figure in module.measure():
            print(figure.line(), flush=True)
            missed += figure.verdict == "MISSED"
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
