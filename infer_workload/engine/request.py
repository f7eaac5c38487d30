"""A request on its way through the pools, and the states it can be in.

It waits for KV memory on a decode die, is prefilled (its first token comes from there), its KV moves to the die, it is
decoded, it is finished. A lost node sends it back, and so does a request of an earlier priority that finds no room:
what it had generated becomes part of the prompt, so no token is produced twice and none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from matrixcommon.model.state_machine import State, StateMachine

WAITING, PREFILLING, TRANSFERRING, DECODING = "Waiting", "Prefilling", "Transferring", "Decoding"
FINISHED, CANCELLED = "Finished", "Cancelled"

SENTENCES = {
    WAITING: "no decode die has room for its KV yet",
    PREFILLING: "in the queue or a chunk of a prefill instance",
    TRANSFERRING: "its KV moves to its decode die over the RDMA plane",
    DECODING: "gains tokens with every step of the decode pool",
    FINISHED: "all its tokens are there",
    CANCELLED: "its client went away",
}
MOVES = {
    WAITING: {PREFILLING, CANCELLED},
    PREFILLING: {TRANSFERRING, FINISHED, WAITING, CANCELLED},
    TRANSFERRING: {DECODING, WAITING, CANCELLED},
    DECODING: {FINISHED, WAITING, CANCELLED},
    FINISHED: set[str](),
    CANCELLED: set[str](),
}
"""Back to Waiting is what the loss of a node does, or being preempted."""

REQUEST_STATES = StateMachine("request", WAITING, [State(name, text) for name, text in SENTENCES.items()], MOVES)


class ContextTooLong(ValueError):
    """Prompt and answer are longer than one decode die can hold."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"{tokens} tokens of prompt and answer; this deployment holds {limit} at most")
        self.tokens, self.limit = tokens, limit


@dataclass(slots=True, eq=False)
class DecodeDie:
    """One die: what is set aside on it and what it decodes."""

    node: str
    index: int
    reserved: int = 0
    reserved_tokens: int = 0
    active: int = 0
    kv_base: float = 0.0
    """Tokens in its KV memory, less what its requests gain in all steps since the pool's first (`LongestDie`)."""


class Prefiller(Protocol):
    """The prefill instance that works on a request, as far as the request's place is concerned."""

    number: int
    nodes: tuple[str, ...]
    backlog_tokens: int

    def still_due(self, owed: set[int], block_tokens: int) -> set[int]:
        """Of blocks that prompts which were withdrawn owed, those that others here compute in their place."""


class Latencies:
    """How long a request took, of whoever knows its times."""

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
        """Mean time of a token after the first; 0 for an answer of one token."""
        return (self.finished_at - self.first_token_at) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def latency_s(self) -> float:
        """Arrival to last token."""
        return self.finished_at - self.arrived_at


@dataclass(slots=True, eq=False)
class InferenceRequest(Latencies):
    """One prompt and its answer. Times are the engine's seconds; lengths are tokens.

    `generated` counts tokens delivered, `prompt` what must be in KV before decoding (it grows when a loss makes
    generated tokens part of it), `cached` how much of it came from the context cache in this life.
    """

    number: int
    arrived_at: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[int] = ()
    tenant: str = ""
    priority: int = 0
    """As vLLM has it: lower means earlier handling; within one priority, who came first."""
    finish: str = "stop"
    """Why the answer ends where it does: by itself (`stop`), or at the length that was asked for (`length`)."""

    state: str = WAITING
    prompt: int = 0
    generated: int = 0
    cached: int = 0
    matched: int = 0
    """Tokens of the prompt that the context cache has; all of them where only the last one is computed again."""
    cached_first: int = 0
    cached_ssd: int = 0
    """Of `cached`, tokens that lay on solid state."""
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
    """Its part of its die's."""
    drafting: bool = False
    """Whether each step of this life drafts a token."""
    drafts: int = 0
    drafts_accepted: int = 0
    """Over all lives that decoding has ended of."""

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise ValueError("a request needs at least one token in and one token out")
        self.prompt = self.input_tokens

    def move(self, state: str) -> None:
        """Raises ValueError for a move that is not in MOVES."""
        if state not in MOVES[self.state]:
            raise ValueError(f"request {self.number} that is {self.state} cannot become {state}")
        self.state = state

    def leave_decode(self, step: int) -> None:
        """Decoding it ends with that step of the pool, for good or not: count what was drafted for it."""
        if self.drafting:
            steps = min(step, self.end_step) - self.start_step
            self.drafts += steps
            self.drafts_accepted += max(0, self.generated - self.tokens_at_start - steps)

    @property
    def turn(self) -> tuple[int, float, int]:
        """Whose is less is handled earlier."""
        return self.priority, self.arrived_at, self.number

    @property
    def project(self) -> str:
        """Whose it is; empty for built-in load."""
        return self.tenant.partition("/")[0]

    @property
    def done(self) -> bool:
        return self.state in (FINISHED, CANCELLED)
