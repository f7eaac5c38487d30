"""Text without a model: how prompts are counted, and the words of an answer.

The timing of an answer is the engine's. Its words are drawn from a short list, seeded by the prompt's hash: the same
prompt always gets the same words. A token is a run of up to six non-space characters, so a client can count tokens the
same way: `re.findall(r"\\S{1,6}", text)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from random import Random

from infer_workload.traffic.generator import conversation_shape, quantile

TOKEN = re.compile(r"\S{1,6}")

_WORDS = """
a all also and any are as at back be been both but by call can cell chip clear clock close cold come cost count
cross data deep die do down draw each early edge equal even every fair far fast few field find first fit flow
for form four free from full gain get give go good grow half hand hard heat held here high hold how if in into
is it its join just keep key kind large last late layer learn least left less level light line link list load
local long loss low made main make many mark match may mean meet more most move much must name near need new
next no node none not note now of off often old on once one only open or order other our out over own pack page
part pass path peak pick place plan plane point pool port quick rack rate read ready real rest right ring rise
route rule run same scale see send set seven shape share short show side since six size slow small so some soon
space spare speed split stage start state stay step still such sum swap take tail task ten test than that the
their them then there these they thin third this three time to token too top total turn two under unit up upon
use view wait way we well what when where which while whole why wide will wire with word work write yet you
"""

WORDS = tuple(_WORDS.split())
"""At most five letters each, so that a word with a full stop is still one token."""

SENTENCE_TOKENS = 14


def tokens_of(text: str) -> list[str]:
    return TOKEN.findall(text)


def prefix_blocks(tokens: list[str], block_tokens: int, namespace: str = "") -> tuple[int, ...]:
    """A 64-bit hash for each whole block of the prompt, covering everything up to the block's end and the namespace: a
    project cannot find out another's prompts by how fast its own first token comes."""
    blocks, chain = [], namespace.encode()
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        chain = blake2b(chain + " ".join(tokens[start : start + block_tokens]).encode(), digest_size=8).digest()
        blocks.append(int.from_bytes(chain, "big"))
    return tuple(blocks)


class Answer:
    """The answer to one prompt: its natural length in tokens, and its words."""

    def __init__(self, prompt: str) -> None:
        self._seed = blake2b(prompt.encode(), digest_size=8).digest()
        self.natural_tokens = max(1, round(quantile(conversation_shape().output_quantiles, self._rng().random())))

    def words(self) -> Iterator[str]:
        """Its tokens from the first on, each with its leading space, without end."""
        rng = self._rng()
        rng.random()  # the one that its length is drawn with
        for spoken in count():
            word, at = rng.choice(WORDS), spoken % SENTENCE_TOKENS
            text = (word if at else word.capitalize()) + ("." if at == SENTENCE_TOKENS - 1 else "")
            yield f" {text}" if spoken else text

    def _rng(self) -> Random:
        return Random(self._seed)
