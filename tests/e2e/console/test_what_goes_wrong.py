"""The page when something is amiss: a token that ends, a service that is away, an answer that comes late, a field that
is empty, an address of nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from services.chassis.access import create_token, revoke_token
from tests.e2e.conftest import RealStack
from tests.e2e.console.conftest import INSTANCE
from tests.e2e.console.test_pages import visit

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

AWAY = {"status": 503, "content_type": "application/problem+json", "body": '{"detail": "agents does not answer"}'}


def test_what_a_token_showed_goes_with_it(open_page: Any, stack: RealStack) -> None:
    page = open_page("/faults", token=create_token(stack.folder.tokens, "leaver", "default", "viewer"))
    page.clock.install()
    page.reload()
    page.get_by_text("Reaction of the control plane").wait_for()
    page.evaluate("sessionStorage.clear()")
    revoke_token(stack.folder.tokens, "leaver")
    page.get_by_text("this token is no longer accepted").wait_for(timeout=60_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(10_000)
    assert [each for each in asked if "/api/" in each] == [], "a page that was left asks nothing"
    kept = page.evaluate("import('/core/live.js').then(({ live }) => [live.newest, live.shown, live.frames.length])")
    assert kept == [None, None, 0], "who logs in next may be somebody else"
    page.get_by_label("Or enter a bearer token").fill(create_token(stack.folder.tokens, "next", "blue", "viewer"))
    page.keyboard.press("Enter")
    page.get_by_text("next, blue").wait_for()
    page.get_by_role("group", name="State of the machine").get_by_text("largest block").wait_for()
    assert page.get_by_text(INSTANCE).count() == 0


def test_a_number_that_is_left_empty_is_not_sent(open_page: Any, stack: RealStack) -> None:
    page = open_page("/tenants")
    button = page.get_by_role("button", name="Set the quota")
    for wrong, why in (("", "NPUs at most: Please fill out this field."), ("-8", "NPUs at most: Value must be")):
        page.get_by_label("NPUs at most").fill(wrong)
        expect(page.get_by_text(why)).to_be_visible()
        button.click(force=True)
        assert page.get_by_role("dialog").count() == 0
    page.get_by_label("NPUs at most").fill("512")
    button.click()
    page.get_by_role("dialog").get_by_text("matrixctl quota set default --npus 512").wait_for()


def test_what_asks_once_asks_again_when_the_service_is_back(open_page: Any, stack: RealStack) -> None:
    page = open_page("/")
    failures = {"fault-kinds": 2, "content": 1}

    def away(route: Any) -> None:
        kind = next(each for each in failures if each in route.request.url)
        failures[kind] -= 1
        if failures[kind] >= 0:
            route.fulfill(**AWAY)
        else:
            route.continue_()

    page.route(re.compile("/api/(agents/v1/fault-kinds|infer/v1/reports/before/content)"), away)
    visit(page, "/faults")
    page.get_by_text("A cabinet loses power").wait_for()
    expect(page.get_by_label("Fault", exact=True)).to_have_value("node-down")
    visit(page, "/experiments/default/before")
    page.get_by_text("agents does not answer").wait_for()
    page.get_by_text("Figures of before").wait_for()
    expect(page.get_by_text("agents does not answer")).to_have_count(0)


def test_an_answer_to_what_was_chosen_before_is_not_shown(open_page: Any, stack: RealStack) -> None:
    page = open_page("/fabric?plane=vpc")
    page.get_by_text("48 links").wait_for()
    late: list[Any] = []
    page.route("**/planes/ub/matrix*", lambda route: late.append(route))
    with page.expect_request("**/planes/ub/matrix*"):
        page.get_by_role("button", name="UB", exact=True).click()
    page.get_by_role("button", name="RDMA").click()
    page.get_by_text("768 links").wait_for()
    page.evaluate(
        """() => { window.seen = []; const status = document.querySelector('main [role=status]');
        new MutationObserver(() => seen.push(status.textContent)).observe(status, { childList: true, characterData: true, subtree: true }); }"""
    )
    with page.expect_response("**/planes/ub/matrix*"):
        for route in late:
            route.continue_()
    with page.expect_response("**/planes/rdma/matrix*"):
        pass
    assert [text for text in page.evaluate("seen") if text.startswith("5,376")] == []


def test_a_plan_is_explained_by_what_was_asked_and_only_as_long_as_that_is_asked(
    open_page: Any, stack: RealStack
) -> None:
    page = open_page("/placement?nodes=3&policy=spread&name=wide")
    page.get_by_text("It fits").wait_for()
    why = page.get_by_text("Why there")
    expect(why).to_contain_text("as many cabinets as possible take part: sn0-c")
    assert page.get_by_label("Name").input_value() == "wide"
    page.get_by_label("Policy").select_option("pack")
    expect(page.get_by_text("The request has changed since it was planned.")).to_be_visible()
    assert page.get_by_text("It fits").count() == 0
    page.get_by_role("button", name="Plan").click()
    expect(why).to_contain_text("one cabinet has room for all of it")
    page.get_by_label("Name").fill("narrow")
    page.wait_for_url("**name=narrow*")
    page.reload()
    page.get_by_text("It fits").wait_for()
    assert page.get_by_label("Name").input_value() == "narrow"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nodes/sn0-c99-n0", "sn0-c99-n0"),
        ("/instances/default/nobody", "there is no instance named 'nobody'"),
        ("/faults/runs/nothing", "there is no scenario run named 'nothing'"),
        ("/experiments/default/nothing", "there is no report named 'nothing'"),
    ],
)
def test_a_page_about_nothing_says_so_and_no_more(open_page: Any, path: str, says: str) -> None:
    page = open_page(path)
    page.get_by_role("alert").get_by_text(says).wait_for()
    main = page.locator("main")
    assert main.get_by_role("button").count() == 0
    assert main.get_by_role("table").count() == 0


def test_an_address_that_cannot_be_read_is_no_page(open_page: Any) -> None:
    page = open_page("/nodes/%E0%A4%A")
    page.get_by_role("heading", name="Page not found").wait_for()


def test_two_faults_of_a_kind_on_one_node_and_a_viewer_sees_both(open_page: Any, stack: RealStack) -> None:
    node = "sn0-c07-n0"
    page = open_page("/faults?kind=npu-fault")
    injected = page.get_by_role("region", name="Injected")
    for target, parameters in ((f"{node}-npu3", "die=1"), (node, "npu=5 die=0")):
        page.get_by_label("At", exact=True).fill(target)
        page.get_by_label("Parameters").fill(parameters)
        page.get_by_role("button", name="Inject").click()
        page.get_by_role("dialog").get_by_role("button", name="Inject").click()
        page.get_by_role("dialog").wait_for(state="detached")
    injected.get_by_text("die=1 npu=3").or_(injected.get_by_text("npu=3 die=1")).wait_for()
    page.get_by_label("Parameters").fill("npu=6 die=0")
    page.get_by_role("button", name="Inject").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text(f"--name npu-fault-{node}-npu-6-die-0").wait_for()
    dialog.get_by_role("button", name="Inject").click()
    dialog.wait_for(state="detached")
    guest = open_page("/faults", token=create_token(stack.folder.tokens, "onlooker", "blue", "viewer"))
    try:
        expect(guest.get_by_role("region", name="Injected").get_by_role("row")).to_have_count(4)
    finally:
        for fault in stack.client.list("agents", "/v1/faults"):
            stack.client.call("agents", "DELETE", f"/v1/faults/{fault['name']}")


def test_a_fault_code_that_looks_like_a_number_is_sent_as_it_is_written(open_page: Any) -> None:
    page = open_page("/faults?kind=npu-fault&target=sn0-c07-n1&parameters=npu%3D3+code%3D020001001")
    page.route("**/api/agents/v1/faults/npu-fault-*", lambda route: route.fulfill(**AWAY))
    page.get_by_role("button", name="Inject").click()
    with page.expect_request("**/api/agents/v1/faults/npu-fault-*") as sent:
        page.get_by_role("dialog").get_by_role("button", name="Inject").click()
    assert sent.value.post_data_json["parameters"] == {"npu": 3, "code": "020001001"}


def test_what_the_control_plane_knows_is_shown_though_the_agents_are_away(open_page: Any) -> None:
    page = open_page("/")
    page.route("**/api/agents/v1/faults*", lambda route: route.fulfill(**AWAY))
    visit(page, "/faults")
    page.get_by_text("agents does not answer").wait_for()
    page.get_by_text("The control plane has detected no fault.").wait_for()
    page.get_by_text("No scenario has been run yet.").wait_for()


def test_parameters_that_are_none_are_not_sent(open_page: Any) -> None:
    page = open_page("/faults?kind=npu-fault&target=sn0-c07-n0")
    page.get_by_label("Parameters").fill("npu 3")
    expect(page.get_by_text("Parameters: name=value, separated by spaces")).to_be_visible()


def test_the_alerts_of_the_headline_lead_to_them_from_every_page(open_page: Any) -> None:
    page = open_page("/tenants")
    page.set_viewport_size({"width": 375, "height": 700})
    headline = page.get_by_role("group", name="State of the machine")
    for _ in ("from another page", "from the page itself"):
        headline.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Alerts")).to_be_in_viewport()
        assert page.evaluate("document.activeElement.id") == "alerts"
        page.evaluate("scrollTo(0, 0)")


def test_the_past_is_left_with_its_page(open_page: Any, stack: RealStack) -> None:
    page = open_page("/")
    node = "sn0-c08-n1"
    page.get_by_label(f"{node} NPU 0: free").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:cordon")
    page.get_by_label(f"{node} NPU 0: out of service").wait_for()
    stack.client.call("resource", "POST", f"/v1/nodes/{node}:uncordon")
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.locator("body")).to_have_class(re.compile("past"))
    expect(page.get_by_text("The L2 chips are shown as they are now.")).to_be_visible()
    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("heading", name="Tenants").wait_for()
    expect(page.locator("body")).not_to_have_class(re.compile("past"))


def test_times_have_a_date_unless_it_is_todays_and_durations_carry_over(open_page: Any) -> None:
    page = open_page("/tenants")
    read = """([name, values]) => Promise.all([import('/parts/format.js'), import('/core/live.js')]).then(([format, { live }]) => {
        live.newest = { ...live.newest, time: { scale: 0, wall: 0, emulated: Date.parse('2026-03-02T01:00:00Z') / 1000 } };
        return values.map(format[name]);
    })"""
    assert page.evaluate(read, ["clock", ["2026-03-02T00:02:40.5Z", "2026-03-01T23:49:51Z"]]) == [
        "00:02:40",
        "1 Mar 23:49:51",
    ]
    assert page.evaluate(read, ["duration", [0.25, 0.9996, 9.97, 59.7, 119.7, 3599.6, 7199, 86399, 90000]]) == [
        "250 ms",
        "1.0 s",
        "10 s",
        "1 min 0 s",
        "2 min 0 s",
        "1 h 0 min",
        "2 h 0 min",
        "1 d 0 h",
        "1 d 1 h",
    ]


def test_each_port_of_a_plane_is_at_a_place_of_its_own(open_page: Any) -> None:
    for plane, links, ports in (("rdma", "768 links", 16), ("ub", "5,376 links", 112)):
        page = open_page(f"/fabric?plane={plane}")
        page.get_by_text(links).wait_for()
        seen = page.evaluate(
            """() => {
                const canvas = document.querySelector('canvas.matrix'), box = canvas.getBoundingClientRect(), seen = [];
                const label = document.querySelector('figure [role=status]');
                for (let x = box.left; x < box.right; x++) {
                    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: box.top + 8 }));
                    const port = label.textContent.split(':')[0];
                    if (port !== seen.at(-1)) seen.push(port);
                }
                return seen.filter((each) => each.startsWith('sn0-c00-n0.'));
            }"""
        )
        assert len(seen) == len(set(seen)) == ports


def test_a_node_in_parts_names_who_has_them(open_page: Any, stack: RealStack) -> None:
    for name in ("part-one", "part-two"):
        stack.client.call("resource", "PUT", f"/v1/allocations/{name}", body={"npus": 2})
    try:
        node = stack.client.call("resource", "GET", "/v1/allocations/part-one")["members"][0]["node"]
        page = open_page(f"/nodes/{node}")
        page.get_by_role("link", name="part-one").wait_for()
    finally:
        for name in ("part-one", "part-two"):
            stack.client.call("resource", "DELETE", f"/v1/allocations/{name}")


def test_a_report_is_shown_beside_what_it_cannot_be_compared_with(open_page: Any, stack: RealStack) -> None:
    points = [
        {"nodes": nodes, "workload": "40 requests", "report": {"ttft": {"p90": p90}}, "why_not": None}
        for nodes, p90 in ((4, 5.5), (8, 2.25))
    ]
    body = {"experiment": "sweep", "title": "Sweep over nodes", "document": {"points": points}}
    stack.client.call("infer", "PUT", "/v1/reports/swept", body=body)
    try:
        page = open_page("/experiments/default/before?with=default%2Fswept")
        page.get_by_role("alert").get_by_text("swept is a report of `sweep`").wait_for()
        page.get_by_role("table", name="Figures of before").get_by_text("ttft.p90").wait_for()
        visit(page, "/experiments/default/swept")
        table = page.get_by_role("table", name="points")
        expect(table.get_by_role("columnheader")).to_have_text(["nodes", "report.ttft.p90"])
        expect(table.get_by_role("row").last).to_have_text("82.250")
        page.get_by_text("The same in all rows: workload 40 requests.").wait_for()
        expect(page.get_by_label("Compare with")).to_be_hidden()
    finally:
        stack.client.call("infer", "DELETE", "/v1/reports/swept")


def test_nothing_is_said_of_what_is_served_while_that_is_unknown(open_page: Any) -> None:
    page = open_page("/")
    page.route("**/api/infer/v1/deployments**", lambda route: route.fulfill(**AWAY))
    visit(page, "/serving")
    page.get_by_role("alert").get_by_text("agents does not answer").wait_for()
    expect(page.get_by_text("No model is being served")).to_be_hidden()
    expect(page.get_by_text("There is no deployment")).to_be_hidden()
    page.unroute("**/api/infer/v1/deployments**")
    page.get_by_text("No model is being served").wait_for()
