"""The OpenAI client against real processes: streams, limits, and what was answered across a kill -9."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.load_generators.endpoint import endpoint, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def client_of(url: str, retries: int = 0) -> openai.OpenAI:
    http = httpx.Client(trust_env=False, timeout=60.0)
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", http_client=http, max_retries=retries)


def test_chat_streams_limits_and_usage(tmp_path: Path) -> None:
    with endpoint(tmp_path) as running:
        running.serve()
        client = client_of(running.url)
        assert [model.id for model in client.models.list()] == ["r1", "deepseek-r1"]
        stream = client.chat.completions.create(
            model="deepseek-r1",
            messages=[{"role": "user", "content": "Why is the sky blue?"}],
            max_completion_tokens=30,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        chunks = list(stream)
        words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert len([word for word in words if word]) == 30
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 30
        body = {"requestsPerDay": 1, "key": "anyone"}
        assert running.engine.http.put("/v1/usage-limits/one", json=body).is_success
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(model="r1", prompt="hello", max_tokens=2)
        assert refused.value.code == "insufficient_quota"
        assert int(refused.value.response.headers["retry-after"]) >= 1
        (used,) = running.usage()
        assert (used["requests"], used["completionTokens"]) == (1, 30)
        assert httpx.head(f"{running.url}/metrics", trust_env=False).status_code == 200


def test_what_was_answered_is_metered_exactly_once_across_kill_9(tmp_path: Path) -> None:
    with endpoint(tmp_path) as running:
        running.serve()
        doors = [running.front_end(), running.front_end()]
        answered: list[tuple[int, int]] = []
        cut: list[int] = []
        killed = threading.Event()

        def ask(url: str, number: int) -> None:
            client = client_of(url)
            while not killed.is_set() or number % 4 == 0:
                tokens = 20 + number
                try:
                    if number % 2:
                        asked = {"model": "r1", "prompt": f"{number}", "max_tokens": tokens, "stream": True}
                        seen = 0
                        for chunk in client.completions.create(**asked, extra_body={"ignore_eos": True}):
                            seen += bool(chunk.choices and chunk.choices[0].text)
                        answered.append((1, seen))
                    else:
                        found = client.completions.create(
                            model="r1", prompt=f"{number}", max_tokens=tokens, extra_body={"ignore_eos": True}
                        )
                        answered.append((1, found.usage.completion_tokens))
                except openai.APIError:
                    cut.append(tokens)
                if killed.is_set():
                    return

        threads = [threading.Thread(target=ask, args=(doors[at % 2], at), daemon=True) for at in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) >= 24, "answers come")
        running.engine.kill()
        killed.set()
        running.engine.start()
        until(running.engine.ready, "it is back")
        until(running.serves, "it serves again")
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive(), "nobody is left hanging"
        (used,) = running.usage()
        # Exactly what was answered, and of streams that were cut at most what they were charged ahead.
        requests, tokens = len(answered), sum(tokens for _, tokens in answered)
        assert requests <= used["requests"] <= requests + len(cut)
        assert tokens <= used["completionTokens"] <= tokens + sum(cut)
        client_of(doors[0]).completions.create(model="r1", prompt="again", max_tokens=2)
        assert running.usage()[0]["requests"] == used["requests"] + 1


def test_two_deployments_and_two_front_ends_are_one_endpoint(tmp_path: Path) -> None:
    with endpoint(tmp_path) as running:
        for name in ("one", "two"):
            running.serve(name)
        doors = [running.front_end(), running.front_end()]
        threads = [
            threading.Thread(
                target=lambda url=url: client_of(url).completions.create(
                    model="deepseek-r1", prompt="x", max_tokens=300
                )
            )
            for url in doors * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        used = {each["deployment"]: each["requests"] for each in running.usage()}
        assert used.keys() == {"one", "two"}
        assert sum(used.values()) == 8


def test_metrics_have_the_names_that_dashboards_of_vllm_read(tmp_path: Path) -> None:
    with endpoint(tmp_path) as running:
        running.serve()
        client_of(running.url).completions.create(model="r1", prompt="x " * 2000, max_tokens=64)
        metrics = running.engine.http.get("/metrics").text
        for name in NAMES:
            assert f"\nvllm:{name}{{" in metrics or f"\nvllm:{name}_bucket{{" in metrics, name
        for bound in ("0.001", "0.08", "0.75", "160.0", "2560.0", "+Inf"):
            assert f'vllm:time_to_first_token_seconds_bucket{{le="{bound}",model_name="r1"}}' in metrics, bound


NAMES = [
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "external_prefix_cache_queries_total",
    "external_prefix_cache_hits_total",
    "num_preemptions_total",
    "cache_config_info",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
]
