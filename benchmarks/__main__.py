"""`python -m benchmarks [name ...]`: run the benchmarks named, or all of them. Exit code 1 when a goal was missed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import benchmarks


def list_benchmarks() -> list[str]:
    """Return the names of modules with a `measure`, without importing them. Other modules are helpers or programs."""
    found = []
    for module in pkgutil.iter_modules(benchmarks.__path__):
        place = Path(benchmarks.__path__[0]) / module.name
        file = place / "__init__.py" if module.ispkg else place.with_suffix(".py")
        body = ast.parse(file.read_text()).body
        if any(isinstance(node, ast.FunctionDef) and node.name == "measure" for node in body):
            found.append(module.name)
    return found


def main(names: list[str]) -> int:
    names, all_names = names or list_benchmarks(), list_benchmarks()
    if unknown := set(names) - set(all_names):
        print(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(all_names)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}")
        for figure in module.measure():
            print(figure.line(), flush=True)
            missed += figure.verdict == "MISSED"
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
