"""The clicks of the tutorial "Your first failure": a node dies and an instance heals, by the browser alone.

What is pressed and filled in here is what docs/tutorials/first-failure.md has in bold, in that order.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.conftest import RealStack
from tests.golden import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "tutorials" / "first-failure.md"
HEALS_MS = 90_000
"""An emulated minute until the loss is noticed takes a second; the rest is a busy machine."""


class Reader:
    """Somebody who does what the tutorial says, and remembers which of its bold words were used."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.used: list[str] = []

    def open(self, name: str) -> None:
        self.used.append(name)
        self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()

    def fill(self, label: str, text: str) -> None:
        self.used.append(label)
        self.page.locator("main").get_by_label(label, exact=True).fill(text)

    def press(self, name: str) -> None:
        self.used.append(name)
        self.page.locator("main").get_by_role("button", name=name, exact=True).click()

    def confirm(self, name: str) -> None:
        self.page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()

    def sees(self, text: str) -> None:
        self.page.locator("main").get_by_text(text).first.wait_for(timeout=HEALS_MS)


def test_a_newcomer_sees_a_node_die_and_an_instance_heal(open_page: Any, stack: RealStack) -> None:
    reader = Reader(page := open_page("/"))
    reader.open("Placement")
    for label, text in (("Nodes", "4"), ("Spares", "1"), ("Name", "frail")):
        reader.fill(label, text)
    reader.press("Plan")
    reader.press("Create it")
    reader.used.append("Create it")
    reader.confirm("Create it")
    page.wait_for_url("**/instances/default/frail*")
    reader.sees("4 of 4 ready")
    page.get_by_role("heading", name="frail").locator("..").get_by_text("Active", exact=True).wait_for(timeout=HEALS_MS)

    members = page.get_by_role("region", name="Members")
    reader.used.append("Members")
    victim = str(members.get_by_role("link").first.inner_text())
    members.get_by_role("link", name=victim).click()
    page.get_by_text("die 15: healthy").or_(page.get_by_label("die 15: healthy")).first.wait_for()

    reader.open("Faults")
    reader.fill("At", victim)
    reader.press("Inject")
    reader.confirm("Inject")
    for reason in ("NodeLost", "NodeReplaced", "Recovered"):
        reader.sees(reason)

    reader.open("Instances")
    page.get_by_role("link", name="frail").click()
    page.get_by_role("heading", name="frail").locator("..").get_by_text("Active", exact=True).wait_for(timeout=HEALS_MS)
    reader.sees("replace node")
    assert victim not in stack.members("frail")

    reader.open("Overview")
    page.get_by_label(f"{victim} NPU 0: out of service").wait_for(timeout=HEALS_MS)
    alert = page.get_by_role("region", name="Alerts").get_by_role("link", name=victim)
    alert.wait_for(timeout=HEALS_MS)

    reader.open("Faults")
    reader.press("Clear")
    reader.confirm("Clear")
    reader.sees("No fault is injected.")
    page.goto(stack.client.url("console"))
    page.get_by_role("region", name="Alerts").wait_for()
    alert.wait_for(state="detached", timeout=HEALS_MS)
    page.goto(stack.client.url("console") + "/instances/default/frail")
    page.get_by_role("region", name="Conditions").get_by_role("row", name=re.compile("SparesAvailable True")).wait_for(
        timeout=HEALS_MS
    )
    reader.press("Delete")
    reader.confirm("Delete")
    page.wait_for_url("**/instances")

    written = re.findall(r"\*\*([^*]+)\*\*", PAGE.read_text("utf-8").split("## The same in the browser")[1])
    assert written == reader.used
