"""What a frame of the live picture costs the page: what changed is drawn anew, nothing else, and then the page rests."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.screenshots import browser
from tests.screenshots.machine import WALL_S, Recorded, recorded
from tests.screenshots.site import served

pytestmark = pytest.mark.timeout(120)
OTHER = "sn1"
PATCHED = """async ({ patch }) => {
  const { live } = await import("/core/live.js");
  const { applyMergePatch } = await import("/core/merge.js");
  const touched = new Set();
  const seen = new MutationObserver((all) => {
    for (const { target } of all) {
      const element = target instanceof Element ? target : target.parentElement;
      const part = element?.closest(".node, .cabinet > header, .tile, .headline, .feed, .heading, .slider");
      const name = part?.querySelector("a")?.title || part?.dataset.name || part?.className || part?.tagName;
      touched.add(name ?? element?.tagName);
    }
  });
  seen.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
  live.newest = applyMergePatch(live.newest, patch);
  live.dispatchEvent(new Event("frame"));
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  seen.disconnect();
  const canvases = [...document.querySelectorAll(".tile canvas")].map((each) => each.toDataURL());
  return { touched: [...touched].sort(), moving: document.getAnimations().length, canvases };
}"""


@pytest.fixture(scope="module")
def two() -> Recorded:
    """The recorded machine, and a supernode beside it that is as the first but for its name."""
    one = recorded()
    shown = deepcopy(one.picture)
    first = shown["supernodes"]["sn0"]
    shown["supernodes"][OTHER] = {
        "cabinets": {_renamed(cabinet): [_renamed(node) for node in nodes] for cabinet, nodes in first["cabinets"].items()},
        "states": {_renamed(node): letters for node, letters in first["states"].items()},
        "holders": {},
    }  # fmt: skip
    return replace(one, picture=shown)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.chromium_or_skip() as running:
        yield running


@pytest.fixture
def shown(chromium: Any, two: Recorded) -> Iterator[Any]:
    with served(two) as address:
        page = chromium.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="no-preference")
        page.clock.set_fixed_time(WALL_S)  # seconds, unlike JavaScript
        page.goto(address)
        page.locator("cm-rack .npu[data-s=o]").first.wait_for()
        page.locator(f".tile[data-name={OTHER}]").wait_for()
        yield page
        page.close()


def test_a_frame_in_which_nothing_changed_touches_nothing(shown: Any) -> None:
    shown.evaluate(PATCHED, {"patch": {}})
    again = shown.evaluate(PATCHED, {"patch": {}})
    assert again["touched"] == []
    assert again["moving"] == 0


def test_a_node_that_changes_touches_its_row_its_cabinet_and_the_tile_of_its_supernode(shown: Any) -> None:
    node = "sn0-c06-n1"
    shown.evaluate(PATCHED, {"patch": {}})
    found = shown.evaluate(PATCHED, {"patch": _patch("sn0", node, "xxxxxxxx")})
    assert found["touched"] == sorted(["HEADER", "heading", "sn0", node])
    assert found["moving"] == 0, "nothing is drawn sixty times a second for a change that is done"


def test_a_tile_drawn_by_its_changes_is_as_one_drawn_whole(chromium: Any, shown: Any, two: Recorded) -> None:
    node = f"{OTHER}-c03-n2"
    found = shown.evaluate(PATCHED, {"patch": _patch(OTHER, node, "xfdoschf")})
    after = deepcopy(two)
    after.picture["supernodes"][OTHER]["states"][node] = "xfdoschf"
    with served(after) as address:
        whole = chromium.new_page(viewport={"width": 1280, "height": 900})
        whole.goto(address)
        whole.locator(f".tile[data-name={OTHER}]").wait_for()
        expected = whole.evaluate(PATCHED, {"patch": {}})["canvases"]
        whole.close()
    assert found["canvases"] == expected
    assert found["canvases"][0] != found["canvases"][1], "both tiles are looked at, and differ"


def _patch(supernode: str, node: str, letters: str) -> dict[str, Any]:
    return {"supernodes": {supernode: {"states": {node: letters}}}}


def _renamed(name: str) -> str:
    return name.replace("sn0", OTHER, 1)
