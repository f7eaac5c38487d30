"""Cables under a serving instance: cut in a bundle, tokens come slower by what the fabric says and as fast as before when
they are repaired; cut silently, probes find it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from infer_workload.layout.prediction import decode_step_s
from infer_workload.serving.workload_traffic import decode_gbps
from matrixlink.link_health.fault_localisation import DETECTED_WITHIN_S
from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.infer import main as infer_main
from services.testing.asgi import StreamingASGITransport
from tests.stack import Stack

pytestmark = pytest.mark.looptime

NAME, NODES = "r1", 8
BUNDLES = {"bundle-a": "ub-p?-k0[2-9]", "bundle-b": "ub-p?-k1?"}
"""Fourteen of the sixteen cables of every sub-plane."""


class Serving:
    """CloudMatrix-Infer beside the stack, in the loop's time, with a load on it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack = stack
        self.database = DatabaseEngine(f"sqlite:///{folder / 'infer.db'}")
        self.database.migrate(infer_main.MIGRATIONS)
        settings = infer_main.InferSettings(seed=1, state=folder)
        hardware = infer_main.HardwareOverHttp(stack.http["agents"])
        self.app = infer_main.build(settings, stack.clock, self.database, stack.link, hardware)
        transport = StreamingASGITransport(self.app)
        self.http = http_client("http://infer", transport=transport)
        self.life = AsyncExitStack()

    async def __aenter__(self) -> Serving:
        await self.life.enter_async_context(self.app.router.lifespan_context(self.app))
        return self

    async def __aexit__(self, *why: object) -> None:
        await self.life.aclose()

    async def begin(self, requests_per_second: float = 30.0, input_tokens_max: int = 4096) -> None:
        assert (await self.http.put(f"/v1/deployments/{NAME}", json={"instance": NAME})).status_code == 200

        async def serves() -> bool:
            return (await self.http.get(f"/v1/deployments/{NAME}")).json()["state"] == "Serving"

        await self.stack.until(serves, "the model is served")
        load = {"requestsPerSecond": requests_per_second, "seed": 7, "inputTokensMax": input_tokens_max}
        assert (await self.http.put(f"/v1/deployments/{NAME}/load", json=load)).status_code == 200

    async def roles(self) -> dict[str, str]:
        return dict((await self.http.get(f"/v1/deployments/{NAME}")).json()["roles"])

    async def statistics(self) -> dict[str, Any]:
        return dict((await self.http.get(f"/v1/deployments/{NAME}/statistics")).json())

    async def sent_gbps(self) -> tuple[float, float]:
        """What the decode nodes send each other, from the batch and the step, and what all pools offer over UB."""
        live = self.app.state.serving.live[NAME]
        loads = (await self.stack.get("agents", "/v1/traffic")).json()["items"]
        offered = {load["name"]: load["offeredGbps"] for load in loads if load["load"]["plane"] == "ub"}
        decoding = decode_gbps(live.engine) * 8 * len(live.engine.deployment.pools.decode)
        assert offered[f"infer-{NAME}"] == pytest.approx(decoding, rel=0.3)
        return decoding, sum(offered.values())

    async def step_ms(self, seconds: int = 30) -> tuple[float, float]:
        """The mean step of that many seconds, and what the fabric says a step at each of those moments takes."""
        measured, reported = [], []
        for _ in range(seconds):
            current = await self.statistics()
            if current["decodeBatchPerNpu"] > 0:
                view = await self.stack.link.fabric_view(NAME)
                measured.append(current["decodeStepMs"])
                reported.append(1e3 * decode_step_s(view, await self.roles(), current["decodeBatchPerNpu"]))
            await self.stack.clock.sleep(1.0)
        return sum(measured) / len(measured), sum(reported) / len(reported)


async def moving(stack: Stack) -> float:
    """GB/s over the UB slice, as the counters of its ports tell."""
    items = (await stack.get("link", "/v1/telemetry?by=slice&filter=plane=ub")).json()["items"]
    return float(sum(item["sentGbps"] for item in items))


async def test_cut_bundle_slows_tokens_as_predicted(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply(NAME, NODES)
        await stack.active(NAME, NODES)
        async with Serving(stack, tmp_path) as serving:
            await serving.begin()
            await stack.clock.sleep(120)
            whole, whole_predicted = await serving.step_ms()
            sending = await moving(stack)
            # What is offered follows the batch in steps of a tenth, and counters are a heartbeat old.
            decoding, offered = await serving.sent_gbps()
            assert 0 < decoding < sending == pytest.approx(offered, rel=0.3)
            impaired = sorted(node for node, role in (await serving.roles()).items() if role == "decode")[0]
            for name, ports in BUNDLES.items():
                stack.impair(name, "link-down", impaired, port=ports)

            async def rerouted(states: tuple[str, ...]) -> bool:
                slices = [view for view in await stack.link.slices() if view.plane == "ub"]
                return [view.state for view in slices] == list(states)

            await stack.until(lambda: rerouted(("Degraded",)), "the slice goes round the cut", within_s=30)
            await stack.clock.sleep(120)
            cut, cut_predicted = await serving.step_ms()
            dropped = (await stack.get("link", "/v1/telemetry?by=plane&filter=name=ub")).json()["items"][0]
            assert dropped["droppedGbps"] == 0, "routes lead round what was cut"
            for name in BUNDLES:
                stack.repair(name)
            await stack.until(lambda: rerouted(("Active",)), "the slice is whole again", within_s=30)
            await stack.clock.sleep(120)
            back, back_predicted = await serving.step_ms()
            # The engine steps by its fullest die, the prediction by the mean of all.
            assert cut / whole == pytest.approx(cut_predicted / whole_predicted, rel=0.06)
            assert cut / whole > 1.03
            assert back / whole == pytest.approx(back_predicted / whole_predicted, rel=0.06)
            assert back / whole == pytest.approx(1.0, rel=0.05)


async def test_silent_cut_is_found_by_probes(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply(NAME, 4)
        await stack.active(NAME, 4)
        await stack.clock.sleep(30)
        member = sorted(view for view in (await stack.link.slices())[0].members)[1]
        link = f"{member}.ub-p3-k11"
        stack.impair("silent", "link-silent", member, port="ub-p3-k11")

        async def reason() -> str:
            return str((await stack.get("link", f"/v1/links/{link}")).json()["reason"])

        async def found() -> bool:
            return await reason() == "ProbeLost"

        took = await stack.until(found, "probes find it", within_s=DETECTED_WITHIN_S)
        assert took > 5, "nobody reported"

        async def routed(stripes: int, state: str) -> bool:
            ub = next(view for view in await stack.link.slices() if view.plane == "ub")
            assert stack.fleet is not None
            table = stack.fleet.nodes[member].tables[ub.name]
            spread = next(stripe for stripe in table["stripes"] if stripe["sub_plane"] == 3)["spread"]
            return ub.state == state and sum(share > 0 for share in spread) == stripes

        await stack.until(lambda: routed(15, "Degraded"), "its slice goes round it", within_s=30)
        current = await stack.compute.find_instance(NAME)
        assert current is not None
        assert current.state == "Active"
        stack.repair("silent")

        async def repaired() -> bool:
            return await reason() == "" and await routed(0, "Active")

        await stack.until(repaired, "probes pass again", within_s=DETECTED_WITHIN_S + 30)
        assert not [node for node in await stack.resource.nodes() if node.health != "Healthy"]
