"""Caches over REST: blocks exported and taken by another deployment, models in tiers and what a load takes."""

from __future__ import annotations

import pytest

from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.model import load_model
from tests.infer_workload.conftest import NODES


async def blocks_of(server, name="r1", **query):
    answer = await server.http.get(f"/v1/deployments/{name}/context-cache", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def with_blocks(server, count=60):
    cache = server.app.state.serving.live["r1"].engine.cache
    keys = [7919 * each - 100_000 for each in range(1, count + 1)]
    cache.add_in_flight(keys, 0)
    cache.store(keys, 0)
    return keys


async def test_another_deployment_begins_with_what_is_exported(serving):
    keys = await with_blocks(serving)
    first = await blocks_of(serving, pageSize=25)
    pages, token = [first], first["nextPageToken"]
    while token:
        pages.append(await blocks_of(serving, pageSize=25, pageToken=token))
        token = pages[-1].get("nextPageToken")
    found = [block for page in pages for block in page["blocks"]]
    assert [int(block["key"]) for block in found] == keys[::-1], "the latest used first"
    assert first["nodes"] == list(NODES)
    await serving.http.delete("/v1/deployments/r1")
    await serving.ensure("r2")
    await serving.until("Serving", "r2")
    body = {"model": first["model"], "blockTokens": first["blockTokens"], "blocks": found}
    dry = await serving.http.post("/v1/deployments/r2:warm", params={"validateOnly": "true"}, json=body)
    assert dry.json() == {"taken": 60, "known": 0, "elsewhere": 0, "noRoom": 0}
    assert (await blocks_of(serving, "r2"))["blocks"] == [], "nothing has changed"
    await serving.http.post("/v1/deployments/r2:warm", json=body)
    assert (await blocks_of(serving, "r2"))["blocks"] == found
    again = await serving.http.post("/v1/deployments/r2:warm", json=body)
    assert again.json() == {"taken": 0, "known": 60, "elsewhere": 0, "noRoom": 0}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"model": "qwen3-235b"}, "model"),
        ({"blockTokens": 128}, "blockTokens"),
        ({"blocks": [{"key": "x", "node": "n"}]}, "blocks"),
        ({"blocks": [{"key": "1", "node": "n", "tier": "Tape"}]}, "tier"),
    ],
)
async def test_what_is_of_another_kind_is_refused_with_the_field(serving, more, field):
    body = {"model": "deepseek-r1", "blockTokens": 512, "blocks": [], **more}
    answer = await serving.http.post("/v1/deployments/r1:warm", json=body)
    assert answer.status_code in (400, 422)
    assert field in answer.text


async def test_a_page_that_is_none_is_refused(serving):
    answer = await serving.http.get("/v1/deployments/r1/context-cache", params={"pageToken": "-3"})
    assert (answer.status_code, answer.json()["field"]) == (422, "pageToken")


async def test_without_a_layout_there_are_no_caches(server):
    await server.ensure("nobody", instance="nowhere")
    for path in ("context-cache", "model-cache"):
        assert (await server.http.get(f"/v1/deployments/nobody/{path}")).status_code == 409


async def test_models_share_the_pool_by_how_much_they_are_wanted(server):
    """671 GB and 235 GB in 8 x 90 GB of memory and 8 x 32 GB of solid state: one in each; the third in neither."""
    models = ["qwen3-235b", "kimi-k2"]
    await server.ensure("r1", modelCacheGbPerNode=90, modelCacheSsdGbPerNode=32, modelCacheModels=models)
    await server.until("Serving")
    view = (await server.http.get("/v1/deployments/r1/model-cache")).json()
    shown = {each["model"]: each for each in view["models"]}
    assert [shown[name]["tier"] for name in ("deepseek-r1", *models)] == ["Memory", "SolidState", "ObjectStore"]
    assert shown["deepseek-r1"]["served"]
    current = load_calibration()
    second = shown["qwen3-235b"]
    size = load_model("qwen3-235b").parameters_total * load_model("qwen3-235b").weight_bytes / 1e9
    assert second["gb"] == pytest.approx(size)
    assert second["loadS"] > size / (current.ssd_gbps * 8), "off eight volumes at once, and then over UB"
    third = shown["kimi-k2"]
    if third.get("loadS") is not None:
        assert third["loadS"] > third["gb"] / current.obs_gbps
    assert shown["deepseek-r1"]["loadS"] < 10, "out of the memory of the pool"
    assert shown["deepseek-r1"]["startS"] > current.executor_start_s + current.graph_load_s


async def test_a_cold_pool_reads_the_object_store_first_and_the_other_models_after_it(server):
    await server.ensure("r1", warmModelCache=False, modelCacheModels=["qwen3-235b"])
    loading = await server.until("Loading")
    assert loading["state"] == "Loading"
    view = (await server.http.get("/v1/deployments/r1/model-cache")).json()
    cold = {each["model"]: each for each in view["models"]}["deepseek-r1"]
    assert cold["tier"] == "ObjectStore"
    assert cold["loadS"] > cold["gb"] / load_calibration().obs_gbps > 250
    await server.until("Serving")
    view = (await server.http.get("/v1/deployments/r1/model-cache")).json()
    assert {each["model"]: each["tier"] for each in view["models"]}["deepseek-r1"] == "Memory"


async def test_a_model_that_is_not_there_is_refused_with_the_field(server):
    answer = await server.ensure("r1", modelCacheModels=["deepseek-r1", "nothing"])
    assert (answer.status_code, answer.json()["field"]) == (422, "modelCacheModels[1]")
