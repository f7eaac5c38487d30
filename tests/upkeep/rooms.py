"""The rooms of a package: which imports which, in the order of its floors, and what each says that it owns.

Read from the imports in the code, those for type checking included, so the picture cannot differ from it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import networkx as nx

from tests.golden import ROOT

PACKAGES = (
    "matrixcommon",
    "matrixresource",
    "matrixresource.scheduler",
    "matrixlink",
    "matrixlink.fabric",
    "matrixcompute",
    "matrixcontainer",
    "matrixcontainer.kubeapi",
    "infer_workload",
    "services.console",
    "services.matrixctl",
    "services.node_agent",
)


def picture(package: str) -> str:
    """The floors of a package, the top one first, and a sentence for each room. Imports point down only."""
    rooms = [room for room in sorted(graph(package)) if (folder(package) / room).is_dir()]
    lines = [
        "```",
        *(" | ".join(floor) for floor in floors(package)),
        "```",
        "",
        "| room | what it owns |",
        "| --- | --- |",
    ]
    lines += [f"| `{room}` | {sentence(package, room)} |" for room in rooms]
    return "\n".join(lines) + "\n"


def floors(package: str) -> list[list[str]]:
    """Rooms and modules of a package, each above all that it imports. Raises where they go round in a circle."""
    imports = graph(package)
    level: dict[str, int] = {}
    for room in reversed(list(nx.topological_sort(imports))):
        level[room] = 1 + max((level[below] for below in imports.successors(room)), default=-1)
    found: dict[int, list[str]] = defaultdict(list)
    for room, height in level.items():
        found[height].append(room)
    return [sorted(found[height]) for height in sorted(found, reverse=True)]


def sentence(package: str, room: str) -> str:
    tree = ast.parse((folder(package) / room / "__init__.py").read_text())
    return " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())


@cache
def graph(package: str) -> nx.DiGraph:
    """Rooms and modules of a package, an edge from each to what it imports."""
    imports = nx.DiGraph()
    for file in sorted(folder(package).rglob("*.py")):
        parts = file.relative_to(folder(package)).with_suffix("").parts
        room = parts[0]
        if room.startswith("__") or "migrations" in parts:
            continue
        imports.add_node(room)
        below = {name[len(package) + 1 :].split(".")[0] for name in imported(file) if name.startswith(f"{package}.")}
        imports.add_edges_from((room, other) for other in below - {room} if is_module(f"{package}.{other}"))
    return imports


def imported(file: Path) -> list[str]:
    """The modules that a file imports, by their full names."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [full if is_module(full := f"{node.module}.{alias.name}") else node.module for alias in node.names]
    return names


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def folder(package: str) -> Path:
    return ROOT.joinpath(*package.split("."))
