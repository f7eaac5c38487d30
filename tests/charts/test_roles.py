"""The roles that the chart gives to processes' tokens: with them, and no more, everything works as it does for an admin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from services.catalogue import PROCESSES
from services.chassis.http import http_client
from tests.charts.rendered import CHART
from tests.matrixlink.client import FullLinkClient
from tests.matrixresource.client import WholeResourceClient
from tests.stack import ServiceSlot, Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]


def principals() -> dict[str, dict[str, str]]:
    """Role, project and nodes of each process's token, as templates/tokens.yaml has them."""
    text = (CHART / "templates" / "tokens.yaml").read_text()
    found = re.findall(r'"(\w+)" \(dict ("role"[^)]*)\)', text)
    return {owner: dict(re.findall(r'"(\w+)" "([^"]*)"', pairs)) for owner, pairs in found}


class ChartStack(Stack):
    """Each process shows the token that the chart has for it."""

    def _build(self, name: str, seat: ServiceSlot) -> Any:
        if self.tokens is None or name not in principals():
            return super()._build(name, seat)
        token = self.token(**principals()[name])
        mine = {
            each: http_client(f"http://{each}", token, transport=seat.transport) for each, seat in self.slots.items()
        }
        kept = self.http, self.agents_http, self.resource, self.link
        self.http = self.agents_http = mine
        self.resource, self.link = WholeResourceClient(mine["resource"]), FullLinkClient(mine["link"])
        try:
            return super()._build(name, seat)
        finally:
            self.http, self.agents_http, self.resource, self.link = kept


def test_every_process_with_a_token_is_here() -> None:
    roles = {process.name: process.role for process in PROCESSES if process.role}
    assert {name: each["role"] for name, each in principals().items()} == {
        "admin": "admin",
        "metrics": "viewer",
        **roles,
    }
    assert roles["infer"] != "admin"


async def test_an_instance_is_served_and_its_decode_traffic_reaches_the_ports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ChartStack(tmp_path, tokens=True, infer=True) as stack:
        http, red = stack.http, {"project": "red"}
        assert (await http["compute"].put("/v1/instances/a", json={"nodes": 4}, params=red)).is_success
        await stack.active("red/a")
        assert (await http["infer"].put("/v1/deployments/chat", json={"instance": "a"}, params=red)).is_success

        async def serves() -> bool:
            return (await http["infer"].get("/v1/deployments/chat", params=red)).json()["state"] == "Serving"

        async def sends() -> bool:
            items = (await http["agents"].get("/v1/traffic", params=red)).json()["items"]
            return any(item["sentGbps"] > 0 for item in items)

        await stack.until(serves, "the deployment serves")
        answer = await http["infer"].put("/v1/deployments/chat/load", json={"requestsPerSecond": 4}, params=red)
        assert answer.is_success
        await stack.until(sends, "decoding sends over the fabric", within_s=600)
        assert (await http["infer"].delete("/v1/deployments/chat", params=red)).is_success
        assert (await http["compute"].delete("/v1/instances/a", params=red)).is_success
        await stack.gone("red/a")
    assert not [record for record in caplog.records if getattr(record, "reason", "") == "Forbidden"]
