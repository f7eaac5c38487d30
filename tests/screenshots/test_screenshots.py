"""Pixels of the console: the pictures are as they were, what changes is seen, and how letters are smoothed is not.

That each is as it is in the repository is seen with all that is printed from code (`tests/upkeep/test_generated.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.screenshots import browser
from tests.screenshots.machine import recorded
from tests.screenshots.site import served
from tests.screenshots.studio import AS_TAKEN, FOLDER, SHOTS, TOLERATED, Studio, missing

pytestmark = pytest.mark.timeout(120)
CABINETS, FABRIC, WORKFLOW = (f"{FOLDER}/{name}.png" for name in ("cabinets", "fabric", "workflow"))


@pytest.fixture(scope="module")
def launch() -> Iterator[Any]:
    if why := missing():
        pytest.skip(why)
    with browser.launching() as launch:
        yield launch


@pytest.fixture(scope="module")
def at(launch: Any) -> Iterator[Studio]:
    with served(recorded()) as address:
        yield Studio(launch(*AS_TAKEN), address)


@pytest.fixture(scope="module")
def usual(at: Studio) -> dict[str, bytes]:
    return {name: at.take(shot) for name, shot in SHOTS.items()}


@pytest.mark.parametrize(
    ("what", "name", "style"),
    [
        (
            "one faulty NPU has the colour of a free one",
            CABINETS,
            ".npu[data-s=x] { background: var(--s-f) !important; }",
        ),
        ("nobody says who holds a node", CABINETS, ".holder { visibility: hidden; }"),
        ("cells are closer", CABINETS, ".npus { gap: 1px !important; }"),
        ("the matrix is drawn with other colours", FABRIC, ":root { --heat-1: #ff0000 !important; --s-x: #00ff00; }"),
        ("bars are faint", WORKFLOW, ".bar { opacity: .2; }"),
    ],
)
def test_what_changes_is_seen(at: Studio, usual: dict[str, bytes], what: str, name: str, style: str) -> None:
    assert at.apart(usual[name], at.take(SHOTS[name], style)) > TOLERATED, what


@pytest.mark.parametrize(
    "arguments", [("--font-render-hinting=full",), ("--font-render-hinting=slight", "--enable-lcd-text")]
)
def test_how_a_browser_smooths_letters_is_not(arguments: tuple[str, ...], usual: dict[str, bytes], launch: Any) -> None:
    with served(recorded()) as address:
        other = Studio(launch(*arguments), address)
        apart = {name: other.apart(usual[name], other.take(shot)) for name, shot in SHOTS.items()}
    assert all(part <= TOLERATED for part in apart.values()), apart


def test_a_picture_taken_twice_is_the_same(at: Studio, usual: dict[str, bytes]) -> None:
    for name, shot in SHOTS.items():
        assert at.apart(usual[name], at.take(shot)) == 0.0, name


def test_pictures_of_different_sizes_are_apart(at: Studio, usual: dict[str, bytes]) -> None:
    assert at.apart(usual[CABINETS], usual[WORKFLOW]) == 1.0
