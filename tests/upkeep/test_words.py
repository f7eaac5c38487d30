"""The field's words: private ones are gone from identifiers, help, messages, docs and OpenAPI (docs/reference/glossary.md).
What docs name is there."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator

import pytest

from tests.golden import ROOT

IDENTIFIER_WORDS = {
    "wish", "wishes", "wished", "told", "said", "deed", "deeds", "kin", "hurt", "mend", "mended", "mends", "tend",
    "tending", "held",
}  # fmt: skip
IDENTIFIER_PHRASES = re.compile(
    r"(puts?|putting)_out|gives?_way|turned?_round|takes?_back|taken_back|looks?_after|once_more"
)
PROSE = re.compile(
    r"\b(wish(es|ed)?|deeds?|(puts|putting) out|gives? way|giving way|turn(s|ed)? round|its kin|hurts?|"
    r"mend(s|ed|ing)?|takes? back|taken back|looks? after|once more|goes on)\b",
    re.IGNORECASE,
)
"""told, said, held and tend are left in prose: as English verbs they say what they say everywhere."""
EXCEPTIONS = {
    "HeldAllocation": "an allocation that is held: a standard term of schedulers' ledgers",
    "HeldProgram": "the same of a node's program",
    "PartlyHeld": "a reason: parts of the node are held",
}
"""Identifiers that may stay, each with its reason."""
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.*-]+)`")
"""In docs: a path from the repository's root, where its first folder is one of the project's."""
LISTED = ("README.md", "docs/*.md", "docs/reference/openapi/*.json", "*/README.md", "examples/*", "charts/**/*.yaml")
ELSEWHERE = (
    "docs/decisions/",  # history: what was decided in the words of its day
    "tests/conformance/",  # sentences recorded from a real Kubernetes API
    "tests/golden/",
)


def files(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.split() if not file.startswith(ELSEWHERE) and (ROOT / file).is_file()]


def identifiers(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name


def is_private(identifier: str) -> bool:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower()
    if identifier in EXCEPTIONS or identifier.startswith("test_"):
        return False
    return bool(IDENTIFIER_WORDS & set(snake.split("_")) or IDENTIFIER_PHRASES.search(snake))


def strings(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


@pytest.mark.parametrize("package", ["matrixcommon", "matrixresource", "matrixlink", "matrixcompute", "matrixcontainer",
                                     "infer_workload", "services", "benchmarks", "tests"])  # fmt: skip
def test_identifiers_are_the_fields(package: str) -> None:
    found = [
        f"{file}:{line} {name}"
        for file in files(f"{package}/*.py")
        for line, name in identifiers((ROOT / file).read_text())
        if is_private(name)
    ]
    assert not found, f"{len(found)} private words; docs/reference/glossary.md has the field's: " + ", ".join(
        found[:20]
    )


@pytest.mark.parametrize("package", ["matrixcommon", "matrixresource", "matrixlink", "matrixcompute", "infer_workload",
                                     "services", "matrixcontainer/operator", "matrixcontainer/scheduler"])  # fmt: skip
def test_messages_and_comments_are_in_the_fields_words(package: str) -> None:
    found = [
        f"{file}:{line} {match[0]!r}"
        for file in files(f"{package}/*.py")
        if not file.endswith("synthetic_tokens.py")  # a list of English words
        for line, text in strings((ROOT / file).read_text())
        if (match := PROSE.search(text))
    ]
    assert not found, "; ".join(found[:20])


def test_docs_are_in_the_fields_words() -> None:
    found = [f"{file}: {match[0]!r}" for file in files(*LISTED) if (match := PROSE.search((ROOT / file).read_text()))]
    assert not found, "; ".join(found)


def test_docs_name_files_that_are_there() -> None:
    listed = {file: FILE.findall((ROOT / file).read_text()) for file in files("*.md") if file != "CHANGELOG.md"}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} | {"docker"}  # which is no more
    found = [
        f"{file}: {name}"
        for file, names in listed.items()
        for name in names
        if name.split("/")[0] in folders and not [*ROOT.glob(name), *(ROOT / file).parent.glob(name)]
    ]
    assert not found, "; ".join(found)
