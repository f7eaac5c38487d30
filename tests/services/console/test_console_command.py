"""`matrixctl console`: an address with a way in, and no token in it."""

from __future__ import annotations

import httpx
import pytest
from starlette.testclient import TestClient

from matrixcommon.model.clock import ScaledClock
from services.chassis.access import create_token
from services.console import main as console_main
from services.matrixctl.clients import api_client
from tests.services.matrixctl.inprocess import connect_matrixctl, run_matrixctl


def test_it_prints_a_link_that_logs_in_once(tmp_path, monkeypatch, capsys) -> None:
    token = create_token(tmp_path / "tokens.json", "matrixctl", "default", "admin")
    settings = console_main.ConsoleSettings(tokens=tmp_path / "tokens.json")
    away = {name: httpx.MockTransport(lambda request: httpx.Response(503)) for name in settings.urls()}
    app = console_main.build(settings, ScaledClock(), away)
    client = TestClient(app, headers={"Authorization": f"Bearer {token}"})
    connect_matrixctl(monkeypatch, {"console": client})
    monkeypatch.setattr(api_client.ApiClient, "url", lambda self, service: f"http://{service}")
    code, out, err = run_matrixctl(capsys, "console", "--no-browser", "--state", str(tmp_path))
    assert (code, err) == (0, "")
    address, _, key = out.strip().partition("/#login=")
    assert address == "http://console"
    assert token not in out
    assert client.post("/login-links:redeem", json={"code": key}).json() == {"token": token}
    assert client.post("/login-links:redeem", json={"code": key}).status_code == 404


def test_without_a_console_it_says_so(tmp_path, capsys) -> None:
    code, out, err = run_matrixctl(capsys, "console", "--state", str(tmp_path / "none"))
    assert (code, out) == (3, "")
    assert err.startswith("NotRunning: ")


@pytest.mark.parametrize(("variable", "opened"), [("DISPLAY", 1), ("", 0)])
def test_a_browser_opens_where_one_would_be_seen(tmp_path, monkeypatch, capsys, variable, opened) -> None:
    seen: list[str] = []
    monkeypatch.setattr("webbrowser.open", seen.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, ":0")
    connect_matrixctl(monkeypatch, {"console": TestClient(lambda: None)})
    monkeypatch.setattr(api_client.ApiClient, "call", lambda *_: {"code": "abc"})
    monkeypatch.setattr(api_client.ApiClient, "url", lambda *_: "http://console")
    assert run_matrixctl(capsys, "console", "--state", str(tmp_path))[0] == 0
    assert seen == ["http://console/#login=abc"] * opened
