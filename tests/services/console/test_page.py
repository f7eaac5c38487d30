"""The page over a recorded machine, in a browser: what it asks, what it shows when an answer fails or comes late."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.screenshots import browser
from tests.screenshots.machine import recorded
from tests.screenshots.site import served

pytestmark = pytest.mark.timeout(120)

ELSEWHERE = "console.test"
"""A name of this machine that a browser takes for another one."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if why := browser.missing():
        pytest.skip(why)
    with browser.chromium(f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(recorded()) as found:
        yield found


@pytest.fixture
def open_page(chromium: Any, address: str) -> Iterator[Any]:
    """A function that opens an address of the page; a script that fails fails the test."""
    problems: list[str] = []
    pages = []

    def opening(path: str = "/", host: str = "127.0.0.1") -> Any:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        pages.append(page)
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda wrong: problems.append(str(wrong)))
        page.goto(address.replace("127.0.0.1", host) + path)
        page.get_by_role("group", name="State of the machine").get_by_text("largest block").wait_for()
        return page

    yield opening
    for page in pages:
        page.close()
    assert problems == []


def test_from_another_machine_over_plain_http_things_can_be_asked_for(open_page: Any) -> None:
    page = open_page("/", host=ELSEWHERE)
    assert not page.evaluate("isSecureContext")
    keys: list[str] = []
    page.on("request", lambda request: keys.append(request.headers.get("idempotency-key", "")))
    page.evaluate("history.pushState(null, '', '/placement'); dispatchEvent(new PopStateEvent('popstate'))")
    with page.expect_request("**/resource/v1/plans"):
        page.get_by_role("button", name="Plan", exact=True).click()
    posted = [key for key in keys if key]
    assert posted
    assert len(set(posted)) == len(posted)
    assert all(len(key) == 32 for key in posted)


def test_a_command_that_could_not_be_copied_is_not_said_to_be(open_page: Any) -> None:
    page = open_page("/experiments", host=ELSEWHERE)
    page.evaluate("globalThis.setTimeout = () => 0")  # so that what the button says stays
    page.get_by_role("button", name="Copy the command").last.click()
    expect(page.locator(".command button").last).to_have_text("Selected: press Ctrl+C")
    assert page.evaluate("getSelection().toString()") == "matrixctl experiment sweep --help"


def test_a_page_that_cannot_be_fetched_comes_later_and_the_one_before_goes(open_page: Any) -> None:
    page = open_page("/")
    page.route("**/views/tenants.js", lambda route: route.abort())
    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("alert").get_by_text("the page will load when it does").wait_for()
    assert page.locator("cm-rack").count() == 0, "what nobody keeps up to date is not shown"
    page.unroute("**/views/tenants.js")
    page.get_by_role("heading", name="Tenants").wait_for()


def test_a_page_that_is_gone_back_to_follows_again(open_page: Any) -> None:
    page = open_page("/")
    page.evaluate(
        """async () => {
            const { live } = await import('/core/live.js');
            live.addEventListener('frame', () => { document.body.dataset.frames = live.frames.length; });
            const before = live.frames.length;
            for (const type of ['pagehide', 'pageshow']) dispatchEvent(new PageTransitionEvent(type, { persisted: true }));
            return before;
        }"""
    )
    expect(page.locator("body")).to_have_attribute("data-frames", "2")


def test_rows_of_one_key_are_as_many_as_there_are(open_page: Any) -> None:
    page = open_page("/tenants")
    shown = page.evaluate(
        """async () => {
            const { table } = await import('/parts/table.js');
            const made = table('Outcomes', [{ title: 'What', cell: (each) => each.text }], (each) => each.name);
            const rows = () => [...made.querySelectorAll('tbody tr')].map((row) => row.textContent).join();
            const same = (...texts) => { made.frame(texts.map((text) => ({ name: 'ready', text }))); return rows(); };
            return [same('a', 'b'), same('a', 'b'), same('c', 'b', 'd'), same('e')];
        }"""
    )
    assert shown == ["a,b", "a,b", "c,b,d", "e"]


def answer(found: Any) -> dict[str, Any]:
    return {"status": 200, "content_type": "application/json", "body": json.dumps(found)}


def go(page: Any, path: str) -> None:
    """To another page of the console, as a link does."""
    page.evaluate(
        "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
    )


def test_the_fault_that_was_chosen_stays_while_scenarios_are_away(open_page: Any) -> None:
    page = open_page("/")
    page.route("**/agents/v1/fault-kinds", lambda route: route.fulfill(**answer({"node-down": "", "npu-fault": ""})))
    page.route("**/compute/v1/scenarios*", lambda route: route.fulfill(status=503))
    with page.expect_request("**/compute/v1/scenarios*"):
        go(page, "/faults")
    page.get_by_label("Fault", exact=True).select_option("npu-fault")
    for _ in range(2):
        with page.expect_request("**/compute/v1/scenarios*"):
            pass
    expect(page.get_by_label("Fault", exact=True)).to_have_value("npu-fault")


def plane(name: str, *states: str) -> dict[str, Any]:
    ports = [f"{name}{number}" for number in range(len(states[0]))]
    return {
        "plane": name, "supernode": "sn0", "nodes": [f"sn0-c00-n{row}" for row in range(len(states))], "ports": ports,
        "switches": [f"l2-{port}" for port in ports], "switchCabinets": ports, "subPlanes": [0] * len(ports),
        "states": states, "utilisation": [[0] * len(ports) for _ in states],
    }  # fmt: skip


def test_what_is_read_out_of_a_link_is_as_it_is_now_and_of_the_plane_that_is_shown(open_page: Any) -> None:
    page = open_page("/")
    planes = {"ub": plane("ub", "uuu", "uuu"), "vpc": plane("vpc", "u", "u")}
    shown = lambda route: route.fulfill(**answer(planes[route.request.url.split("/planes/")[1].split("/")[0]]))  # noqa: E731
    page.route("**/link/v1/planes/*/matrix*", shown)
    go(page, "/fabric")
    label = page.locator("figure [role=status]")
    page.get_by_text("6 links").wait_for()
    page.locator("canvas.matrix").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    expect(label).to_contain_text("sn0-c00-n1.ub2")
    expect(label).to_contain_text("up")
    planes["ub"] = plane("ub", "uuu", "uux")
    expect(label).to_contain_text("down")
    page.get_by_role("button", name="VPC").click()
    expect(label).to_have_text("Point at a cell, or use the arrow keys.")


def test_a_comparison_that_comes_late_is_not_shown_beside_another_choice(open_page: Any) -> None:
    page = open_page("/")
    late: list[Any] = []
    names = ["own", "slow", "fast"]
    report = {"title": "", "experiment": "run", "document": {"finished": 1}, "plots": []}

    def compared(route: Any) -> None:
        other = route.request.url.split("with=")[1].split("%2F")[1]
        found = {
            "before": {"name": other},
            "after": {"name": "own"},
            "changes": [{"name": "x", "before": 1, "after": 2}],
        }
        late.append((route, found)) if other == "slow" else route.fulfill(**answer(found))

    page.route("**/infer/v1/reports?*", lambda route: route.fulfill(
        **answer({"items": [{"project": "default", "name": name} for name in names]})))  # fmt: skip
    page.route("**/infer/v1/reports/*/content*", lambda route: route.fulfill(**answer({**report, "name": "of"})))
    page.route("**/infer/v1/reports/own/comparison*", compared)
    go(page, "/experiments/default/own")
    with page.expect_request("**/comparison*slow"):
        page.get_by_label("Compare with").select_option("default/slow")
    with page.expect_response("**/comparison*fast"):
        page.get_by_label("Compare with").select_option("default/fast")
    page.get_by_text("From fast to own").wait_for()
    [(route, found)] = late
    with page.expect_response("**/comparison*slow"):
        route.fulfill(**answer(found))
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert page.get_by_text("From slow to own").count() == 0


def test_skipping_to_the_content_leaves_the_page_as_it_is(open_page: Any) -> None:
    page = open_page("/tenants")
    page.get_by_label("Project", exact=True).fill("blue")
    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    assert page.get_by_label("Project", exact=True).input_value() == "blue"


def test_a_command_is_read_by_a_shell_as_it_is_meant(open_page: Any) -> None:
    page = open_page("/")
    page.route("**/agents/v1/fault-kinds", lambda route: route.fulfill(**answer({"node-down": ""})))
    go(page, "/faults?target=%60id%60%3B%27x&parameters=npu%3D3+code%3D%24HOME")
    command = page.locator(".command code").first
    expect(command).to_contain_text("inject node-down ")
    words = shlex.split(command.inner_text())
    assert words[4:] == ["`id`;'x", "-p", "npu=3", "-p", "code=$HOME"]
    assert command.inner_text().count("'") == 7, "each word that is more than a word is quoted: the target, and $HOME"
    go(page, "/placement?name=mine")
    page.route("**/resource/v1/plans", lambda route: route.fulfill(**answer(
        {"fits": True, "members": ["sn0-c00-n0"], "spareNodes": [], "preempts": [], "blastRadius": []})))  # fmt: skip
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_text("It fits").wait_for()
    page.get_by_role("button", name="Create it").click()
    assert re.search(
        r" 'http://[^' ]+/api/compute/v1/instances/mine\?project=default' ", page.get_by_role("dialog").inner_text()
    )


def test_ports_that_are_old_are_said_to_be(open_page: Any) -> None:
    page = open_page("/")
    node = {"name": "sn0-c00-n0", "supernode": "sn0", "cabinet": "sn0-c00", "state": "Available", "health": "Healthy",
            "agent": "Connected", "power": "On", "schedulable": True, "cordonedBy": [], "usableNpus": 8, "npus": 8,
            "conditions": [], "faults": []}  # fmt: skip
    away = False

    def matrix(route: Any) -> None:
        name = route.request.url.split("/planes/")[1].split("/")[0]
        route.fulfill(status=503, body="link does not answer") if away else route.fulfill(**answer(plane(name, "u")))

    page.route("**/resource/v1/nodes/*", lambda route: route.fulfill(**answer(node)))
    page.route("**/resource/v1/npus?*", lambda route: route.fulfill(**answer({"items": []})))
    page.route("**/link/v1/planes/*/matrix*", matrix)
    go(page, "/nodes/sn0-c00-n0")
    page.locator(".port-row").first.wait_for()
    away = True
    page.get_by_role("alert").get_by_text("showing the last known state").wait_for()
    away = False
    expect(page.get_by_text("showing the last known state")).to_have_count(0)


def test_switches_of_another_supernode_are_not_shown_as_the_chosen_ones(open_page: Any) -> None:
    page = open_page("/")
    page.locator(".switches .chip").first.wait_for()
    page.evaluate(
        """import('/core/live.js').then(({ live }) => {
            const { sn0 } = live.newest.supernodes;
            live.newest = { ...live.newest, supernodes: { sn0, sn1: { ...sn0 } } };
            live.dispatchEvent(new Event('frame'));
        })"""
    )
    page.route("**/link/v1/planes/*/matrix*supernode=sn1", lambda route: route.fulfill(status=503))
    page.locator(".tile[data-name=sn1]").click()
    page.get_by_role("heading", name="Supernode sn1").wait_for()
    expect(page.locator(".switches .chip")).to_have_count(0)


def test_figures_of_another_deployment_are_not_shown_as_the_chosen_ones(open_page: Any) -> None:
    page = open_page("/")
    deployments = [
        {"project": "default", "name": name, "instance": "a", "state": "Serving"} for name in ("one", "other")
    ]
    figures = dict.fromkeys(("kvUsage", "waiting", "queued", "decoding"), 0) | {"tokensPerSecond": 4711}

    def statistics(route: Any) -> None:
        route.fulfill(**answer(figures)) if "/one/" in route.request.url else route.fulfill(status=503, body="away")

    page.route("**/infer/v1/deployments?*", lambda route: route.fulfill(**answer({"items": deployments})))
    page.route("**/compute/v1/scaling-policies?*", lambda route: route.fulfill(**answer({"items": []})))
    page.route("**/infer/v1/deployments/*/statistics*", statistics)
    go(page, "/serving")
    page.get_by_text("4,711").first.wait_for()
    page.get_by_role("button", name="other").click()
    page.get_by_role("alert").get_by_text("away").wait_for()
    assert page.get_by_text("4,711").count() == 0


def test_the_time_shown_is_the_stacks_whatever_the_browsers_clock_says(chromium: Any, address: str) -> None:
    """Its gateway says that it is 2001; without a worker the page reads the stream itself, where a test can answer."""
    wall, emulated = 1e9, 2e9
    picture = {**recorded().picture, "time": {"scale": 1.0, "wall": wall, "emulated": emulated}}
    stream = [f"event: now\ndata: {json.dumps({'wall': wall})}\n\n"]
    stream += [f"event: whole\nid: 1\ndata: {json.dumps({'sequence': 1, 'picture': picture})}\n\n"]
    page = chromium.new_page()
    page.add_init_script("delete globalThis.SharedWorker")
    page.route("**/live", lambda route: route.fulfill(content_type="text/event-stream", body="".join(stream)))
    page.goto(address)
    page.get_by_role("group", name="State of the machine").get_by_text("largest block").wait_for()
    shown = page.evaluate("import('/core/live.js').then(({ live }) => live.emulated)")
    page.close()
    assert emulated <= shown < emulated + 3600
