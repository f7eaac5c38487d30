"""A function and a file can be held in the head and a folder read at a glance: at most 100 lines, at most 400 lines, at
most 20 modules."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

from tests.golden import ROOT

LINES = 400
FUNCTION_LINES = 100
MODULES = 20
LONGER = {
    "tests/conformance/cases/definitions.py": "a list of cases, read one at a time",
    "tests/conformance/cases/deletion.py": "a list of cases, read one at a time",
    "tests/conformance/cases/objects.py": "a list of cases, read one at a time",
    "tests/conformance/cases/patches.py": "a list of cases, read one at a time",
    "tests/simulation/test_allocator_lives.py": "the rules of one hypothesis state machine share its state",
}
"""Files that may be longer, each with its reason."""
ENTRIES = {"__init__.py", "__main__.py"}
ROOT_ENTRIES = {
    *(".ci", ".dockerignore", ".gitignore"),
    *("CHANGELOG.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "SECURITY.md"),
    *("docker-compose.yml", "pyproject.toml", "requirements-test.lock", "requirements.lock"),
    *("benchmarks", "charts", "docs", "examples", "infer_workload", "matrixcommon", "matrixcompute"),
    *("matrixcontainer", "matrixlink", "matrixresource", "services", "tests"),
}


def python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_files_are_short_or_say_why_not() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    long = {name for name, lines in lengths.items() if lines > LINES}
    assert long == set(LONGER), "split it, or name it here with its reason; a name that is short by now goes"


def test_functions_are_short() -> None:
    """What is declared inside one, as handlers are inside the function of their routes, counts as its lines."""
    texts = ((path, path.read_text("utf-8")) for path in python_files())
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, text in texts
        if text.count("\n") > FUNCTION_LINES
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}, "cut it by subject"


def test_folders_hold_few_modules() -> None:
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in python_files() if path.name not in ENTRIES)
    assert {name: modules for name, modules in folders.items() if modules > MODULES} == {}


def test_the_root_holds_the_parts_and_nothing_left_behind() -> None:
    """A report written by trying a command is committed quickly and found late."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert {name.split("/")[0] for name in listed.stdout.splitlines()} == ROOT_ENTRIES
