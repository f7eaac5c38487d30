"""What documentation names of the code: files, `Class.attribute`, `module.function`, and single identifiers.

Names are looked up in the sources as they stand, so that a page does not go on leading to what was renamed or has gone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.docs.tracked import tracked
from tests.golden import ROOT

SOURCES = (".py", ".c", ".js", ".yaml", ".json", ".toml", ".mako", ".gz")
UNCHECKED = ("docs/decisions/", "docs/reference/metrics.md", "docs/reference/settings.md", "CHANGELOG.md")
"""Decisions are of their day; what is printed from the code names what the code names."""

OTHERS = frozenset({"synchronous_commit", "ServerIndex", "spec", "status", "metadata", "cel", "go", "v0", "agents.db"})
"""Names that are not in the code: of PostgreSQL, MindCluster, Kubernetes objects and Go, and of files that are made as it
runs. Of a name with dots, its beginning."""

FILE = re.compile(r"[\w./-]+\.(py|c|js|yaml|json|toml|gz)")
DOTTED = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*(?:\(.*\))?")
IDENTIFIER = re.compile(r"_?[A-Z][a-z]+(?:[A-Z][a-z0-9]*)+|_?[a-z0-9]+(?:_[a-z0-9]+)+")
FENCED = re.compile(r"```.*?```", re.DOTALL)
GENERATED = re.compile(r"<!-- generated:.*?<!-- /generated -->", re.DOTALL)


@dataclass
class Code:
    """What the sources define, and every word that is in them."""

    files: list[str]
    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By source file, what Python code in it defines or uses."""
    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By the name of a class, the files that define one."""
    words: set[str] = field(default_factory=set)

    def has_file(self, named: str) -> bool:
        return any(each == named or each.endswith(f"/{named}") for each in self.files)

    def modules(self, name: str) -> list[str]:
        """Modules and packages of that name."""
        ends = (f"/{name}.py", f"/{name}/__init__.py")
        return [each for each in self.files if f"/{each}".endswith(ends)]

    def within(self, module: str, name: str) -> bool:
        """Whether a module defines that name, or a package has such a module."""
        folder = module.removesuffix("__init__.py")
        beside = module.endswith("__init__.py") and self.has_file(f"{folder}{name}.py")
        return name in self.names[module] or beside or f"{folder}{name}/__init__.py" in self.files

    def resolves(self, first: str, second: str) -> bool | None:
        """Whether `first.second` is there; None where `first` is neither a class nor a module."""
        if first in self.classes:
            return any(second in self.names[each] for each in self.classes[first])
        there = self.modules(first)
        return any(self.within(each, second) for each in there) if there else None


def read_code() -> Code:
    listed = [str(each.relative_to(ROOT)) for each in tracked()]
    code = Code([each for each in listed if each.endswith(SOURCES)])
    for file in code.files:
        text = "" if file.endswith(".gz") else (ROOT / file).read_text("utf-8", errors="replace")
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        code.words |= words
        if file.startswith("tests/"):  # more than half of the sources, and hardly named
            code.names[file] = words
        elif file.endswith(".py"):
            _read_module(code, file, ast.parse(text))
    return code


def _read_module(code: Code, file: str, tree: ast.AST) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                code.classes[name].add(file)
                code.names[file].add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name):
                code.names[file].add(name)
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                code.names[file].add(name)
            case ast.alias():
                code.names[file].add((node.asname or node.name).rpartition(".")[2])


def pages() -> list[str]:
    listed = [str(each.relative_to(ROOT)) for each in tracked("*.md")]
    return [each for each in listed if not each.startswith(UNCHECKED)]


def unknown(code: Code, page: str) -> Iterator[str]:
    """What a page names that is not in the code, each with its line."""
    text = (ROOT / page).read_text("utf-8")
    for skipped in (FENCED, GENERATED):
        text = skipped.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        for token in re.findall(r"`([^`]+)`", line):
            if not _is_there(code, page, token):
                yield f"{page}:{number}: {token}"


def _is_there(code: Code, page: str, token: str) -> bool:
    if FILE.fullmatch(token):
        return token.startswith((".", "-", "~", "/")) or code.has_file(token)
    if (dotted := DOTTED.fullmatch(token)) is not None:
        first, second = dotted[1], dotted[2]
        if first in OTHERS or token in OTHERS:
            return True
        found = code.resolves(first, second)
        of_a_package = not page.startswith("docs/")  # a manual names fields of documents and settings of a chart too
        return found is True or (not first[:1].isupper() and not of_a_package and second in code.words)
    if IDENTIFIER.fullmatch(token):
        return token in code.words or token in OTHERS
    return True
