"""The official OpenAI client library against the fake provider, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import openai
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script

T = TypeVar("T")

WEATHER = {"name": "weather", "arguments": {"city": "Zürich"}}
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
USAGE = {"input_tokens": 11, "output_tokens": 7, "reasoning_tokens": 3, "cached_tokens": 2}


async def with_client(script: Script, use: Callable[[openai.OpenAI], T]) -> T:
    def in_thread(base_url: str) -> T:
        with openai.OpenAI(base_url=base_url, api_key="key", max_retries=0, timeout=10) as client:
            return use(client)

    with trio.fail_after(30):
        async with FakeProvider(script) as provider:
            return await trio.to_thread.run_sync(in_thread, provider.base_url, abandon_on_cancel=True)


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def test_a_chat_stream_carries_text_reasoning_calls_and_usage() -> None:
    reply = Reply.of({"reasoning": "hm hm"}, {"text": "Let me see"}, {"tool_call": WEATHER}, {"usage": USAGE})

    def use(client: openai.OpenAI) -> list[Any]:
        options = {"include_usage": True}
        stream: Any = client.chat.completions.create(
            model="fake-model", messages=user("hi"), stream=True, stream_options=options
        )  # type: ignore[call-overload]
        return list(stream)

    chunks = await with_client(Script.of(reply), use)

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert "".join(delta.content or "" for delta in deltas) == "Let me see"
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "hm hm"
    assert (calls[0].id, calls[0].function.name) == ("call_1_0", "weather")
    assert json.loads("".join(call.function.arguments for call in calls)) == {"city": "Zürich"}
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["tool_calls"]
    assert (chunks[-1].choices, chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == ([], 11, 7)
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 3


async def test_the_chat_stream_helper_assembles_the_same_answer_as_one_piece() -> None:
    reply = Reply.of({"text": "one two"}, {"tool_call": WEATHER})

    def use(client: openai.OpenAI) -> tuple[Any, Any]:
        tools: Any = [{"type": "function", "function": TOOL}]
        with client.chat.completions.stream(model="fake-model", messages=user("hi"), tools=tools) as stream:
            streamed = stream.get_final_completion()
        return streamed, client.chat.completions.create(model="fake-model", messages=user("hi"))

    streamed, whole = await with_client(Script.of(reply, reply), use)

    def told(completion: Any) -> tuple[Any, ...]:
        message = completion.choices[0].message
        function = message.tool_calls[0].function
        return message.content, function.name, function.arguments, completion.choices[0].finish_reason

    assert told(streamed) == told(whole) == ("one two", "weather", '{"city": "Zürich"}', "tool_calls")


async def test_a_chat_history_written_by_the_client_passes_strict_mode() -> None:
    script = Script.of(Reply.of({"tool_call": WEATHER}), Reply.of({"text": "sunny"}), strict=True)

    def use(client: openai.OpenAI) -> str | None:
        history = user("weather?")
        first = client.chat.completions.create(model="fake-model", messages=history).choices[0].message
        assert first.tool_calls
        history.append(first.model_dump(exclude_none=True))
        history.append({"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sun"})
        return client.chat.completions.create(model="fake-model", messages=history).choices[0].message.content

    assert await with_client(script, use) == "sunny"


async def test_a_chat_refusal_arrives_in_its_own_field() -> None:
    def use(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(model="fake-model", messages=user("hi")) as stream:
            for event in stream:
                if event.type == "refusal.delta":
                    return event.snapshot
        return None

    assert await with_client(Script.of(Reply.of({"refusal": ["No."]})), use) == "No."


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
async def test_an_http_error_is_raised_as_the_typed_exception(status: int, error: type[openai.APIStatusError]) -> None:
    def use(client: openai.OpenAI) -> openai.APIStatusError:
        with pytest.raises(error) as caught:
            client.chat.completions.create(model="fake-model", messages=user("hi"), stream=True)
        return caught.value

    reply = Reply.of(faults={"status": status, "retry_after": 7})
    raised = await with_client(Script.of(reply), use)
    assert raised.status_code == status
    assert raised.response.headers["retry-after"] == "7"
    assert f"{status}" in raised.message


async def test_an_error_in_a_chat_stream_is_raised_by_the_client() -> None:
    reply = Reply.of({"text": "a b c"}, faults={"mid_stream_error": {"after": 2, "message": "overheated"}})

    def use(client: openai.OpenAI) -> str:
        with pytest.raises(openai.APIError) as caught:
            list(client.chat.completions.create(model="fake-model", messages=user("hi"), stream=True))
        return caught.value.message

    assert await with_client(Script.of(reply), use) == "overheated"


async def test_a_dropped_stream_is_a_transport_error_for_the_client() -> None:
    def use(client: openai.OpenAI) -> None:
        with pytest.raises(Exception, match=r"incomplete|peer closed|Connection"):
            list(client.chat.completions.create(model="fake-model", messages=user("hi"), stream=True))

    await with_client(Script.of(Reply.of({"text": "a b c"}, faults={"drop_after": 2})), use)


async def test_the_client_lists_the_models() -> None:
    script = Script(models=["small", "large"])
    assert await with_client(script, lambda client: [m.id for m in client.models.list()]) == ["small", "large"]


async def test_a_responses_stream_is_assembled_by_the_client() -> None:
    reply = Reply.of({"reasoning": "hm hm"}, {"text": "Let me see"}, {"tool_call": WEATHER}, {"usage": USAGE})

    def use(client: openai.OpenAI) -> tuple[list[Any], Any]:
        include: Any = ["reasoning.encrypted_content"]
        with client.responses.stream(model="fake-model", input="hi", include=include) as stream:
            return list(stream), stream.get_final_response()

    events, final = await with_client(Script.of(reply), use)

    assert [event.sequence_number for event in events if hasattr(event, "sequence_number")] == list(range(len(events)))
    assert final.output_text == "Let me see"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert (final.output[0].summary[0].text, final.output[0].encrypted_content) == ("hm hm", "signature-1")
    assert (final.output[2].call_id, json.loads(final.output[2].arguments)) == ("call_1_0", {"city": "Zürich"})
    assert (final.usage.input_tokens, final.usage.output_tokens_details.reasoning_tokens) == (11, 3)
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == final.output[2].arguments


async def test_a_response_in_one_piece_equals_the_streamed_one() -> None:
    reply = Reply.of({"reasoning": "hm"}, {"text": "one two"}, {"tool_call": WEATHER | {"id": "c1"}}, {"usage": USAGE})

    def use(client: openai.OpenAI) -> tuple[Any, Any]:
        with client.responses.stream(model="fake-model", input="hi") as stream:
            streamed = stream.get_final_response()
        return streamed, client.responses.create(model="fake-model", input="hi")

    def told(response: Any) -> list[dict[str, Any]]:
        own = {"id", "parsed_arguments"}  # ids name the request; the helper adds what it has parsed
        items = [{key: value for key, value in item.to_dict().items() if key not in own} for item in response.output]
        for item in items:
            for part in item.get("content") or []:
                part.pop("parsed", None)
        return items

    streamed, whole = await with_client(Script.of(reply, reply), use)
    assert (streamed.status, told(streamed), streamed.usage) == (whole.status, told(whole), whole.usage)
    assert [item["type"] for item in told(whole)] == ["reasoning", "message", "function_call"]


async def test_a_responses_history_written_by_the_client_passes_strict_mode() -> None:
    script = Script.of(Reply.of({"reasoning": "hm"}, {"tool_call": WEATHER}), Reply.of({"text": "sunny"}), strict=True)

    def use(client: openai.OpenAI) -> str:
        include: Any = ["reasoning.encrypted_content"]
        history: Any = user("weather?")
        first = client.responses.create(model="fake-model", input=history, store=False, include=include)
        history += [item.model_dump(exclude_none=True) for item in first.output]
        history.append({"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "sun"})  # type: ignore[union-attr]
        return client.responses.create(model="fake-model", input=history, store=False).output_text

    assert await with_client(script, use) == "sunny"


@pytest.mark.parametrize(
    ("reason", "status", "detail"),
    [("length", "incomplete", "max_output_tokens"), ("content_filter", "incomplete", "content_filter")],
)
async def test_a_response_that_was_cut_says_why(reason: str, status: str, detail: str) -> None:
    def use(client: openai.OpenAI) -> Any:
        return list(client.responses.create(model="fake-model", input="hi", stream=True))[-1]

    last = await with_client(Script.of(Reply.of({"text": "a b"}, {"finish_reason": reason})), use)
    assert (last.type, last.response.status) == (f"response.{status}", status)
    assert last.response.incomplete_details.reason == detail


async def test_an_error_in_a_responses_stream_reaches_the_client_as_its_last_event() -> None:
    reply = Reply.of({"text": "a b c"}, faults={"mid_stream_error": {"after": 5, "message": "overheated"}})

    def use(client: openai.OpenAI) -> Any:
        return list(client.responses.create(model="fake-model", input="hi", stream=True))[-1]

    last = await with_client(Script.of(reply), use)
    assert (last.type, last.message, last.code) == ("error", "overheated", "server_error")
