"""Decision 872: no field of a model has a factory of which the signature cannot be read off its code."""

from __future__ import annotations

import re

from tests.upkeep.test_sizes import ROOT, python_files

BUILT_IN = re.compile(r"\bField\(\s*(?:[^()]*?,\s*)?default_factory=(?:list|dict|set|frozenset|tuple)\b")


def test_empty_collections_of_models_have_factories_of_their_own() -> None:
    product = [path for path in python_files() if path.relative_to(ROOT).parts[0] not in ("tests", "benchmarks")]
    assert [str(path.relative_to(ROOT)) for path in product if BUILT_IN.search(path.read_text("utf-8"))] == []
