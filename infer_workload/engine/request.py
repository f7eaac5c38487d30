"""An inference request and its states.

It waits for KV memory on a decode die, is prefilled (which yields its first token), its KV moves to the die, it is
decoded, it is finished. The loss of a node requeues it, and so does a request of higher priority that finds no room:
its generated tokens become part of the prompt, so no token is generated twice and none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from matrixcommon.model.state_machine import State, StateMachine

WAITING, PREFILLING, TRANSFERRING, DECODING = "Waiting", "Prefilling", "Transferring", "Decoding"
FINISHED, CANCELLED = "Finished", "Cancelled"

SENTENCES = {
    WAITING: "waiting for room for its KV on a decode die",
    PREFILLING: "in the queue or a chunk of a prefill instance",
    TRANSFERRING: "its KV is moving to its decode die over the RDMA plane",
    DECODING: "gaining tokens with every step of the decode pool",
    FINISHED: "all its tokens have been generated",
    CANCELLED: "its client disconnected",
}
MOVES = {
    WAITING: {PREFILLING, CANCELLED},
    PREFILLING: {TRANSFERRING, FINISHED, WAITING, CANCELLED},
    TRANSFERRING: {DECODING, WAITING, CANCELLED},
    DECODING: {FINISHED, WAITING, CANCELLED},
    FINISHED: set[str](),
    CANCELLED: set[str](),
}
"""The loss of a node and preemption move a request back to Waiting."""

REQUEST_STATES = StateMachine("request", WAITING, [State(name, text) for name, text in SENTENCES.items()], MOVES)


class ContextTooLong(ValueError):
    """Prompt and answer exceed the context length of the deployment."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"prompt and answer have {tokens} tokens; this deployment's context length is {limit}")
        self.tokens, self.limit = tokens, limit


@dataclass(slots=True, eq=False)
class DecodeDie:
    """One decode die: what is reserved on it (requests, tokens) and what it decodes."""

    node: str
    index: int
    reserved: int = 0
    reserved_tokens: int = 0
    active: int = 0
    kv_base: float = 0.0
    """Tokens in its KV memory, less the growth of its requests over all steps since the pool's first
    (`KvLoadTracker`)."""


class Prefiller(Protocol):
    """A prefill instance, as a request refers to it."""

    number: int
    nodes: tuple[str, ...]
    backlog_tokens: int

    def blocks_recomputed(self, in_flight: set[int], block_tokens: int) -> set[int]:
        """Of the blocks owed by withdrawn prompts, those that other prompts here will compute instead."""


class Latencies:
    """Latencies of a request, for classes that have its times."""

    __slots__ = ()

    arrived_at: float
    first_token_at: float
    finished_at: float
    output_tokens: int

    @property
    def ttft_s(self) -> float:
        """Arrival to first token."""
        return self.first_token_at - self.arrived_at

    @property
    def tpot_s(self) -> float:
        """Mean time per token after the first; 0 for an answer of one token."""
        return (self.finished_at - self.first_token_at) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def latency_s(self) -> float:
        """Arrival to last token."""
        return self.finished_at - self.arrived_at


@dataclass(slots=True, eq=False)
class InferenceRequest(Latencies):
    """One prompt and its answer. Times are the engine's seconds; lengths are tokens.

    `generated` counts tokens generated, `prompt` those that must be in KV before decoding (it grows when requeueing
    makes generated tokens part of it), `cached` how many of these came from the context cache in this attempt.
    """

    number: int
    arrived_at: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[int] = ()
    tenant: str = ""
    priority: int = 0
    """As in vLLM: a lower value is handled earlier; within one priority, in order of arrival."""
    finish: str = "stop"
    """Why the answer ends: by itself (`stop`), or at the requested length (`length`)."""

    state: str = WAITING
    prompt: int = 0
    generated: int = 0
    cached: int = 0
    matched: int = 0
    """Tokens of the prompt that the context cache has; may be all of them, though the last one is always computed."""
    cached_first: int = 0
    """`matched` of the first attempt."""
    cached_ssd: int = 0
    """Those of `cached` that were on solid state."""
    prefilled: int = 0
    attempts: int = 1
    die: DecodeDie | None = None
    instance: Prefiller | None = None
    reserved: int = 0
    first_token_at: float = -1.0
    finished_at: float = -1.0
    prefill_started_at: float = -1.0
    start_step: int = 0
    end_step: int = 0
    tokens_at_start: int = 0
    kv_base: float = 0.0
    """Its part of its die's `kv_base`."""
    drafting: bool = False
    """Whether each step of this attempt drafts a token."""
    drafts: int = 0
    drafts_accepted: int = 0
    """Over all attempts whose decoding has ended."""

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request needs at least one input token and one output token")
        self.prompt = self.input_tokens

    def move(self, state: str) -> None:
        """Change the state. Raises ValueError for a move that is not in MOVES."""
        if state not in MOVES[self.state]:
            raise ValueError(f"request {self.number} cannot change from {self.state} to {state}")
        self.state = state

    def leave_decode(self, step: int) -> None:
        """Count its drafts, as its decoding ends with that step of the pool, finished or not."""
        if self.drafting:
            steps = min(step, self.end_step) - self.start_step
            self.drafts += steps
            self.drafts_accepted += max(0, self.generated - self.tokens_at_start - steps)

    @property
    def queue_key(self) -> tuple[int, float, int]:
        """The sort key of handling: the least goes first."""
        return self.priority, self.arrived_at, self.number

    @property
    def project(self) -> str:
        """The project of its tenant; empty for built-in load."""
        return self.tenant.partition("/")[0]

    @property
    def done(self) -> bool:
        return self.state in (FINISHED, CANCELLED)
