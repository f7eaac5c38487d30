"""Every page in Chromium: what it says (as golden text), that anybody can use it, with keys alone and on a phone.

Golden texts are in tests/golden/console; `CONSOLE_GOLDEN=write python -m pytest tests/e2e/console` writes them anew.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

import pytest

from tests.e2e.conftest import RealStack
from tests.e2e.console.conftest import INSTANCE, SETTLE_MS
from tests.golden import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

GOLDEN = ROOT / "tests" / "golden" / "console"
WRITING_MS = 4000
PAGES = {
    "overview": ("/", "Communication cabinet sn0-c15"),
    "node": ("/nodes/sn0-c00-n0?npu=3", "die 6: healthy"),
    "instances": ("/instances", "2 of 2"),
    "instance": (f"/instances/default/{INSTANCE}", "nothing is under way"),
    "placement": ("/placement?nodes=4", "It fits"),
    "placement-refused": ("/placement?nodes=48", "It does not fit"),
    "fabric": ("/fabric", "5,376 links"),
    "faults": ("/faults?kind=node-down&target=sn0-c11-n3", "A cabinet loses power"),
    "serving": ("/serving", "No model is being served"),
    "tenants": ("/tenants", "No model has been used."),
    "experiments": ("/experiments", "60 requests on 6 nodes"),
    "report": ("/experiments/default/before", "Figures of before"),
    "report-compared": ("/experiments/default/before?with=default%2Fafter", "From before to after"),
    "missing": ("/no/such/page", "Page not found"),
}
"""By name: the address, and a text by which it is seen to be complete."""


def settled(page: Any, text: str) -> None:
    page.locator("main").get_by_text(text).or_(page.get_by_label(text)).first.wait_for()


def stable(snapshot: str) -> str:
    """The snapshot without what differs from run to run: times, durations, ports, and all cabinets but the first."""
    others = r'^    - region "(?:Cabinet|Communication cabinet) (?!sn0-c00|sn0-c12)[^"]*":\n(?:^ {6}.*\n)*'
    snapshot = re.sub(others, "", snapshot, flags=re.MULTILINE)
    snapshot = re.sub(r"(\b\d{1,2} [A-Z][a-z]{2,3} )?\d\d:\d\d:\d\d", "TIME", snapshot)
    snapshot = re.sub(r"\b\d+(\.\d)? (ms|s|min|h)( \d+ (s|min))?\b", "DURATION", snapshot)
    snapshot = re.sub(r'(slider "[^"]*"): "\d+"', r"\1", snapshot)
    snapshot = re.sub(r"127\.0\.0\.1:\d+", "HOST", snapshot)
    return re.sub(r"v\d+-[0-9a-f]{12}", "VERSION", snapshot) + "\n"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_should(open_page: Any, name: str) -> None:
    path, text = PAGES[name]
    page = open_page(path)
    settled(page, text)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get("CONSOLE_GOLDEN") == "write":
        page.wait_for_timeout(WRITING_MS)  # a person looks at what is written; a test below waits for what it should be
        file.parent.mkdir(exist_ok=True)
        file.write_text(stable(page.locator("main").aria_snapshot()))
    expected, seen = file.read_text(), ""
    deadline = time.monotonic() + SETTLE_MS / 1000
    while seen != expected and time.monotonic() < deadline:  # its parts come one after another
        seen = stable(page.locator("main").aria_snapshot())
    assert seen == expected, f"{file.name}: CONSOLE_GOLDEN=write writes it anew"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(open_page: Any, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = open_page("/", color_scheme=scheme)
    for name, (path, text) in PAGES.items():
        visit(page, path)
        settled(page, text)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{name} in {scheme}: {found.generate_report()}"


@pytest.mark.parametrize("width", [375, 800, 1024, 1280])
def test_every_page_is_usable_at_any_width(open_page: Any, width: int) -> None:
    page = open_page("/")
    page.set_viewport_size({"width": width, "height": 740})
    for name, (path, text) in PAGES.items():
        visit(page, path)
        settled(page, text)
        seen = page.evaluate("document.scrollingElement.scrollWidth")
        assert seen <= width, f"{name} is {seen} px wide"
    hidden = page.evaluate(
        """() => [...document.querySelectorAll('nav a')].filter((link) => {
            const {left, top, width, height} = link.getBoundingClientRect();
            return document.elementFromPoint(left + width / 2, top + height / 2) !== link;
        }).map((link) => link.textContent)"""
    )
    assert hidden == [], "each page is in the menu"


def test_the_keyboard_alone_goes_everywhere(open_page: Any) -> None:
    page = open_page("/")
    page.get_by_label("sn0-c00-n0 NPU 0").wait_for()
    page.get_by_label("L2 chip sn0-l2p0-k00").wait_for()
    focused: Any = lambda: page.evaluate(  # noqa: E731
        "() => document.activeElement.ariaLabel || document.activeElement.textContent.trim()"
    )
    seen: list[str] = []
    while "sn0-c00-n0 NPU 0" not in (seen or [""])[-1]:
        page.keyboard.press("Tab")
        seen.append(focused())
        assert len(seen) < 40, seen
    assert seen[0] == "Skip to content"
    assert {"Overview", "Instances", "Placement", "Fabric", "Faults", "Serving", "Tenants", "Experiments"} <= set(seen)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "where one is can be seen"
    for key, label in (
        ("ArrowRight", "sn0-c00-n0 NPU 1"),
        ("ArrowDown", "sn0-c00-n1 NPU 1"),
        ("End", "sn0-c11-n3 NPU 7"),
    ):
        page.keyboard.press(key)
        assert focused().startswith(label)
    for key, label in (
        ("Tab", "L2 chip sn0-l2p0-k00"),
        ("ArrowRight", "L2 chip sn0-l2p0-k01"),
        ("End", "L2 chip sn0-l2p6-k15"),
        ("Shift+Tab", "sn0-c11-n3 NPU 7"),
    ):
        page.keyboard.press(key)
        assert focused().startswith(label)
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/sn0-c11-n3?npu=7")
    settled(page, "die 14: healthy")
    assert page.evaluate("document.activeElement.id") == "main", "a new page begins at its beginning"
    page.get_by_role("button", name="Cordon").press("Enter")
    page.get_by_role("dialog").get_by_text("matrixctl node cordon sn0-c11-n3").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")


def test_each_control_of_a_page_can_be_reached_by_tab(open_page: Any) -> None:
    page = open_page("/")
    for path, text in PAGES.values():
        visit(page, path)
        settled(page, text)
        unreachable = page.evaluate(
            """() => [...document.querySelectorAll('main a[href], main button, main input, main select, main summary')]
                .filter((each) => each.tabIndex < 0 && each.offsetParent && !each.closest('cm-rack, .switches')).map((each) => each.outerHTML)"""
        )
        assert unreachable == [], path


def test_the_npus_of_a_quota_are_set_without_its_other_limits(open_page: Any, stack: RealStack) -> None:
    quota = "/v1/quotas/with-memory"
    stack.client.call("resource", "PUT", quota, body={"npus": 8, "memoryGib": 512})
    try:
        page = open_page("/tenants")
        page.get_by_text("0 of 8 NPUs").wait_for()
        page.get_by_role("textbox", name="Project").fill("with-memory")
        page.get_by_label("NPUs at most").fill("16")
        page.get_by_role("button", name="Set the quota").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("matrixctl quota set with-memory --npus 16 --memory-gib 512").wait_for()
        dialog.get_by_role("button", name="Set the quota").click()
        page.get_by_text("0 of 16 NPUs").wait_for()
        assert stack.client.call("resource", "GET", quota)["memoryGib"] == 512
    finally:
        stack.client.call("resource", "DELETE", quota)


def visit(page: Any, path: str) -> None:
    """Go there as a link does: without loading the page anew."""
    page.evaluate(
        """(path) => { const link = document.createElement('a'); link.href = path;
        document.body.append(link); link.click(); link.remove(); }""",
        path,
    )
