"""Chat completions: the OpenAI answer, the stream and its frames, the truth about how a turn ended."""

from __future__ import annotations

from typing import Any

import openai
import pytest
import trio

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest
from hermes.errors import ProviderError
from hermes.nurseries.turn_feed import TurnFeed
from hermes.outcomes import Usage
from hermes.protocols.http.streaming import KEEPALIVE, TurnStream
from hermes.settings import Settings
from tests.support.core import Reply, call, hang, say
from tests.support.http_surface import frames, http_surface

HI: Any = [{"role": "user", "content": "hi"}]


def fail(message: str, error_class: str = "format_error", *pieces: str) -> Reply:
    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.lowlevel.checkpoint()
        for piece in pieces:
            on_delta(DeltaKind.TEXT, piece)
        raise ProviderError(message, error_class=error_class, status=500)

    return reply


def think(reasoning: str, text: str) -> Reply:
    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        await trio.lowlevel.checkpoint()
        on_delta(DeltaKind.REASONING, reasoning)
        on_delta(DeltaKind.TEXT, text)
        usage = Usage(input_tokens=1, output_tokens=1, calls=1)
        return ModelFinished(text=text, reasoning=reasoning, finish_reason="stop", usage=usage)

    return reply


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages) or HI, **more}


async def test_the_official_client_gets_an_answer() -> None:
    async with http_surface(think("hm", "Hello.")) as surface:
        answer = await surface.openai(lambda c: c.chat.completions.create(model="any", messages=HI))
        choice = answer.choices[0]
        assert (choice.message.content, choice.finish_reason, answer.model) == ("Hello.", "stop", "any")
        assert choice.message.model_extra == {"reasoning_content": "hm"}
        assert answer.usage is not None and answer.usage.total_tokens == 2


async def test_the_official_client_streams_a_tool_turn() -> None:
    async with http_surface(say("Looking. ", calls=[call("nap", seconds=0)]), say("Three files.")) as surface:

        def use(client: openai.OpenAI) -> list[Any]:
            return list(
                client.chat.completions.create(model="m", messages=HI, stream=True, extra_body={"hermes_events": False})
            )

        chunks = await surface.openai(use)
        assert chunks[0].choices[0].delta.role == "assistant"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == "Looking. \n\nThree files."
        assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]


async def test_the_official_stream_helper_works() -> None:
    async with http_surface(say("Hi")) as surface:

        def use(client: openai.OpenAI) -> Any:
            with client.chat.completions.stream(model="m", messages=HI) as stream:
                for _ in stream:
                    pass
                return stream.get_final_completion()

        assert (await surface.openai(use)).choices[0].message.content == "Hi"


async def test_the_stream_begins_with_the_role_and_ends_with_done() -> None:
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b")) as surface:
        answer = await surface.post("/v1/chat/completions", body(stream=True))
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
        seen = frames(answer.text)
        assert seen[0].data["choices"][0]["delta"] == {"role": "assistant"}
        assert seen[-1].data == "[DONE]"
        last = seen[-2].data
        assert (last["choices"][0]["finish_reason"], last["usage"]["total_tokens"]) == ("stop", 30)
        progress = [frame.data for frame in seen if frame.event == "hermes.tool.progress"]
        assert [(p["toolCallId"], p["status"]) for p in progress] == [("c1", "running"), ("c1", "completed")]


async def test_include_usage_moves_the_usage_to_a_chunk_of_its_own() -> None:
    async with http_surface(say("a")) as surface:
        answer = await surface.post("/v1/chat/completions", body(stream=True, stream_options={"include_usage": True}))
        *_, final, usage, done = frames(answer.text)
        assert (final.data["usage"], usage.data["choices"], done.data) == (None, [], "[DONE]")
        assert usage.data["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("how", ["field", "agent"])
async def test_strict_clients_get_no_named_frames(how: str) -> None:
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b")) as surface:
        request = body(stream=True, **({"hermes_events": False} if how == "field" else {}))
        agent = {"User_Agent": "ai-sdk/openai-compatible/1"} if how == "agent" else {}
        answer = await surface.post("/v1/chat/completions", request, **agent)
        assert all(frame.event is None for frame in frames(answer.text))


async def test_tool_progress_can_be_switched_off() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"tool_progress_events": False}}})
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b"), settings=settings) as surface:
        answer = await surface.post("/v1/chat/completions", body(stream=True))
        assert "hermes.tool.progress" not in answer.text


async def test_an_approval_in_a_stream_is_answered_through_its_run() -> None:
    async with http_surface(say("", calls=[call("ask")]), say("done")) as surface:
        answers: list[Any] = []

        async def read() -> None:
            answers.append(await surface.post("/v1/chat/completions", body(stream=True)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await surface.until(
                lambda: bool(surface.live_runs()) and bool(surface.live_runs()[0].open_questions("approval"))
            )
            run_id = surface.live_runs()[0].run_id
            assert (await surface.get(f"/v1/runs/{run_id}")).json()["status"] == "waiting_for_approval"
            await surface.post(f"/v1/runs/{run_id}/approval", {"choice": "once"})
        asked = next(frame for frame in frames(answers[0].text) if frame.event == "approval.request")
        assert (asked.data["run_id"], asked.data["choices"][0]) == (run_id, "once")


async def test_nobody_is_asked_where_nobody_can_answer() -> None:
    async with http_surface(say("", calls=[call("ask")]), say("went on")) as surface:
        answer = await surface.post("/v1/chat/completions", body())
        assert answer.json()["choices"][0]["message"]["content"] == "went on"


async def test_keepalives_come_every_ten_seconds_of_silence(autojump_clock: trio.testing.MockClock) -> None:
    stream = TurnStream(TurnFeed())
    began = trio.current_time()
    assert await stream.next() == KEEPALIVE
    assert await stream.next() == KEEPALIVE
    assert trio.current_time() - began == pytest.approx(20)


# --- endings ---------------------------------------------------------------------------------------------------------


async def test_a_failure_without_text_is_no_answer() -> None:
    async with http_surface(fail("line one\nline two")) as surface:
        answer = await surface.post("/v1/chat/completions", body())
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (502, "agent_incomplete", "server_error")


@pytest.mark.parametrize(
    ("kind", "status", "code"), [("auth", 502, "provider_auth_failed"), ("billing", 429, "provider_rate_limited")]
)
async def test_a_providers_refusal_is_told_apart(kind: str, status: int, code: str) -> None:
    async with http_surface(*[fail("no", kind)] * 5) as surface:
        answer = await surface.post("/v1/chat/completions", body())
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_a_failed_stream_makes_the_official_client_raise() -> None:
    async with http_surface(fail("broken")) as surface:

        def use(client: openai.OpenAI) -> None:
            for _ in client.chat.completions.create(model="m", messages=HI, stream=True):
                pass

        with pytest.raises(openai.APIError):
            await surface.openai(use)


async def test_the_iteration_budget_ends_with_length() -> None:
    settings = Settings.model_validate({"agent": {"max_turns": 1}})
    replies = [say("", calls=[call("nap", seconds=0)]), say("the best so far")]
    async with http_surface(*replies, settings=settings) as surface:
        answer = await surface.post("/v1/chat/completions", body())
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["finish_reason"] == "length"
        assert answer.json()["hermes"]["completed"] is False
        assert answer.headers["x-hermes-completed"] == "false"


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_body", "code", "param"),
    [
        ({}, "missing_messages", "messages"),
        ({"messages": []}, "missing_messages", "messages"),
        ({"messages": ["hi"]}, "invalid_request", "messages[0]"),
        ({"messages": [{"role": "user", "content": " "}]}, "no_user_message", "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no_user_message", "messages"),
        (body({"role": "user", "content": [{"type": "file"}]}), "unsupported_content_type", "messages[0].content"),
        (
            body({"role": "user", "content": [{"type": "image_url", "image_url": "ftp://x"}]}),
            "invalid_image_url",
            "messages[0].content",
        ),
    ],
)
async def test_a_bad_request_is_refused_with_its_place(request_body: Any, code: str, param: str) -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/chat/completions", request_body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, code, param)


async def test_system_and_developer_messages_become_instructions_and_other_roles_are_dropped() -> None:
    async with http_surface(say("x")) as surface:
        await surface.post(
            "/v1/chat/completions",
            body(
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "two"},
                {"role": "tool", "content": "three", "tool_call_id": "c"},
                {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
                {"role": "user", "content": [{"type": "text", "text": "four"}, "five"]},
            ),
        )
        request = surface.model.requests[0]
        assert [row.text for row in request.messages] == ["one", "two", "four\nfive"]
        assert request.system[-1] == "be brief\nbe kind"


async def test_the_same_opening_is_the_same_session_and_a_header_continues_a_stored_one() -> None:
    async with http_surface(say("1"), say("2"), say("3")) as surface:
        first = await surface.post("/v1/chat/completions", body())
        longer = body(*HI, {"role": "assistant", "content": "1"}, {"role": "user", "content": "more"})
        second = await surface.post("/v1/chat/completions", longer)
        session_id = first.headers["x-hermes-session-id"]
        assert session_id == second.headers["x-hermes-session-id"]
        assert session_id.startswith("api-")
        third = await surface.post(
            "/v1/chat/completions", body({"role": "user", "content": "again"}), X_Hermes_Session_Id=session_id
        )
        assert third.headers["x-hermes-session-id"] == session_id
        texts = [row.text for row in surface.model.requests[-1].messages]
        assert texts == ["hi", "1", "more", "2", "again"]


@pytest.mark.parametrize("session_id", ["../etc", "a/b", "x" * 257])
async def test_a_session_id_is_no_path(session_id: str) -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/chat/completions", body(), X_Hermes_Session_Id=session_id)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_session_id")


async def test_turns_of_one_session_wait_for_each_other() -> None:
    async with http_surface(say("a", pause=0.05), say("b")) as surface:
        answers: list[str] = []

        async def ask() -> None:
            answer = await surface.post("/v1/chat/completions", body())
            answers.append(answer.json()["choices"][0]["message"]["content"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        assert sorted(answers) == ["a", "b"]


async def test_stop_through_the_completions_run_ends_the_stream() -> None:
    async with http_surface(hang()) as surface:
        answers: list[Any] = []

        async def read() -> None:
            answers.append(await surface.post("/v1/chat/completions", body(stream=True)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await surface.until(lambda: surface.model.open == 1)
            run_id = surface.live_runs()[0].run_id
            assert (await surface.get(f"/v1/runs/{run_id}/events")).status_code == 404
            await surface.post(f"/v1/runs/{run_id}/stop")
        final = frames(answers[0].text)[-2].data
        assert final["choices"][0]["finish_reason"] == "error"
        assert final["hermes"]["cause"] == "run_stop"
