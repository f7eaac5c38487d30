"""What the contract has and this version has not: the README names all of it."""

from __future__ import annotations

from pathlib import Path

from matrixcompute.access import NOT_YET

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_names_every_collection_that_is_refused() -> None:
    row = next(line for line in README.read_text().splitlines() if line.startswith("| MatrixCompute |"))
    not_yet = row.rsplit("|", 2)[1]
    for collection in NOT_YET:
        assert collection.replace("-", " ") in not_yet
