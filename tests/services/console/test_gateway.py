"""What the gateway answers a browser: the page, the services with its user's own rights, and the way in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from matrixcommon.model.errors import NotFound, Unavailable
from services.console.gateway.logins import LINK_WALL_S, LINKS_MAX, LoginLinks
from services.console.gateway.static_files import load_files

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(120)]
WEB = Path(__file__).resolve().parents[3] / "services" / "console" / "web"


async def test_the_page_is_for_everybody_and_says_what_a_browser_may_do(console_alone):
    page = await console_alone.http.get("/nodes/sn0-c00-n0")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    script = await console_alone.http.get("/main.js")
    assert script.headers["content-encoding"] == "gzip"
    again = await console_alone.http.get("/main.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert (await console_alone.http.get("/no-such-file.js")).status_code == 404
    assert (await console_alone.http.get("/../main.py")).status_code == 404


def test_pages_hold_no_script_or_style_of_their_own_and_ask_nobody_else():
    for name in load_files():
        text = (WEB / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), f"{name} asks another host"
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", text), name


def test_every_file_of_the_page_is_in_the_wheel_and_has_a_type():
    project = tomllib.loads((WEB.parents[2] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["services.console"]
    packed = {file for pattern in patterns for file in WEB.parent.glob(pattern) if file.is_file()}
    there = {file for file in WEB.rglob("*") if file.is_file()}
    assert packed == there
    assert {str(file.relative_to(WEB)) for file in there} == set(load_files())


async def test_a_service_is_asked_with_its_users_own_rights(start_console):
    async with start_console() as console:
        red = console.client(console.token("editor", project="red"))
        blue = console.client(console.token("viewer", project="blue"))
        made = await red.put("/api/compute/v1/instances/a", json={"nodes": 1})
        assert made.is_success, made.text
        found = await red.get("/api/compute/v1/instances/a?project=red")
        assert (found.json()["nodes"], found.headers["cache-control"]) == (1, "no-store")
        assert (await blue.get("/api/compute/v1/instances/a")).status_code == 404
        refused = await blue.put("/api/compute/v1/instances/b", json={"nodes": 1})
        assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
        assert (await console.http.get("/api/compute/v1/instances")).status_code == 401, (
            "nobody is lent the console's token"
        )
        refused = await red.put("/api/compute/v1/instances/c", json={"nodes": 0})
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["field"] == "nodes", "a refusal comes as the service wrote it"


async def test_what_the_proxy_does_not_pass_on(console_alone):
    admin = console_alone.client(console_alone.token("admin", project="red"))
    assert (await admin.get("/api/billing/v1/bills")).status_code == 404
    for path in (
        "/api/billing",
        "/api/resource",
        "/api/resource/metrics",
        "/api/resource/docs",
        "/api/resource/v1/%2e%2e/metrics",
    ):
        assert (await admin.get(path)).status_code == 404, path
    large = await admin.put("/api/compute/v1/instances/a", content=b"x" * ((1 << 20) + 1))
    assert (large.status_code, large.json()["reason"]) == (413, "TooLarge")
    packed = await admin.put("/api/compute/v1/instances/a", content=b"x", headers={"Content-Encoding": "gzip"})
    assert (packed.status_code, packed.headers["accept-encoding"]) == (415, "identity")
    away = await admin.get("/api/infer/v1/deployments")
    assert (away.status_code, away.json()["reason"]) == (503, "Unavailable")
    assert "traceback" not in away.text.lower()


async def test_a_link_logs_in_once(console_alone):
    token = console_alone.token("admin", project="red")
    code = (await console_alone.client(token).post("/login-links")).json()["code"]
    assert token not in code
    assert (await console_alone.http.post("/login-links:redeem", json={"code": code})).json() == {"token": token}
    assert (await console_alone.http.post("/login-links:redeem", json={"code": code})).status_code == 404
    for words in (None, "Bearer ", "Bearer made-up", f"Basic {token}"):
        refused = await console_alone.http.post("/login-links", headers={"Authorization": words} if words else {})
        assert (refused.status_code, refused.json()["reason"]) == (401, "Unauthorized"), words
    for role, nodes in (("agent", "sn0-c00-n0"), ("user", "")):
        refused = await console_alone.client(console_alone.token(role, "red", nodes)).post("/login-links")
        assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden"), role
        assert role in refused.json()["detail"]
    for body in ({}, {"code": 7}, {"code": None}):
        assert (await console_alone.http.post("/login-links:redeem", json=body)).status_code == 400


def test_a_link_is_good_for_a_minute_and_there_are_only_so_many():
    now = [0.0]
    links = LoginLinks(lambda: now[0])
    code = links.deposit("cm_token")
    now[0] = LINK_WALL_S + 1
    with pytest.raises(NotFound, match="older than a minute"):
        links.redeem(code)
    for _ in range(LINKS_MAX):
        links.deposit("cm_token")
    with pytest.raises(Unavailable, match="too many"):
        links.deposit("cm_token")


@pytest.mark.parametrize(("method", "path"), [("GET", "/whoami"), ("GET", "/live"), ("POST", "/login-links")])
async def test_what_takes_no_parameters_refuses_them(console_alone, method, path):
    user = console_alone.client(console_alone.token("viewer", project="red"))
    answer = await user.request(method, path, params={"project": "blue"})
    assert (answer.status_code, answer.json()["field"]) == (400, "query.project")
    assert (await console_alone.http.request(method, path, params={"project": "blue"})).status_code == 401


async def test_metrics_are_for_those_who_see_all(console_alone):
    assert (await console_alone.client(console_alone.token("viewer", project="red")).get("/metrics")).status_code == 403
    text = (await console_alone.client(console_alone.token("viewer", project="*")).get("/metrics")).text
    assert "console_streams 0.0" in text
