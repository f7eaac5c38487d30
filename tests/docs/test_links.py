"""Links between texts lead somewhere: files, headings, and the pages that code, help and comments name."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.docs.tracked import tracked
from tests.golden import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
NAMED_PAGE = re.compile(r"(?<![\w./-])docs/[\w./-]+\.(?:md|json|svg|png)")
"""A page named by its path from the top, as code and help do."""


@cache
def anchors(page: Path) -> frozenset[str]:
    """The headings of a page as GitHub names them: lower case, spaces to hyphens, punctuation dropped."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", FENCED.sub("", page.read_text()), re.MULTILINE):
        words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return frozenset(found)


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in tracked("*.md"):
        for target in LINK.findall(CODE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, heading = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (heading and heading not in anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, broken


def test_every_page_that_a_text_names_exists() -> None:
    broken: list[str] = []
    for file in tracked(
        "*.py", "*.md", "*.yaml", "*.yml", "*.toml", "Makefile", "Dockerfile", "*.txt", "*.js", "*.json"
    ):
        if ROOT / "tests" in file.parents and file.suffix == ".json":
            continue
        named = NAMED_PAGE.findall(file.read_text())
        broken += [f"{file.relative_to(ROOT)}: {page}" for page in named if not (ROOT / page).exists()]
    assert not broken, broken


def test_the_index_has_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text())}
    pages = {page for page in tracked("docs/*.md") if page.parent.name != "decisions"} - {index}
    assert pages <= linked, sorted(str(page.relative_to(ROOT)) for page in pages - linked)
