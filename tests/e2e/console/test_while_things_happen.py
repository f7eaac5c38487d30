"""The page while things happen: processes that are killed, tabs by the dozen, a fault that is found and healed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from services.catalogue import PROCESSES
from services.chassis.access import create_token
from tests.e2e.conftest import RealStack, eventually
from tests.e2e.console.conftest import INSTANCE, REPORTS, SETTLE_MS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_the_page_survives_the_kill_of_every_process_without_a_reload(open_page: Any, stack: RealStack) -> None:
    page = open_page("/")
    page.evaluate("window.unbroken = true")
    page.get_by_label("sn0-c00-n0 NPU 0").wait_for()
    for process in PROCESSES:
        before = stack.stack().children[process.name]
        os.kill(before.pid, signal.SIGKILL)
        if process.name == "console":
            page.get_by_role("status").get_by_text("Reconnecting").wait_for()
            assert page.get_by_label("sn0-c00-n0 NPU 0").is_visible(), "what was known last is still there"
            page.get_by_role("status").get_by_text("Reconnecting").wait_for(state="hidden")
    eventually(stack.all_ready, "everything is back")
    expect(page.get_by_text("it does not answer")).to_have_count(0, timeout=SETTLE_MS)
    node = "sn0-c10-n0"
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:cordon")
    page.get_by_label(f"{node} NPU 0: out of service").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:uncordon")
    page.get_by_label(f"{node} NPU 0: free").wait_for()
    assert page.evaluate("window.unbroken") is True


def test_eight_tabs_are_live(open_page: Any, stack: RealStack) -> None:
    first = open_page("/")
    tabs = [first, *(first.context.new_page() for _ in range(7))]
    for tab in tabs[1:]:
        tab.goto(stack.client.url("console"))
    node = "sn0-c09-n0"
    for tab in tabs:
        tab.get_by_label(f"{node} NPU 0: free").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:cordon")
    for tab in tabs:
        tab.get_by_label(f"{node} NPU 0: out of service").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:uncordon")


def test_a_tenant_sees_the_machine_and_not_who_else_is_on_it(open_page: Any, stack: RealStack) -> None:
    token = create_token(stack.folder.tokens, "guest", "blue", "viewer")
    page = open_page("/", token=token)
    page.get_by_label("(another project's)").first.wait_for()
    assert page.get_by_text(INSTANCE).count() == 0
    page.get_by_role("link", name="Faults").click()
    page.get_by_text("Requires an admin").first.wait_for()
    assert page.get_by_role("button", name="Inject").get_attribute("aria-disabled") == "true"


def test_a_fault_is_injected_by_click_found_and_healed_before_ones_eyes(open_page: Any, stack: RealStack) -> None:
    victim = stack.members(INSTANCE)[0]
    page = open_page(f"/faults?kind=npu-fault&target={victim}")
    page.get_by_label("Parameters").fill("npu=3 die=1")
    page.get_by_role("button", name="Inject").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(f"matrixctl fault inject npu-fault {victim} -p npu=3 -p die=1").wait_for()
    dialog.get_by_role("button", name="Inject").click()
    page.get_by_role("region", name="Detected").get_by_text("npu3-die1").wait_for()
    page.get_by_text("Recovered").first.wait_for(timeout=60_000)
    page.goto(stack.client.url("console") + f"/instances/default/{INSTANCE}")
    page.get_by_text("replace node").wait_for()
    page.get_by_role("img", name="replace members").wait_for()
    page.goto(stack.client.url("console") + f"/nodes/{victim}?npu=3")
    page.get_by_text("die 7: unhealthy").wait_for()
    page.goto(stack.client.url("console") + "/faults")
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("dialog").get_by_role("button", name="Clear").click()
    page.get_by_text("No fault is injected.").wait_for()


def test_a_one_time_link_logs_in_and_is_forgotten(chromium: Any, stack: RealStack) -> None:
    code = stack.client.call("console", "POST", "/login-links")["code"]
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{stack.client.url('console')}/#login={code}")
    page.get_by_text("largest block").first.wait_for()
    assert code not in page.url
    other = chromium.new_context()
    late = other.new_page()
    late.goto(f"{stack.client.url('console')}/#login={code}")
    late.get_by_role("alert").get_by_text("this link has been used").wait_for()
    context.close()
    other.close()


def test_the_slider_shows_what_was(open_page: Any, stack: RealStack) -> None:
    page = open_page("/")
    node = "sn0-c08-n0"
    page.get_by_label(f"{node} NPU 0: free").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:cordon")
    page.get_by_label(f"{node} NPU 0: out of service").wait_for()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    page.get_by_label(f"{node} NPU 0: free").wait_for()
    page.get_by_role("button", name="Now").click()
    page.get_by_label(f"{node} NPU 0: out of service").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:uncordon")


def test_reports_are_found_compared_downloaded_and_deleted(open_page: Any, stack: RealStack) -> None:
    stack.client.call("infer", "PUT", "/v1/reports/short-lived", body=REPORTS["after"] | {"title": "to be deleted"})
    page = open_page("/experiments?search=deleted")
    page.get_by_role("link", name="short-lived").click()
    page.wait_for_url("**/experiments/default/short-lived")
    page.get_by_label("Compare with").select_option("default/before")
    page.wait_for_url("**/short-lived?with=default%2Fbefore")
    page.get_by_role("row", name="finished 57 60 +5.3 % the better").wait_for()
    page.get_by_role("row", name="prefill_busy 0.800 0.610 -23.8 %", exact=True).wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "short-lived.html"
    assert Path(download.value.path()).read_text() == REPORTS["after"]["html"]
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_text("matrixctl report delete short-lived").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.wait_for_url("**/experiments")
    page.get_by_role("link", name="after").wait_for()
    expect(page.get_by_role("link", name="short-lived")).to_have_count(0)
    guest = open_page(
        "/experiments/default/before", token=create_token(stack.folder.tokens, "reader", "blue", "viewer")
    )
    guest.get_by_role("alert").get_by_text("there is no project").wait_for()
