"""Prompts from the frame to the answer: streaming, order, tools, questions, stops."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest
from hermes.events import ToolStarted, TurnEnded
from hermes.outcomes import Usage
from hermes.protocols.acp.updates import Translator
from tests.support.acp import AcpClient, acp_client, permission, tool_statuses
from tests.support.core import ScriptedModel, call, hang, make_services, say


def position(client: AcpClient, request_id: int) -> int:
    return next(i for i, f in enumerate(client.frames) if f.get("id") == request_id and "method" not in f)


async def model_is_asked(model: ScriptedModel) -> None:
    with trio.fail_after(10):
        while not model.open:
            await trio.testing.wait_all_tasks_blocked()


async def test_a_prompt_streams_its_text_and_is_answered_after_the_last_update() -> None:
    services, _ = make_services(say("Hello", " world", pause=0.02))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        answer = await client.answer(request)
        assert answer["result"]["stopReason"] == "end_turn"
        assert answer["result"]["usage"] == {"totalTokens": 15, "inputTokens": 10, "outputTokens": 5}
        assert client.text() == "Hello world"
        chunks = [i for i, f in enumerate(client.frames) if "agent_message_chunk" in str(f)]
        assert len(chunks) == 2
        assert chunks[-1] < position(client, request)
        assert len({u["messageId"] for u in client.updates("agent_message_chunk")}) == 1


async def test_reasoning_is_sent_as_thoughts() -> None:
    async def reply(request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        on_delta(DeltaKind.REASONING, "hmm")
        await trio.sleep(0.01)
        on_delta(DeltaKind.TEXT, "yes")
        return ModelFinished(text="yes", reasoning="hmm", finish_reason="stop", usage=Usage(input_tokens=1, calls=1))

    services, _ = make_services(reply)
    async with acp_client(services) as client:
        await client.prompt(await client.new_session(), "hi")
        assert client.text("agent_thought_chunk") == "hmm"
        assert client.text() == "yes"


async def test_a_tool_call_goes_from_pending_to_completed_and_the_next_text_is_a_new_message() -> None:
    services, _ = make_services(say("First.", calls=[call("nap", seconds=0.01)]), say("Second."))
    async with acp_client(services) as client:
        await client.prompt(await client.new_session(), "hi")
        updates = client.updates()
        assert tool_statuses(updates, "c1") == ["pending", "in_progress", "completed"]
        messages = client.updates("agent_message_chunk")
        assert [m["content"]["text"] for m in messages] == ["First.", "Second."]
        assert len({m["messageId"] for m in messages}) == 2


async def test_a_cancel_ends_the_prompt_as_cancelled_and_closes_its_calls_as_failed() -> None:
    services, _ = make_services(say("Working", calls=[call("nap", seconds=1000)]), say("again"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        await client.updated("tool_call")
        client.notify("session/cancel", sessionId=session)
        client.notify("session/cancel", sessionId=session)
        answer = await client.answer(request)
        assert answer["result"]["stopReason"] == "cancelled"
        assert answer["result"]["_meta"]["hermes"]["cause"] == "user_interrupt"
        assert tool_statuses(client.updates(), "c1")[-1] == "failed"
        after = position(client, request)
        assert (await client.prompt(session, "next"))["stopReason"] == "end_turn"
        assert client.text(after=after) == "again"


@pytest.mark.fault("B-046")
async def test_a_cancel_in_the_same_write_as_its_prompt_cancels_it() -> None:
    services, model = make_services(hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        assert model.open == 0


async def test_a_cancel_of_an_idle_session_does_not_touch_the_next_prompt() -> None:
    services, _ = make_services(say("fine"))
    async with acp_client(services) as client:
        session = await client.new_session()
        client.notify("session/cancel", sessionId=session)
        client.notify("session/cancel", sessionId="unknown")
        client.notify("session/cancel")
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"


async def test_cancelling_the_request_of_a_prompt_answers_it_once_as_cancelled() -> None:
    services, model = make_services(hang(), say("ok"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        queued = client.start_prompt(session, "later")
        await model_is_asked(model)
        client.notify("$/cancel_request", requestId=queued)
        assert (await client.answer(queued))["result"]["stopReason"] == "cancelled"
        client.notify("$/cancel_request", requestId=request)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        await client.prompt(session, "again")
        assert sum(1 for f in client.frames if f.get("id") == request) == 1


async def test_a_second_prompt_waits_for_its_turn_and_is_answered_at_its_end() -> None:
    services, _ = make_services(say("one", pause=0.02), say("two", pause=0.02))
    async with acp_client(services) as client:
        session = await client.new_session()
        first = client.start_prompt(session, "first")
        second = client.start_prompt(session, "second")
        assert (await client.answer(second))["result"]["stopReason"] == "end_turn"
        order = [f for f in client.frames if f.get("id") in (first, second) or "agent_message_chunk" in str(f)]
        shown = [f["id"] if "id" in f else f["params"]["update"]["content"]["text"] for f in order]
        assert shown == ["one", first, "two", second]
        assert client.text("user_message_chunk") == "second"


async def test_a_prompt_too_many_is_refused_as_such_and_those_that_were_taken_run() -> None:
    limit = 32
    services, model = make_services(hang(), *[say("ok")] * limit)
    async with acp_client(services) as client:
        session = await client.new_session()
        running = client.start_prompt(session, "running")
        await model_is_asked(model)
        waiting = [client.start_prompt(session, f"number {number}") for number in range(limit + 3)]
        for request in waiting[limit:]:
            error = (await client.answer(request))["error"]
            # Not an internal error: nothing is broken, and nothing of the prompt was done.
            assert error["code"] == -32800
            assert error["data"]["reason"] == "queue_full"
            assert error["data"]["limit"] == limit
            assert "was not taken" in error["message"]
        client.notify("$/cancel_request", requestId=running)
        assert (await client.answer(running))["result"]["stopReason"] == "cancelled"
        for request in waiting[:limit]:
            assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        assert client.text("user_message_chunk") == "".join(f"number {number}" for number in range(limit))


@pytest.mark.fault("B-001")
async def test_a_cancel_drops_what_waits_and_answers_all_prompts() -> None:
    services, model = make_services(hang(), say("after"))
    async with acp_client(services) as client:
        session = await client.new_session()
        requests = [client.start_prompt(session, text) for text in ("a", "b", "c")]
        await model_is_asked(model)
        client.notify("session/cancel", sessionId=session)
        for request in requests:
            assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        await client.prompt(session, "d")
        assert client.text() == "after"


async def test_the_permission_request_names_the_announced_call_and_consent_runs_it() -> None:
    services, _ = make_services(say(calls=[call("ask")]), say("done"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        question = await client.asked("session/request_permission")
        assert question["params"]["toolCall"]["toolCallId"] == "c1"
        assert [o["optionId"] for o in question["params"]["options"]] == [
            "allow_once", "allow_session", "allow_always", "deny", "deny_always",
        ]  # fmt: skip
        client.reply(question, permission("allow_session"))
        assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        last = client.updates("tool_call_update")[-1]
        assert "session" in last["content"][0]["content"]["text"]


async def test_everything_but_an_offered_allowing_option_is_a_denial() -> None:
    answers: list[Any] = [
        permission("deny"),
        permission("allow_everything"),
        {"outcome": {"outcome": "cancelled"}},
        "allow_once",
        {"outcome": "allow_once"},
        None,
    ]
    services, _ = make_services(
        *(say(calls=[call("ask")]) if i % 2 == 0 else say("ok") for i in range(2 * len(answers)))
    )
    async with acp_client(services) as client:
        session = await client.new_session()
        for answer in answers:
            start = len(client.frames)
            request = client.start_prompt(session, "hi")
            client.reply(await client.asked("session/request_permission", after=start), answer)
            assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
            last = client.updates("tool_call_update", after=start)[-1]
            assert "'deny'" in last["content"][0]["content"]["text"]


@pytest.mark.fault("B-086")
async def test_a_cancel_withdraws_the_question_and_a_late_consent_runs_nothing() -> None:
    services, _ = make_services(say(calls=[call("ask")]), say("next"))
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        question = await client.asked("session/request_permission")
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        assert any(
            f.get("method") == "$/cancel_request" and f["params"]["requestId"] == question["id"] for f in client.frames
        )
        client.reply(question, permission("allow_once"))
        await client.prompt(session, "go on")
        assert client.text() == "next"
        assert tool_statuses(client.updates(), "c1")[-1] == "failed"


async def test_an_empty_prompt_ends_without_a_model_call() -> None:
    services, model = make_services()
    async with acp_client(services) as client:
        session = await client.new_session()
        assert (await client.prompt(session, "  "))["stopReason"] == "end_turn"
        assert model.requests == []


async def test_prompts_of_different_sessions_run_side_by_side() -> None:
    services, model = make_services(hang(), say("quick"))
    async with acp_client(services) as client:
        slow, quick = await client.new_session(), await client.new_session()
        hanging = client.start_prompt(slow, "hi")
        await model_is_asked(model)
        await client.prompt(quick, "hi")
        client.notify("session/cancel", sessionId=quick)
        assert not any(f.get("id") == hanging for f in client.frames)
        client.notify("session/cancel", sessionId=slow)
        await client.answer(hanging)


async def test_the_end_of_input_stops_turns_and_the_server() -> None:
    services, model = make_services(hang())
    async with acp_client(services) as client:
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        await model_is_asked(model)
    assert model.open == 0
    assert (await client.answer(request))["result"]["stopReason"] == "cancelled"


async def test_an_event_that_cannot_be_translated_costs_nothing_but_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    translated = Translator.frames

    def frames(self: Translator, event: Any) -> Any:
        if isinstance(event, ToolStarted | TurnEnded):
            raise RuntimeError("a bug")
        return translated(self, event)

    monkeypatch.setattr(Translator, "frames", frames)
    services, _ = make_services(say(calls=[call("nap", seconds=0)]), say("still here"))
    async with acp_client(services) as client:
        assert (await client.prompt(await client.new_session(), "hi"))["stopReason"] == "end_turn"
        assert client.text() == "still here"
