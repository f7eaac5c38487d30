"""`matrixctl events`: what happened, whichever service says so."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised


def test_events_are_those_of_all_services_in_the_order_of_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switch that went down is MatrixLink's news, a lost node MatrixResource's: neither is left out."""
    happened = {
        "compute": ("2026-01-01T00:00:03Z", "one", "NodeReplaced"),
        "resource": ("2026-01-01T00:00:02Z", "sn0-c03-n2", "NodeLost"),
        "link": ("2026-01-01T00:00:01Z", "sn0-l2p3-k11", "SwitchDown"),
    }

    def service(name: str) -> httpx.Client:
        at, about, reason = happened[name]
        event = {"name": f"{about}.1", "at": at, "type": "Warning", "about": about, "reason": reason, "message": "-"}

        def answer(request: httpx.Request) -> httpx.Response:
            items = [event] if request.url.params.get("filter", f"about={about}") == f"about={about}" else []
            return httpx.Response(200, json={"items": items})

        return httpx.Client(transport=httpx.MockTransport(answer), base_url=f"http://{name}")

    connect_matrixctl(monkeypatch, {name: service(name) for name in happened})
    lines = run_line_normalised(capsys, "events -o json")[1]
    assert [(each["service"], each["reason"]) for each in json.loads(lines)["items"]] == [
        ("link", "SwitchDown"),
        ("resource", "NodeLost"),
        ("compute", "NodeReplaced"),
    ]
    found = json.loads(run_line_normalised(capsys, "events --filter about=sn0-c03-n2 -o json")[1])["items"]
    assert [each["reason"] for each in found] == ["NodeLost"]
