"""What a deployment does now, and has done lately."""

from __future__ import annotations

from pydantic import Field

from infer_workload.contract.load import LoadView
from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel


class Percentiles(ApiModel):
    """A latency in seconds of emulated time, over the requests that finished in the window."""

    p50: float
    p90: float
    p99: float
    mean: float


class Sample(ApiModel):
    """Tokens generated in one emulated second.

    `at` counts seconds before the moment of the statistics, `second` is the same second since the epoch.
    """

    at: float
    second: int
    tokens_per_second: float


class WorkView(ApiModel):
    """The work that comes in over the window, in nodes that it would keep busy within the objective for a token."""

    arrivals_per_second: float = Field(description="requests accepted")
    prompt_tokens_per_second: float = Field(description="tokens of their prompts, cached ones too")
    prefill_nodes: float = Field(description="nodes that read the prompts, less what is cached")
    decode_nodes: float = Field(description="nodes that generate the answers")
    nodes: float = Field(description="nodes in all, at the present proportions of the two")
    backlog_node_seconds: float = Field(description="prompts not yet read, in seconds of one node")
    start_s: float = Field(description="how long a node takes from being there to serving")
    stays_s: float = Field(description="how long a request stays")
    prompt_s: float = Field(0.0, description="how long a prompt of the usual length is read, by itself")
    prefill_backlog_node_seconds: float = Field(
        0.0, description="prompts not yet read, in seconds of one node that reads prompts"
    )
    caching_nodes: float = Field(0.0, description="nodes whose memory holds what is new in the cache for so long")
    prefill_instance_nodes: int = Field(1, description="nodes that read prompts come in so many")
    decode_nodes_min: int = Field(1, description="with fewer the longest request it takes now would have no room")


class StatisticsView(ApiModel):
    """What a deployment does now. Rates are per emulated second over `windowS`; the counts are of this moment."""

    name: str
    state: str
    now: float = Field(description="emulated seconds since the epoch that these are of")
    window_s: float
    measured_s: float = Field(0.0, description="how much of the window it has been serving")
    tokens_per_second: float = 0.0
    tokens_per_second_per_npu: float = 0.0
    prompt_tokens_per_second: float = 0.0
    requests_per_second: float = 0.0
    ttft: Percentiles | None = Field(None, description="time to first token; null when nothing finished in the window")
    tpot: Percentiles | None = Field(None, description="time per further token; null when none came in the window")
    waiting: int = Field(0, description="without room on a decode die")
    queued: int = Field(0, description="not begun: without room, or in the queue of a prefill instance")
    prefilling: int = 0
    transferring: int = 0
    decoding: int = 0
    counting_since: float = Field(0.0, description="since when the counts run: the start of the process")
    submitted: int = Field(0, description="accepted: finished, cancelled, lost or in flight")
    refused: int = Field(0, description="not accepted, with 429: they would not be served in time")
    finished: int = 0
    cancelled: int = Field(0, description="their client went away")
    lost: int = Field(0, description="cut off: what they ran on could not go on serving")
    in_flight: int = 0
    requeued: int = Field(0, description="times that a request went back to the queue")
    activation_queue: int = Field(0, description="waiting for a deployment that is scaled to zero or comes back")
    idle_s: float = Field(0.0, description="since when nothing has come in or run")
    prefill_busy: float = 0.0
    decode_step_ms: float | None = Field(0.0, description="null while a step cannot end: a member is not reached")
    decode_batch_per_npu: float = 0.0
    kv_usage: float = 0.0
    cache_hit_rate_blocks: float | None = Field(None, description="null before any block was looked for")
    cache_hit_rate_tokens: float | None = Field(None, description="of prompt tokens; null before there were any")
    cache_blocks: int = 0
    decode_paused: bool = False
    work: WorkView | None = Field(None, description="what comes in; not there before it has served for the window")
    samples: list[Sample] = Field(default_factory=empty_list)
    load: LoadView | None = None
