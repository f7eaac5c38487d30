"""Where an answer ends, and what of its text the client gets: stop strings as in vLLM.

An answer ends with the first token that completes a stop string, with its natural end, or at its limit, whichever comes
first. The text is cut before the stop string; the tokens of the stop string are generated, so they take time, are
counted and are charged. While more tokens may come, a stream keeps back what could be the beginning of a stop string.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

from infer_workload.openai.parameters import Parameters
from infer_workload.openai.synthetic_tokens import Answer


@dataclass(frozen=True)
class Ending:
    """Where an answer ends."""

    tokens: int
    finish: str
    """OpenAI's finish reason: stop or length."""
    stop_string: str | None = None
    """The stop string that ended it (`stop_reason` in vLLM)."""
    characters: int | None = None
    """How much of the text the client gets; None: all."""


def ending_of(answer: Answer, parameters: Parameters, limit: int | None) -> Ending:
    """The ending of an answer of at most `limit` tokens, or of any length, without regard to stop strings."""
    natural = max(answer.natural_tokens, parameters.min_tokens or 0)
    at_limit = limit is not None and (bool(parameters.ignore_eos) or natural >= limit)
    return Ending(limit, "length") if limit is not None and at_limit else Ending(natural, "stop")


def stopped(answer: Answer, parameters: Parameters, last: Ending) -> Ending:
    """The ending at the first stop string that is complete by `last`, or else `last`. Generates that many tokens, so it
    is called once they are known to fit the context."""
    if not parameters.stop_strings:
        return last
    words = list(islice(answer.words(), last.tokens))
    text, ends = "".join(words), list(accumulate(map(len, words)))
    least = ends[min(parameters.min_tokens, len(ends)) - 1] if parameters.min_tokens else 0
    found: list[tuple[int, int, str]] = []
    for stop in parameters.stop_strings:
        start = text.find(stop, max(0, least + 1 - len(stop)))
        if start >= 0:
            found.append((bisect_left(ends, start + len(stop)) + 1, start, stop))
    if not found:
        return last
    tokens, start, stop = min(found, key=lambda each: each[0])  # the first in the list of those that a token completes
    return Ending(tokens, "stop", stop, start + (len(stop) if parameters.include_stop_str_in_output else 0))


def pieces(answer: Answer, parameters: Parameters, ending: Ending) -> Iterator[str]:
    """What each token adds to the text that the client has."""
    words = islice(answer.words(), ending.tokens)
    if not parameters.stop_strings:
        yield from words
        return
    kept_back = 0 if parameters.include_stop_str_in_output else max(map(len, parameters.stop_strings)) - 1
    generated = list(words)
    text, sent = "".join(generated), 0
    for number, end in enumerate(accumulate(map(len, generated)), 1):
        shown = max(sent, end - kept_back) if number < ending.tokens else ending.characters
        yield text[sent:shown]
        sent = shown or 0
