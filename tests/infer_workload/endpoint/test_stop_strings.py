"""Where an answer ends with stop strings, and the formats of text that are refused; vLLM's behaviour is the reference."""

from types import SimpleNamespace

import pytest

from infer_workload.openai.ending import Ending, ending_of, pieces, stopped
from infer_workload.openai.parameters import NOT_EMULATED, ChatParameters

PROMPT = "Tell me of the fabric."
TEXT = ["One", " two", " three.", " Four", " five", " six."]
ANSWER = SimpleNamespace(natural_tokens=len(TEXT), words=lambda: iter(TEXT))


async def complete(serving, **given):
    return await serving.openai.completions.create(model="r1", prompt=PROMPT, **{"max_tokens": 40} | given)


async def whole(serving):
    """The first 40 tokens of the answer."""
    return (await complete(serving, extra_body={"ignore_eos": True})).choices[0].text.split()


def read(stop, limit=None, **given):
    parameters = ChatParameters.read({"model": "m", "stop": stop, **given})
    ending = stopped(ANSWER, parameters, ending_of(ANSWER, parameters, limit))
    return ending, list(pieces(ANSWER, parameters, ending))


@pytest.mark.parametrize(
    ("stop", "given", "tokens", "stop_string", "text"),
    [
        ([], {}, 6, None, "One two three. Four five six."),
        ("never", {}, 6, None, "One two three. Four five six."),
        (" two", {}, 2, " two", "One"),
        ("two", {}, 2, "two", "One "),
        ("One", {}, 1, "One", ""),
        ("e two th", {}, 3, "e two th", "On"),
        (".", {}, 3, ".", "One two three"),
        (".", {"include_stop_str_in_output": True}, 3, ".", "One two three."),
        (".", {"min_tokens": 3}, 6, ".", "One two three. Four five six"),
        (". F", {"min_tokens": 3}, 4, ". F", "One two three"),
        ([" five", "three"], {}, 3, "three", "One two "),
        (["ree", "three"], {}, 3, "ree", "One two th"),
        (["three", "ree"], {}, 3, "three", "One two "),
        (" four", {}, 6, None, "One two three. Four five six."),
    ],
)
def test_the_text_ends_before_the_first_stop_string_that_a_token_completes(stop, given, tokens, stop_string, text):
    ending, sent = read(stop, **given)
    assert (ending.tokens, ending.finish, ending.stop_string) == (tokens, "stop", stop_string)
    assert (len(sent), "".join(sent)) == (tokens, text)


def test_a_stop_string_beyond_the_limit_does_not_count():
    ending, sent = read(" five", limit=4)
    assert (ending, "".join(sent)) == (Ending(4, "length"), "One two three. Four")


def test_what_may_be_the_beginning_of_a_stop_string_is_kept_back_until_it_is_not():
    _, sent = read("ee. Five")
    assert sent == ["", "", "One two", " thre", "e. Fo", "ur five six."]


async def test_an_answer_ends_at_its_stop_string_and_counts_its_tokens(serving):
    words = await whole(serving)
    stop = f"{words[7]} {words[8]}"
    answer = await complete(serving, stop=["~", stop], extra_body={"ignore_eos": True})
    choice = answer.choices[0]
    assert choice.text == " ".join(words[:7]) + " "
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    assert answer.usage.completion_tokens == 9
    used = (await serving.http.get("/v1/usage")).json()["items"][0]
    assert used["completionTokens"] == 40 + 9


async def test_a_stream_never_sends_any_part_of_its_stop_string(serving):
    words = await whole(serving)
    stop = f"{words[7]} {words[8]}"
    stream = await complete(
        serving, stop=stop, stream=True, stream_options={"include_usage": True}, extra_body={"ignore_eos": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == " ".join(words[:7]) + " "
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 8 + ["stop"]
    assert (chunks[-2].choices[0].stop_reason, chunks[-1].usage.completion_tokens) == (stop, 9)


async def test_an_answer_without_stop_string_names_none(serving):
    answer = await complete(serving, extra_body={"min_tokens": 40})
    assert (answer.choices[0].finish_reason, answer.choices[0].stop_reason) == ("length", None)
    assert answer.usage.completion_tokens == 40


@pytest.mark.parametrize(
    ("given", "param", "message"),
    [
        ({"stop": ""}, "stop", "stop: must not contain an empty string"),
        ({"stop": ["a", ""]}, "stop", "stop: must not contain an empty string"),
        ({"min_tokens": 9}, "min_tokens", "min_tokens must be at most the answer's limit of 8"),
        ({"min_tokens": -1}, "min_tokens", "min_tokens: input should be greater than or equal to 0"),
        (
            {"response_format": {"type": "json_object"}},
            "response_format",
            "response_format: only the type text is emulated, not 'json_object': "
            "the text is synthetic words and follows no format",
        ),
        (
            {"response_format": "json"},
            "response_format",
            "response_format: must be an object with a type, such as {'type': 'text'}",
        ),
        *(({name: {"a": 1}}, name, f"{name} is not emulated: {why}") for name, why in NOT_EMULATED.items()),
    ],
)
@pytest.mark.parametrize(
    ("path", "asked"),
    [("completions", {"prompt": "x"}), ("chat/completions", {"messages": [{"role": "user", "content": "x"}]})],
)
async def test_a_promise_that_synthetic_text_does_not_keep_is_refused_by_name(
    serving, path, asked, given, param, message
):
    answer = await serving.http.post(f"/v1/{path}", json={"model": "r1", "max_tokens": 8} | asked | given)
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["param"], answer.json()["error"]["message"]) == (param, message)


async def test_a_parameter_that_asks_for_nothing_is_accepted(serving):
    nothing = dict.fromkeys(NOT_EMULATED) | {"use_beam_search": False, "function_call": "auto", "stop_token_ids": []}
    asked = {"model": "r1", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = await serving.http.post(
        "/v1/chat/completions", json=asked | nothing | {"response_format": {"type": "text"}, "stop": None}
    )
    assert answer.status_code == 200, answer.text
