"""Another tenant on the nodes of a serving instance: what it sends slows decode by what the exact run of every flow says,
its going gives the time back, and a Guaranteed floor keeps a step within its promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.fabric_traffic.completion import run
from infer_workload.timing.contention import MeasuredContention
from matrixlink.fabric.sharing.traffic import traffic
from tests.stack import Stack
from tests.stories.fabric.test_cut_cables import NAME, Serving

pytestmark = pytest.mark.looptime

PLANES, DIES, LINK_GBPS = 7, 16, 28.0
NPU_GBPS = 2 * PLANES * LINK_GBPS
NEIGHBOUR = "beside"
NODES = 4
DECODES = {"requests_per_second": 110.0, "input_tokens_max": 512}
"""Two nodes decode as many as they may at once, 96 an NPU."""


async def neighbour(stack: Stack, members: list[str], gbps_per_npu: float, qos_class: str = "Burstable") -> None:
    """A slice of somebody else's on these nodes, and what it offers on it."""
    view = await stack.compute.find_instance(NAME)
    assert view is not None
    body = {"allocation": NAME, "instance": "batch", "plane": "ub", "members": members, "qosClass": qos_class}
    assert (await stack.http["link"].put(f"/v1/slices/{NEIGHBOUR}", json=body)).is_success
    assert (await stack.http["link"].post(f"/v1/slices/{NEIGHBOUR}:program")).is_success

    async def active() -> bool:
        found = await stack.link.find_slice(NEIGHBOUR)
        return found is not None and found.state == "Active"

    await stack.until(active, "the neighbour's slice is programmed", within_s=300)
    load = {"slice": NEIGHBOUR, "pattern": "all-to-all", "gbpsPerNpu": gbps_per_npu}
    assert (await stack.http["agents"].put("/v1/traffic/beside", json=load)).is_success


def exact_gbps(nodes: int, own: tuple[float, float], theirs: tuple[float, float, float] | None) -> float:
    """GB/s a die of an all-to-all, by the run of a flow for each pair of dies and sub-plane to its end. `own`: weight
    and floor of the slice on a node, `theirs`: weight, floor and offer of the neighbour's."""
    uplink, die = DIES * LINK_GBPS, LINK_GBPS
    first = {"out": 0, "in": nodes * PLANES, "die-out": 2 * nodes * PLANES}
    first["die-in"] = first["die-out"] + nodes * DIES * PLANES
    capacity = np.full(first["die-in"] + nodes * DIES * PLANES, die)
    capacity[: first["die-out"]] = uplink
    dies = np.arange(nodes * DIES)
    source, target, plane = (each.ravel() for each in np.meshgrid(dies, dies, np.arange(PLANES), indexing="ij"))

    def paths(chosen: np.ndarray) -> np.ndarray:
        s, t, p = source[chosen], target[chosen], plane[chosen]
        away = s // DIES != t // DIES
        columns = [
            first["die-out"] + s * PLANES + p, first["die-in"] + t * PLANES + p,
            np.where(away, first["out"] + s // DIES * PLANES + p, -1),
            np.where(away, first["in"] + t // DIES * PLANES + p, -1),
        ]  # fmt: skip
        return np.stack(columns, 1)

    mine, size = source != target, 1e6
    beside = source // DIES != target // DIES
    rows = [paths(mine)]
    part = 1 / (DIES * (len(dies) - 1) * PLANES)
    columns = [np.full((mine.sum(), 4), (own[0] * part, own[1] * part, np.inf, size / PLANES))]
    if theirs is not None:
        rows.append(paths(beside))
        part = 1 / (DIES * (len(dies) - DIES) * PLANES)
        weight, floor, offered = (each * part for each in theirs)
        columns.append(np.full((beside.sum(), 4), (weight, min(floor, offered), offered, 1e30)))
    weight, floor, ceiling, sizes = np.concatenate(columns).T
    made = traffic(capacity, np.concatenate(rows), weight=weight, floor=floor, ceiling=ceiling, size=sizes)
    return (len(dies) - 1) * size / float(run(made).at[: mine.sum()].max())


def expected_step_s(serving: Serving, gbps: float) -> float:
    """What a step of the present batch takes when a die's exchanges get so much."""
    pool = serving.app.state.serving.live[NAME].engine.pool
    nodes = frozenset({die.node for die in pool.dies})
    fabric = pool.timing.exchange.fabric.with_contention(MeasuredContention({nodes: gbps}))
    timing = replace(pool.timing, exchange=replace(pool.timing.exchange, fabric=fabric))
    return timing.step_s(max(die.active for die in pool.dies), max(pool.kv_tokens(die) for die in pool.dies))


async def felt(serving: Serving, gbps: float, seconds: int = 10) -> tuple[float, float]:
    """The mean step of a while, and what it would be by that rate, seconds."""
    pool = serving.app.state.serving.live[NAME].engine.pool
    measured, expected = [], []
    for _ in range(seconds):
        await serving.statistics()
        measured.append(pool.step_s)
        expected.append(expected_step_s(serving, gbps))
        await serving.stack.clock.sleep(1.0)
    return sum(measured) / seconds, sum(expected) / seconds


async def program_of(stack: Stack, node: str, slice: str) -> dict:
    assert stack.fleet is not None
    return stack.fleet.agent("link", node).tables(slice)


async def test_neighbour_traffic_slows_decode_as_predicted(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply(NAME, NODES)
        await stack.active(NAME, NODES)
        async with Serving(stack, tmp_path) as serving:
            await serving.begin(**DECODES)
            await stack.clock.sleep(60)
            decoding = sorted(node for node, role in (await serving.roles()).items() if role == "decode")
            mine = await program_of(stack, decoding[0], f"{NAME}-ub")
            own = mine["weight"], mine["floor_gbps"]
            alone = exact_gbps(len(decoding), own, None)
            before, predicted = await felt(serving, alone)
            assert before == pytest.approx(predicted, rel=0.02)

            await neighbour(stack, decoding, NPU_GBPS / 2)
            theirs = await program_of(stack, decoding[0], NEIGHBOUR)
            half = exact_gbps(len(decoding), own, (theirs["weight"], theirs["floor_gbps"], 8 * NPU_GBPS / 2))
            assert 0.5 <= half / alone < 0.6, "the slice has a small floor beside its weight"
            await stack.clock.sleep(30)
            beside, predicted = await felt(serving, half)
            assert beside == pytest.approx(predicted, rel=0.02)
            assert beside > 1.04 * expected_step_s(serving, alone), "it is felt"

            assert (await stack.http["agents"].delete("/v1/traffic/beside")).is_success
            await stack.clock.sleep(30)
            after, predicted = await felt(serving, alone)
            assert after == pytest.approx(predicted, rel=0.02)


async def test_guaranteed_floor_bounds_the_step_time(tmp_path):
    floor = 0.75 * NPU_GBPS
    async with Stack(tmp_path) as stack:
        await stack.apply(NAME, NODES, network={"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": floor}})
        await stack.active(NAME, NODES)
        async with Serving(stack, tmp_path) as serving:
            await serving.begin(**DECODES)
            await stack.clock.sleep(60)
            decoding = sorted(node for node, role in (await serving.roles()).items() if role == "decode")
            await neighbour(stack, decoding, NPU_GBPS)
            await stack.clock.sleep(30)
            beside, promised = await felt(serving, floor / 2)
            assert beside <= promised * 1.001
            mine, theirs = [await program_of(stack, decoding[0], name) for name in (f"{NAME}-ub", NEIGHBOUR)]
            exact = exact_gbps(
                len(decoding), (mine["weight"], mine["floor_gbps"]),
                (theirs["weight"], theirs["floor_gbps"], 8 * NPU_GBPS),
            )  # fmt: skip
            measured, predicted = await felt(serving, exact)
            assert measured == pytest.approx(predicted, rel=0.02)
            # Its prefill, KV and cache are on the ports beside what decode sends, and the neighbour is not the model's.
            loads = (await stack.get("agents", "/v1/traffic")).json()["items"]
            planes = {load["name"]: load["load"]["plane"] for load in loads if load["sentGbps"] > 0}
            assert planes == {
                NEIGHBOUR: "ub", f"infer-{NAME}": "ub", f"infer-{NAME}-prefill-1": "ub", f"infer-{NAME}-kv": "rdma",
                f"infer-{NAME}-cache": "ub",
            }  # fmt: skip
