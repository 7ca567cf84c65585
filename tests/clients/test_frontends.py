"""The requests of well-known frontends, in the order in which they send them (Open WebUI, LobeChat, LibreChat)."""

from __future__ import annotations

from typing import Any

import trio

from hermes.settings import Settings
from tests.support.core import call, hang, say
from tests.support.http_surface import Surface, frames, http_surface
from tests.support.raw_http import read_until

CHAT = "/v1/chat/completions"


def texts(answer: str) -> str:
    """The content of a stream, as a client that knows chunks alone collects it."""
    chunks = [frame.data for frame in frames(answer) if frame.event is None and frame.data != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


def task(title: str, wanted: str) -> dict[str, Any]:
    prompt = f"### Task:\n{title}\n### Output:\nJSON format: {wanted}\n### Chat History:\n<chat_history>\nUSER: hi\n"
    return {
        "model": "hermes-agent",
        "messages": [{"role": "user", "content": prompt}],
        "stream": False,
        "max_completion_tokens": 1000,
    }


async def stored_sessions(surface: Surface) -> list[str]:
    return [one["id"] for one in (await surface.get("/api/sessions")).json()["data"]]


async def test_open_webui_connects_chats_asks_for_title_tags_and_follow_ups_stops_and_regenerates() -> None:
    side = ['{"title": "👋 Greeting"}', '{"tags": ["Hello"]}', '{"follow_ups": ["And now?"]}']
    replies = [say("Hello", " there", calls=[call("nap", seconds=0)]), say("Rested."), *[say(text) for text in side]]
    async with http_surface(*replies, hang(), say("Anew.")) as surface:
        for _ in range(3):
            assert (await surface.get("/v1/models")).json()["data"][0]["id"] == "hermes-agent"
        system = {"role": "system", "content": "Be kind."}
        history: list[dict[str, Any]] = [system, {"role": "user", "content": "hi"}]
        body = {
            "model": "hermes-agent",
            "messages": history,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.7,
            "max_tokens": 4096,
        }
        first = await surface.post(CHAT, body)
        assert texts(first.text) == "Hello there\n\nRested."
        usage = [frame.data for frame in frames(first.text) if frame.data != "[DONE]" and frame.data.get("usage")]
        assert len(usage) == 1 and usage[0]["choices"] == []
        before = await stored_sessions(surface)
        for title, said in zip(("Generate a title", "Generate tags", "Suggest follow-ups"), side, strict=True):
            answer = (await surface.post(CHAT, task(title, said))).json()
            assert answer["choices"][0]["message"]["content"] == said
        assert not surface.model.requests[-1].tools, "a side prompt may not act"
        assert await stored_sessions(surface) == before, "a side prompt made a session"

        history += [{"role": "assistant", "content": "Hello there\n\nRested."}, {"role": "user", "content": "go on"}]
        stream = await surface.raw("POST", CHAT, {**body, "messages": history})
        await read_until(stream, b'"role":"assistant"')
        stream.socket.close()
        with trio.fail_after(1):
            await surface.until(lambda: surface.model.open == 0)
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        again = await surface.post(CHAT, {**body, "messages": history})
        assert texts(again.text) == "Anew."
        assert again.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        told = [row.text for row in surface.model.requests[-1].messages if row.role in ("user", "assistant")]
        assert told == ["hi", "Hello there\n\nRested.", "go on"]


async def test_open_webuis_responses_mode_sends_everything_and_reads_tool_cards() -> None:
    async with http_surface(say("", calls=[call("nap", seconds=0)]), say("done"), say("more")) as surface:
        body = {"model": "hermes-agent", "input": [{"role": "user", "content": "hi"}], "stream": True}
        events = [frame.data for frame in frames((await surface.post("/v1/responses", body)).text)]
        items = events[-1]["response"]["output"]
        (card,) = [item for item in items if item["type"] == "function_call_output"]
        assert card["output"] == [{"type": "input_text", "text": "rested"}]
        whole = [{"role": "user", "content": "hi"}, *items, {"role": "user", "content": "and?"}]
        answer = await surface.post("/v1/responses", {**body, "input": whole, "stream": False})
        assert answer.json()["status"] == "completed", answer.text
        roles = [row.role for row in surface.model.requests[-1].messages if row.role != "system"]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_lobechat_checks_and_chats_from_a_browser_page() -> None:
    origin = "https://chat.example"
    settings = Settings.model_validate({"gateway": {"api_server": {"cors_origins": [origin]}}})
    async with http_surface(say("hello"), say("sure"), settings=settings) as surface:
        asked = {
            "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "authorization,content-type",
        }
        preflight = await surface.client.options(
            CHAT, headers={"Origin": origin, "Authorization": "", **{n.replace("_", "-"): v for n, v in asked.items()}}
        )
        assert preflight.status_code == 200
        assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
        listed = await surface.get("/v1/models", Origin=origin)
        assert listed.headers["access-control-allow-origin"] == origin
        check = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}], "stream": True}
        checked = await surface.post(CHAT, {**check, "tools": [], "temperature": 0.6, "top_p": 1}, Origin=origin)
        assert (checked.status_code, texts(checked.text)) == (200, "hello")
        assert checked.headers["access-control-allow-origin"] == origin
        assert {frame.data["model"] for frame in frames(checked.text) if frame.data != "[DONE]"} == {"gpt-4o-mini"}
        said = await surface.post(CHAT, {**check, "stream_options": {"include_usage": True}}, Origin=origin)
        assert frames(said.text)[-1].data == "[DONE]"


async def test_librechat_fetches_models_chats_makes_a_title_and_aborts() -> None:
    async with http_surface(say("Hi ", "you"), say("A title"), hang()) as surface:
        assert (await surface.get("/v1/models")).status_code == 200
        body = {
            "model": "hermes-agent",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": "64f0",
            "temperature": 1,
            "top_p": 1,
            "presence_penalty": 0,
            "frequency_penalty": 0,
        }
        assert texts((await surface.post(CHAT, body)).text) == "Hi you"
        title = {"model": "hermes-agent", "messages": [{"role": "user", "content": "Write a concise title"}]}
        answer = await surface.post(CHAT, {**title, "temperature": 0.2, "presence_penalty": 0, "user": "64f0"})
        assert answer.json()["choices"][0]["message"]["content"] == "A title"
        stream = await surface.raw("POST", CHAT, body)
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        await stream.aclose()
        with trio.fail_after(1):
            assert (await run.wait_ended()).cause == "client_disconnect"


async def test_a_client_that_validates_every_line_gets_chunks_alone() -> None:
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b")) as surface:
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        agent = "ai-sdk/openai-compatible/2.0.0 ai-sdk/provider-utils/4.0.0 runtime/node.js/20"
        answer = await surface.post(CHAT, body, User_Agent=agent)
        sent = frames(answer.text)
        assert {frame.event for frame in sent} == {None}
        for frame in sent[:-1]:
            assert frame.data["object"] == "chat.completion.chunk" and len(frame.data["choices"]) == 1


async def test_mistyped_addresses_say_what_is_wrong() -> None:
    async with http_surface() as surface:
        for path in ("/v1/models/", "/chat/completions", "/models", "/v1/chat/completions/"):
            answer = await surface.get(path)
            assert answer.status_code in (404, 405), path
            assert "/v1" in answer.json()["error"]["message"] or answer.status_code == 405, answer.text
