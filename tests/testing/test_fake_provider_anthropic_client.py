"""The official Anthropic client library against the fake provider, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import anthropic
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script

T = TypeVar("T")

WEATHER = {"name": "weather", "arguments": {"city": "Zürich"}}
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
USER: Any = [{"role": "user", "content": "hi"}]


async def with_client(script: Script, use: Callable[[anthropic.Anthropic], T]) -> T:
    def in_thread(origin: str) -> T:
        with anthropic.Anthropic(base_url=origin, api_key="key", max_retries=0, timeout=10) as client:
            return use(client)

    with trio.fail_after(30):
        async with FakeProvider(script) as provider:
            return await trio.to_thread.run_sync(in_thread, provider.origin, abandon_on_cancel=True)


def streamed_message(client: anthropic.Anthropic, messages: Any = USER, **more: Any) -> Any:
    with client.messages.stream(model="fake-model", max_tokens=100, messages=messages, **more) as stream:
        return stream.get_final_message()


async def test_a_stream_carries_thinking_text_calls_and_usage() -> None:
    usage = {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 2}
    reply = Reply.of({"reasoning": "hm hm"}, {"text": "Let me see"}, {"tool_call": WEATHER}, {"usage": usage})
    message = await with_client(Script.of(reply), streamed_message)

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert (message.content[0].thinking, message.content[0].signature) == ("hm hm", "signature-1")
    assert message.content[1].text == "Let me see"
    assert (message.content[2].id, message.content[2].input) == ("call_1_0", {"city": "Zürich"})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)


async def test_a_message_in_one_piece_equals_the_streamed_one() -> None:
    reply = Reply.of({"reasoning": "hm"}, {"text": "one two"}, {"tool_call": WEATHER | {"id": "toolu_1"}})

    def use(client: anthropic.Anthropic) -> tuple[Any, Any]:
        whole = client.messages.create(model="fake-model", max_tokens=100, messages=USER)
        return [b.to_dict() for b in whole.content], [b.to_dict() for b in streamed_message(client).content]

    whole, streamed = await with_client(Script.of(reply, reply), use)
    assert [block["type"] for block in whole] == ["thinking", "text", "tool_use"]
    for block in (whole[0], streamed[0]):
        del block["signature"]  # it names the request
    assert whole == streamed


async def test_redacted_thinking_arrives_opaque() -> None:
    reply = Reply.of({"reasoning": {"redacted": "b3BhcXVl"}}, {"text": "so"})
    message = await with_client(Script.of(reply), streamed_message)
    assert [block.type for block in message.content] == ["redacted_thinking", "text"]
    assert message.content[0].data == "b3BhcXVl"


async def test_a_history_written_by_the_client_passes_strict_mode() -> None:
    script = Script.of(Reply.of({"reasoning": "hm"}, {"tool_call": WEATHER}), Reply.of({"text": "sunny"}), strict=True)
    thinking = {"type": "enabled", "budget_tokens": 4000}

    def use(client: anthropic.Anthropic) -> str:
        first = streamed_message(client, tools=TOOLS, thinking=thinking)
        answer = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "sun"}
        blocks = [block.to_dict() for block in first.content]
        history = [*USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": [answer]}]
        return str(streamed_message(client, history, tools=TOOLS, thinking=thinking).content[0].text)

    assert await with_client(script, use) == "sunny"


@pytest.mark.parametrize(
    ("reason", "stop_reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
async def test_finish_reasons_are_told_in_the_words_of_the_format(reason: str, stop_reason: str) -> None:
    reply = Reply.of({"text": "so"}, {"finish_reason": reason})
    assert (await with_client(Script.of(reply), streamed_message)).stop_reason == stop_reason


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ],
)
async def test_an_http_error_is_raised_as_the_typed_exception(
    status: int, error: type[anthropic.APIStatusError], kind: str
) -> None:
    def use(client: anthropic.Anthropic) -> Any:
        with pytest.raises(error) as caught:
            streamed_message(client)
        return caught.value

    raised = await with_client(Script.of(Reply.of(faults={"status": status})), use)
    assert (raised.status_code, raised.body["error"]["type"]) == (status, kind)


async def test_an_error_event_in_the_stream_is_raised_by_the_client() -> None:
    fault = {"after": 3, "message": "overheated", "type": "overloaded_error"}

    def use(client: anthropic.Anthropic) -> str:
        with pytest.raises(anthropic.APIStatusError) as caught:
            streamed_message(client)
        return str(caught.value.body)

    reply = Reply.of({"text": "a b c d"}, faults={"mid_stream_error": fault})
    assert "overheated" in await with_client(Script.of(reply), use)


async def test_the_client_lists_the_models() -> None:
    script = Script(models=["small", "large"])
    assert await with_client(script, lambda client: [m.id for m in client.models.list()]) == ["small", "large"]
