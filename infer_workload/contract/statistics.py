"""Statistics of a deployment: its present state, and rates over a recent window."""

from __future__ import annotations

from pydantic import Field

from infer_workload.contract.load import LoadView
from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel


class Percentiles(ApiModel):
    """A latency in seconds of emulated time, over the requests that finished in the window."""

    p50: float = Field(description="half of the requests were at most this")
    p90: float = Field(description="90 % of the requests were at most this")
    p99: float = Field(description="99 % of the requests were at most this")
    mean: float = Field(description="mean over the requests")


class Sample(ApiModel):
    """Tokens generated in one emulated second.

    `at` is how many seconds before the moment of the statistics it began; `second` is its start since the epoch.
    """

    at: float = Field(description="how long before the moment of the statistics it began (s, emulated)")
    second: int = Field(description="its start, emulated seconds since the epoch")
    tokens_per_second: float = Field(description="tokens generated in it")


class WorkView(ApiModel):
    """Demand over the window, as the number of nodes it would keep busy within the objective for time per token."""

    arrivals_per_second: float = Field(description="requests arriving per second, those refused for load included")
    prompt_tokens_per_second: float = Field(description="tokens of their prompts per second, cached ones included")
    prefill_nodes: float = Field(description="nodes needed to compute the prompts' uncached tokens")
    decode_nodes: float = Field(description="nodes needed to generate the answers")
    nodes: float = Field(description="nodes needed in all, at the present ratio of prefill to decode nodes")
    backlog_node_seconds: float = Field(description="work of prompts not yet prefilled, in seconds of one node")
    start_s: float = Field(description="seconds from when a node is added until it serves")
    stays_s: float = Field(description="seconds that a mean answer takes at the objective for time per token")
    prompt_s: float = Field(0.0, description="seconds to prefill a prompt of typical length by itself")
    prefill_backlog_node_seconds: float = Field(
        0.0, description="work of prompts not yet prefilled, in seconds of one prefill node"
    )
    caching_nodes: float = Field(
        0.0, description="caching nodes whose memory would hold the new blocks for the retention time"
    )
    prefill_instance_nodes: int = Field(
        1, description="nodes per prefill instance: prefill is sized in multiples of it"
    )
    decode_nodes_min: int = Field(1, description="fewest decode nodes on which the longest accepted request still fits")


class StatisticsView(ApiModel):
    """What a deployment does now. Rates are per emulated second over `windowS`; the counts are of this moment."""

    name: str = Field(description="name of the deployment")
    state: str = Field(description="state of the deployment")
    now: float = Field(description="the moment of the statistics, emulated seconds since the epoch")
    window_s: float = Field(description="length of the window (s, emulated)")
    measured_s: float = Field(0.0, description="seconds of the window in which it has been serving")
    tokens_per_second: float = Field(
        0.0, description="tokens generated per second, over the whole seconds of the window"
    )
    tokens_per_second_per_npu: float = Field(
        0.0, description="the same for each NPU of both pools; 0 while nothing is laid out"
    )
    prompt_tokens_per_second: float = Field(
        0.0, description="prompt tokens per second of the requests that finished in the window"
    )
    requests_per_second: float = Field(0.0, description="requests per second that finished in the window")
    ttft: Percentiles | None = Field(None, description="time to first token; null if no request finished in the window")
    tpot: Percentiles | None = Field(
        None, description="time per token after the first; null if no request with one finished in the window"
    )
    waiting: int = Field(0, description="requests waiting for room on a decode die")
    queued: int = Field(0, description="requests not begun: waiting for room, or in the queue of a prefill instance")
    prefilling: int = Field(0, description="requests at a prefill instance, in its queue or being computed")
    transferring: int = Field(0, description="requests whose KV is on its way to the decode pool")
    decoding: int = Field(0, description="requests for which tokens are being generated")
    counting_since: float = Field(
        0.0, description="when the counts began, emulated seconds since the epoch: the start of the process"
    )
    submitted: int = Field(0, description="requests accepted: finished, cancelled, lost or in flight")
    refused: int = Field(0, description="requests refused with 429, because they would not be served in time")
    finished: int = Field(0, description="requests answered in full since counting began")
    cancelled: int = Field(0, description="requests cancelled because their client disconnected")
    lost: int = Field(0, description="requests cut off because their nodes could not continue to serve")
    in_flight: int = Field(0, description="requests accepted and not ended, those that wait included")
    requeued: int = Field(0, description="number of times that a request went back to the queue")
    activation_queue: int = Field(0, description="requests waiting for the deployment to return from zero nodes")
    idle_s: float = Field(
        0.0, description="seconds since a request last arrived or ran; 0 while it loads or has built-in load"
    )
    prefill_busy: float = Field(0.0, description="fraction of prefill instances that are computing")
    decode_step_ms: float | None = Field(
        0.0, description="time of one decode step (ms, emulated); null while none can finish as a member is unreachable"
    )
    decode_batch_per_npu: float = Field(
        0.0, description="mean number of requests that one NPU decodes at the same time now"
    )
    kv_usage: float = Field(0.0, description="fraction of the decode pool's KV memory that is reserved")
    cache_hit_rate_blocks: float | None = Field(
        None, description="fraction of looked-up blocks that were found; null until there are any"
    )
    cache_hit_rate_tokens: float | None = Field(
        None, description="fraction of prompt tokens found in the cache; null until there are any"
    )
    cache_blocks: int = Field(0, description="blocks in the context cache, in both tiers")
    decode_paused: bool = Field(False, description="whether decoding pauses while the layout changes")
    work: WorkView | None = Field(None, description="demand; null until it has served for a whole window")
    samples: list[Sample] = Field(
        default_factory=empty_list, description="tokens generated in each whole second of the window, oldest first"
    )
    load: LoadView | None = Field(None, description="built-in load and its counts; null: none")
