"""Whole calls over the three formats against the fake provider, and what an endpoint teaches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaKind, ModelFinished
from hermes.agent.providers.http_provider import HttpProvider, refused_field, timeouts_for
from hermes.agent.providers.http_stream import HttpClient, Timeouts
from hermes.agent.providers.registry import CustomProvider, FallbackSpec, Models, ModelSettings
from hermes.agent.providers.wire_format import Deadlines
from hermes.config import load_settings
from hermes.errors import ProviderError
from hermes.messages import Row, ToolCall
from hermes.model_settings import deadlines, model_settings
from hermes.settings import Settings
from hermes.testing.fake_provider import FakeProvider
from hermes.testing.script import Reply, Script
from tests.support.provider_parsing import TERMINAL, endpoint, request

MODES = ["chat_completions", "anthropic_messages", "codex_responses"]


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    shared = HttpClient()
    yield shared
    await shared.aclose()


async def ask(provider: HttpProvider, *rows: Row, **more: Any) -> tuple[ModelFinished, list[tuple[DeltaKind, str]]]:
    deltas: list[tuple[DeltaKind, str]] = []
    asked = request(*(rows or (Row("user", "hello"),)), tools=(TERMINAL,), **more)
    with trio.fail_after(10):
        finished = await provider.call(asked, lambda kind, text: deltas.append((kind, text)))
    return finished, deltas


def at(fake: FakeProvider, mode: str, client: HttpClient, **more: Any) -> HttpProvider:
    return HttpProvider(endpoint(mode, base_url=fake.base_url, **more), client)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("faults", [{}, {"crlf": True}, {"split_bytes": 3}, {"keepalive": 2}, {"no_done": True}])
async def test_text_reasoning_and_a_call_arrive(mode: str, faults: dict[str, Any], client: HttpClient) -> None:
    reply = Reply.of(
        {"reasoning": "let me see"},
        {"text": "Grüße, it is fine"},
        {"tool_call": {"name": "terminal", "arguments": {"command": "ls"}, "id": "call_7"}},
        {"usage": {"input_tokens": 12, "output_tokens": 5}},
        faults=faults,
    )
    async with FakeProvider(Script.of(reply, strict=True)) as fake:
        finished, deltas = await ask(at(fake, mode, client))
    assert (finished.text, finished.reasoning) == ("Grüße, it is fine", "let me see")
    assert [(c.name, c.arguments.replace(" ", "")) for c in finished.tool_calls] == [("terminal", '{"command":"ls"}')]
    # The last event of a response is its only end; the other formats tell a reason before their marker.
    cut_off = mode == "codex_responses" and "no_done" in faults
    assert finished.finish_reason == (None if cut_off else "tool_calls")
    if cut_off:
        return
    assert finished.usage is not None
    assert (finished.usage.input_tokens, finished.usage.output_tokens) == (12, 5)
    assert "".join(text for kind, text in deltas if kind is DeltaKind.TEXT) == finished.text


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_without_streaming_is_the_same(mode: str, client: HttpClient) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "at once"}))) as fake:
        finished, _ = await ask(at(fake, mode, client), stream=False)
    assert (finished.text, finished.finish_reason) == ("at once", "stop")


@pytest.mark.parametrize("mode", MODES)
async def test_the_strict_server_accepts_a_replayed_tool_cycle(mode: str, client: HttpClient) -> None:
    first = Reply.of({"reasoning": "hm"}, {"tool_call": {"name": "terminal", "arguments": {"command": "ls"}}})
    async with FakeProvider(Script.of(first, Reply.of({"text": "done"}), strict=True)) as fake:
        provider = at(fake, mode, client)
        user = Row("user", "go")
        answer, _ = await ask(provider, user)
        assistant = Row(
            "assistant",
            answer.text or None,
            tool_calls=answer.tool_calls,
            reasoning_details=answer.reasoning_details,
            replay_items=answer.replay_items,
        )
        result = Row("tool", "a.txt", tool_call_id=answer.tool_calls[0].id, tool_name="terminal")
        finished, _ = await ask(provider, user, assistant, result)
    assert finished.text == "done"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("faults", "error_class"),
    [
        ({"status": 401}, "auth"),
        ({"status": 429, "retry_after": 3}, "rate_limit"),
        ({"status": 503}, "overloaded"),
        ({"mid_stream_error": {"after": 1}}, "server_error"),
        ({"drop": True}, "stream_dropped"),
        ({"garbage": "json"}, "stream_dropped"),
        ({"error_at_200": True, "status": None}, None),
    ],
)
async def test_failures_have_their_class(
    mode: str, faults: dict[str, Any], error_class: str | None, client: HttpClient
) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "one two three"}, faults=faults))) as fake:
        with pytest.raises(ProviderError) as caught:
            await ask(at(fake, mode, client))
    assert caught.value.provider == "p"
    if error_class is not None:
        assert caught.value.error_class == error_class
    if "retry_after" in faults:
        assert caught.value.retry_after == 3.0


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancel_is_seen_by_the_provider(mode: str, client: HttpClient) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "a b c"}, {"wait_for": "never"}))) as fake:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, at(fake, mode, client))
            with trio.fail_after(10):
                await fake.wait_chunks(1, 2)
                nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            record = await fake.wait_closed(1)
    assert record.closed_by == "client"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unknown parameter: 'stream_options'", "stream_options"),
        ("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Extra inputs are not permitted: parallel_tool_calls", "parallel_tool_calls"),
        ("unsupported value for temperature", "temperature"),
    ],
)  # fmt: skip
def test_a_refused_field_is_recognised(message: str, field: str) -> None:
    body = dict.fromkeys(("stream_options", "max_tokens", "parallel_tool_calls", "temperature"), 1)
    assert refused_field(ProviderError(message, error_class="format_error", status=400), body) == field
    assert refused_field(ProviderError(message, error_class="format_error", status=400), {}) is None
    assert refused_field(ProviderError(message, error_class="server_error", status=500), body) is None


async def test_an_endpoint_is_told_once_and_remembers(client: HttpClient) -> None:
    refusal = {"error": {"message": "Unknown parameter: 'stream_options'", "type": "invalid_request_error"}}
    refused = Reply.of({"text": "x"}, faults={"status": 400, "body": refusal})
    async with FakeProvider(Script.of(refused, Reply.of({"text": "a"}), Reply.of({"text": "b"}))) as fake:
        provider = at(fake, "chat_completions", client)
        assert [(await ask(provider))[0].text for _ in range(2)] == ["a", "b"]
        assert ["stream_options" in record.body for record in fake.requests] == [True, False, False]


async def test_the_endpoint_sees_its_own_headers_once(client: HttpClient) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "x"}))) as fake:
        await ask(at(fake, "chat_completions", client, headers=(("User-Agent", "mine"),)))
        headers = fake.requests[0].headers
    assert (headers["user-agent"], headers["authorization"]) == ("mine", "Bearer k")


def test_deadlines_depend_on_the_endpoint_and_the_request() -> None:
    far, near = endpoint(), endpoint(local=True)
    assert timeouts_for(far, request(), 10) == Timeouts(30, 120, 120, 1800)
    assert timeouts_for(near, request(), 10) == Timeouts(30, 900, 900, 1800)
    assert timeouts_for(far, request(stream=False), 10) == Timeouts(30, 90, 90, 1800)
    assert timeouts_for(far, request(stream=False), 240_000).idle == 150
    assert timeouts_for(far, request(stream=False), 480_000).idle == 240
    assert timeouts_for(endpoint(idle_timeout=5, total_timeout=9), request(), 10) == Timeouts(30, 5, 5, 9)


def test_deadlines_are_as_configured(tmp_path: Path) -> None:
    variables = {"HERMES_API_TIMEOUT": "600", "HERMES_STREAM_READ_TIMEOUT": "60", "HERMES_API_CALL_STALE_TIMEOUT": "45"}
    loaded = load_settings({"agent.local_stream_stale_timeout": 1000}, variables, tmp_path)
    given = model_settings(loaded).deadlines
    assert timeouts_for(endpoint(deadlines=given), request(), 10) == Timeouts(30, 60, 60, 600)
    assert timeouts_for(endpoint(deadlines=given), request(stream=False), 10) == Timeouts(30, 45, 45, 600)
    assert timeouts_for(endpoint(deadlines=given, local=True), request(), 10) == Timeouts(30, 1000, 1000, 600)
    assert timeouts_for(endpoint(deadlines=given, idle_timeout=5, total_timeout=9), request(), 10).total == 9
    assert deadlines(Settings()) == Deadlines(stream=120)


async def test_every_endpoint_of_the_registry_has_the_configured_deadlines(client: HttpClient) -> None:
    given = Deadlines(stream=7)
    lab = CustomProvider("lab", "http://127.0.0.1:9/v1", models={"m": 9000})
    settings = ModelSettings(default="m", provider="lab", deadlines=given)
    spare = FallbackSpec("spare", "s", base_url="http://127.0.0.1:8/v1")
    registry = Models(settings, {}, client, custom=(lab,), fallbacks=(spare,))
    for resolved in (await registry.resolve(None, None), *registry.fallbacks()):
        provider = registry.provider_for(resolved)
        assert isinstance(provider, HttpProvider)
        assert provider._endpoint.deadlines == given


async def test_calls_of_odd_servers_are_still_calls(client: HttpClient) -> None:
    calls = [{"tool_call": {"name": name, "arguments": {"command": name}}} for name in ("terminal", "read_file")]
    for faults in (
        {"missing_tool_ids": True},
        {"integer_tool_ids": True},
        {"same_tool_index": True},
        {"same_tool_index": True, "missing_tool_ids": True},
        {"no_tool_index": True},
        {"arguments_as_object": True},
        {"whole_message": True},
        {"split_arguments": 2},
    ):
        async with FakeProvider(Script.of(Reply.of(*calls, faults=faults))) as fake:
            finished, _ = await ask(at(fake, "chat_completions", client))
        shape = [(call.name, call.arguments.replace(" ", "")) for call in finished.tool_calls]
        assert shape == [("terminal", '{"command":"terminal"}'), ("read_file", '{"command":"read_file"}')], faults
        assert all(call.id for call in finished.tool_calls), faults
        assert len({call.id for call in finished.tool_calls}) == 2, faults
    assert isinstance(finished.tool_calls[0], ToolCall)
