"""The caches of a served model, as their user has them on the command line, and what is left of them without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.services.matrixctl.inprocess import connect_matrixctl_to, run_line_in_thread
from tests.stack import Stack

pytestmark = pytest.mark.looptime

PROMPT = "a long way to go " * 600


async def serve(stack: Stack, name: str, **more: Any) -> None:
    """A deployment on the instance `i`, once it serves and its caches have their memory."""
    answer = await stack.http["infer"].put(f"/v1/deployments/{name}", json={"instance": "i", **more})
    assert answer.is_success, answer.text

    async def granted() -> bool:
        view = (await stack.get("infer", f"/v1/deployments/{name}")).json()
        return view["state"] == "Serving" and (view.get("cacheMemory") or {}).get("reason") == "Granted"

    await stack.until(granted, f"{name} serves and caches")


async def cached_tokens(stack: Stack, name: str) -> int:
    """Of the prompt, what that deployment had in its cache."""
    body = {"model": name, "prompt": PROMPT, "max_tokens": 4}
    answer = await stack.http["infer"].post("/v1/completions", json=body, timeout=3600)
    assert answer.is_success, answer.text
    found: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


async def test_a_deployment_begins_with_the_blocks_of_the_one_before(tmp_path: Path, monkeypatch, capsys) -> None:
    file = tmp_path / "blocks.json"
    async with Stack(tmp_path, infer=True) as stack:
        connect_matrixctl_to(monkeypatch, stack)
        await stack.apply("i", 4)
        await stack.active("i", 4)
        await serve(stack, "before", modelCacheModels=["qwen3-235b"], cacheGbPerNode=64)
        assert await cached_tokens(stack, "before") == 0

        code, out, _ = await run_line_in_thread(capsys, "cache models before")
        assert code == 0
        assert "GB of memory on 4 nodes" in out
        assert "deepseek-r1 yes 671 Memory" in out
        assert "qwen3-235b no 235 Memory" in out
        code, out, _ = await run_line_in_thread(capsys, "cache models before -o json")
        models = {each["model"]: each for each in json.loads(out)["models"]}
        assert {name: each["tier"] for name, each in models.items()} == {
            "deepseek-r1": "Memory", "qwen3-235b": "Memory",
        }  # fmt: skip
        assert 0 < models["qwen3-235b"]["loadS"] < models["qwen3-235b"]["switchS"] < models["qwen3-235b"]["startS"]

        code, out, _ = await run_line_in_thread(capsys, f"cache export before {file}")
        blocks = json.loads(file.read_text())["blocks"]
        assert (code, out) == (0, f"wrote {len(blocks)} blocks of before into {file}")
        assert blocks
        assert (await stack.http["infer"].delete("/v1/deployments/before")).is_success

        await serve(stack, "after", cacheGbPerNode=64)
        whole = f"{len(blocks)} of {len(blocks)} blocks"
        code, out, _ = await run_line_in_thread(capsys, f"cache warm after {file} --dry-run")
        assert (code, f"after would start with {whole}" in out) == (0, True)
        assert json.loads((await run_line_in_thread(capsys, "get deployment after -o json"))[1])["name"] == "after"
        current = (await stack.get("infer", "/v1/deployments/after/context-cache")).json()
        assert current["blocks"] == [], "nothing is taken that is only asked about"
        code, out, _ = await run_line_in_thread(capsys, f"cache warm after {file}")
        assert (code, f"after starts with {whole}; 0 were already there" in out) == (0, True)
        _, out, _ = await run_line_in_thread(capsys, f"cache warm after {file}")
        assert f"starts with 0 of {len(blocks)} blocks; {len(blocks)} were already there" in out
        assert await cached_tokens(stack, "after") >= 512 * len(blocks) // 2

        for line, code, says in (
            (f"cache export nobody {file}", 1, "nobody"),
            (f"cache warm after {tmp_path}/none.json", 2, "FILE"),
            (f"cache warm after {Path(__file__)}", 2, "is not an export of a context cache"),
        ):
            found, _, wrong = await run_line_in_thread(capsys, line)
            assert (found, says in wrong) == (code, True), (line, wrong)
        file.write_text(json.dumps({"model": "kimi-k2", "blockTokens": 512, "blocks": blocks}))
        found, _, wrong = await run_line_in_thread(capsys, f"cache warm after {file}")
        assert (found, "model" in wrong) == (1, True), wrong


async def test_cache_memory_is_released_with_the_instance_though_nobody_serves(tmp_path: Path) -> None:
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("i", 4)
        await stack.active("i", 4)
        await serve(stack, "r1", cacheGbPerNode=64)
        assert await stack.resource.find_allocation("r1-ems") is not None
        await stack.kill("infer")
        assert (await stack.http["compute"].delete("/v1/instances/i")).is_success
        await stack.gone("i")

        async def whole() -> bool:
            nodes = await stack.resource.nodes()
            return all(node.schedulable for node in nodes) and await stack.resource.find_allocation("r1-ems") is None

        await stack.until(whole, "every node is whole again", within_s=600)
        await stack.start("infer")
        view = (await stack.get("infer", "/v1/deployments/r1")).json()
        assert view["state"] in ("Pending", "Unavailable")
        await stack.nothing_left()


async def test_cache_memory_of_an_instance_is_not_that_of_the_next_one_of_its_name(tmp_path: Path) -> None:
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("i", 4)
        await stack.active("i", 4)
        await serve(stack, "r1", cacheGbPerNode=64)
        before = await stack.resource.find_allocation("r1-ems")
        await stack.kill("infer")
        assert (await stack.http["compute"].delete("/v1/instances/i")).is_success
        await stack.gone("i")
        await stack.apply("i", 4)
        await stack.active("i", 4)

        async def given_back() -> bool:
            return await stack.resource.find_allocation("r1-ems") is None

        await stack.until(given_back, "what the former instance's caches had is given back", within_s=600)
        await stack.start("infer")

        async def granted() -> bool:
            found = (await stack.get("infer", "/v1/deployments/r1")).json()
            return found["state"] == "Serving" and (found.get("cacheMemory") or {}).get("reason") == "Granted"

        await stack.until(granted, "its caches have memory of the next instance")
        after, instance = await stack.resource.find_allocation("r1-ems"), await stack.resource.find_allocation("i")
        assert before is not None
        assert after is not None
        assert instance is not None
        assert before.created_at < instance.created_at < after.created_at
