"""The official Python client, unpatched, against the real server: everything it offers that this server serves."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import trio
from openai import OpenAI

from hermes.testing import Reply, Script
from tests.support.client_script import SAID, USED, client_script
from tests.support.http_clients import Served, served

pytestmark = pytest.mark.e2e
PICTURE = (
    "data:image/png;base64,"
    + base64.b64encode(
        bytes.fromhex(
            "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e3660000000049454e44ae426082"
        )
    ).decode()
)


async def use(run: Served, act: Callable[[OpenAI], Any], **options: Any) -> Any:
    """The client is synchronous: it works in a thread."""

    def in_thread() -> Any:
        settings = {"api_key": run.server.key, "base_url": run.base_url, "max_retries": 0, "timeout": 30, **options}
        with OpenAI(**settings) as client:
            return act(client)

    return await trio.to_thread.run_sync(in_thread)


def ask(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "hermes-agent", "messages": [{"role": "user", "content": content}], **more}


async def test_chat_in_every_way(tmp_path: Path) -> None:
    def act(client: OpenAI) -> None:
        plain = client.chat.completions.create(**ask("hello"))
        assert (plain.choices[0].message.content, plain.choices[0].finish_reason) == (SAID, "stop")
        assert plain.choices[0].message.reasoning_content == "They greet me."
        assert plain.usage is not None and plain.usage.total_tokens > 0
        chunks = list(
            client.chat.completions.create(**ask("hello", stream=True, stream_options={"include_usage": True}))
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SAID
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
        assert chunks[-1].choices == [] and chunks[-1].usage is not None
        with client.chat.completions.stream(**ask("hello")) as stream:
            stream.until_done()
            assert stream.get_final_completion().choices[0].message.content == SAID
        shown = client.chat.completions.create(**ask("use the tool", stream=True))
        assert "".join(c.choices[0].delta.content or "" for c in shown if c.choices).endswith(USED)
        picture = [{"type": "text", "text": "this"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        assert client.chat.completions.create(**ask(picture)).choices[0].message.content == SAID
        assert [model.id for model in client.models.list()] == ["hermes-agent"]

    async with served(tmp_path / "home", client_script()) as run:
        await use(run, act)
        told = [record.body["messages"] for record in run.provider.requests]
        assert any("image_url" in str(messages) for messages in told), "the picture did not reach the model"
        assert run.provider.open_requests == 0


async def test_responses_in_every_way(tmp_path: Path) -> None:
    def act(client: OpenAI) -> None:
        first = client.responses.create(model="hermes-agent", input="hello")
        assert (first.status, first.output_text) == ("completed", SAID)
        assert first.usage is not None
        assert first.usage.total_tokens == first.usage.input_tokens + first.usage.output_tokens
        assert first.usage.input_tokens_details.cached_tokens == 0
        chained = client.responses.create(model="hermes-agent", input="hello", previous_response_id=first.id)
        assert chained.previous_response_id == first.id
        assert client.responses.retrieve(first.id).output_text == SAID
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with client.responses.stream(model="hermes-agent", input="use the tool") as stream:
            events = list(stream)
            final = stream.get_final_response()
        # What was said before the tool call is an item of its own.
        said = [item.content[0].text for item in final.output if item.type == "message"]  # type: ignore[union-attr]
        assert [text.strip() for text in said] == ["Let me look.", USED]
        kinds = [item.type for item in final.output if item.type != "reasoning"]
        assert kinds == ["message", "function_call", "function_call_output", "message"]
        added = [event.item.id for event in events if event.type == "response.output_item.added"]
        assert added == [getattr(item, "id", None) for item in final.output]
        numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
        assert numbers == sorted(numbers) and numbers[0] == 0

    async with served(tmp_path / "home", client_script()) as run:
        await use(run, act)


async def test_errors_come_as_the_types_of_the_client(tmp_path: Path) -> None:
    def act(client: OpenAI) -> None:
        with pytest.raises(openai.AuthenticationError) as wrong_key:
            client.with_options(api_key="wrong").models.list()
        assert wrong_key.value.code == "gateway_auth_failed"
        with pytest.raises(openai.BadRequestError) as empty:
            client.chat.completions.create(model="x", messages=[])
        assert empty.value.code == "missing_messages"
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="x", input="x")
        with pytest.raises(openai.BadRequestError) as provider:
            client.chat.completions.create(**ask("hello"), extra_body={"provider": "nobody"})
        assert provider.value.code == "invalid_provider"
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**ask("fail"))
        with pytest.raises(openai.APIError):
            list(client.chat.completions.create(**ask("fail", stream=True)))
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.7).chat.completions.create(**ask("hang"))

    async with served(tmp_path / "home", client_script()) as run:
        await use(run, act)
        with trio.fail_after(5):
            while run.provider.open_requests:
                await trio.sleep(0.02)


async def test_the_client_retries_at_the_cap_and_gets_its_answer(tmp_path: Path) -> None:
    """429 with Retry-After is the client's business: it waits and asks again."""
    slow = Reply.of({"text": "first "}, {"wait_for": "gate"}, {"text": "done"})
    script = Script.of(slow, Reply.of({"text": "second done"}))
    config = {"gateway": {"api_server": {"max_concurrent_runs": 1}}}
    async with served(tmp_path / "home", script, config=config) as run, trio.open_nursery() as nursery:
        texts: list[str] = []

        async def one(content: str, **options: Any) -> None:
            answer = await use(run, lambda client: client.chat.completions.create(**ask(content)), **options)
            texts.append(answer.choices[0].message.content)

        nursery.start_soon(one, "one")
        await run.provider.wait_chunks(1, 1)

        async def refused() -> None:
            with pytest.raises(openai.RateLimitError) as limited:
                await use(run, lambda client: client.chat.completions.create(**ask("none")))
            assert limited.value.response.headers["retry-after"] == "1"

        await refused()
        nursery.start_soon(lambda: one("two", max_retries=5))
        await trio.sleep(0.3)
        run.provider.release("gate")
    assert texts == ["first done", "second done"]
