"""Questions to the user as forms, for clients that announced them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.agent.ports import ToolContext
from hermes.messages import Answered, Question, Withdrawn
from tests.support.acp import acp_client
from tests.support.core import PlainTool, call, make_services, say

QUESTIONS: list[dict[str, Any]] = [
    {"qid": "q0", "question": "Which colour?", "choices": ["red (Recommended)", "blue"]},
    {"qid": "q1", "question": "Which parts?", "choices": ["a", "b"], "multi_select": True},
    {"qid": "q2", "question": "What else?"},
]


def asking(seen: list[Any], questions: list[dict[str, Any]] | None = None) -> PlainTool:
    async def ask(ctx: ToolContext, arguments: Any) -> str:
        seen.append(await ctx.ask(Question("clarify", {"questions": questions or QUESTIONS}, (), 60, ctx.call_id)))
        return "asked"

    return PlainTool("asker", ask)


async def test_questions_are_a_form_and_its_content_is_the_answer() -> None:
    seen: list[Any] = []
    services, _ = make_services(say(calls=[call("asker")]), say("ok"), tools=[asking(seen)])
    async with acp_client(services, hello=False) as client:
        await client.hello(elicitation={"form": {}})
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        asked = await client.asked("elicitation/create")
        assert asked["params"]["toolCallId"] == "c1"
        fields = asked["params"]["requestedSchema"]["properties"]
        assert list(fields) == ["q0", "q0_own", "q1", "q1_own", "q2"]
        assert fields["q0"] == {"type": "string", "title": "Which colour?", "enum": QUESTIONS[0]["choices"]}
        assert fields["q1"]["items"] == {"type": "string", "enum": ["a", "b"]}
        content = {"q0": "red (Recommended)", "q0_own": " ", "q1": ["a"], "q1_own": "c, rather"}
        client.reply(asked, {"action": "accept", "content": content})
        assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        (answer,) = seen
        assert isinstance(answer, Answered)
        assert answer.value == {"answers": {"q0": "red", "q1": "c, rather", "q2": None}}


@pytest.mark.parametrize("reply", [{"action": "decline"}, {"action": "cancel"}, {}, "yes", {"action": "_later"}])
async def test_everything_but_an_accepted_form_is_no_answer(reply: Any) -> None:
    seen: list[Any] = []
    services, _ = make_services(say(calls=[call("asker")]), say("ok"), tools=[asking(seen, QUESTIONS[2:])])
    async with acp_client(services, hello=False) as client:
        await client.hello(elicitation={"form": {}})
        request = client.start_prompt(await client.new_session(), "hi")
        asked = await client.asked("elicitation/create")
        assert asked["params"]["message"] == "What else?"
        client.reply(asked, reply)
        assert (await client.answer(request))["result"]["stopReason"] == "end_turn"
        assert isinstance(seen[0], Withdrawn)


async def test_a_cancel_takes_the_form_back() -> None:
    services, _ = make_services(say(calls=[call("asker")]), say("ok"), tools=[asking([])])
    async with acp_client(services, hello=False) as client:
        await client.hello(elicitation={"form": {}})
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        asked = await client.asked("elicitation/create")
        client.notify("session/cancel", sessionId=session)
        assert (await client.answer(request))["result"]["stopReason"] == "cancelled"
        taken_back = [f["params"]["requestId"] for f in client.frames if f.get("method") == "$/cancel_request"]
        assert taken_back == [asked["id"]]
        client.reply(asked, {"action": "accept", "content": {}})
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}, {"elicitation": {"url": {}}}])
async def test_a_client_without_forms_is_not_asked(capabilities: dict[str, Any]) -> None:
    seen: list[Any] = []
    services, _ = make_services(say(calls=[call("asker")]), say("ok"), tools=[asking(seen)])
    async with acp_client(services, hello=False) as client:
        await client.hello(**capabilities)
        await client.prompt(await client.new_session(), "hi")
        assert type(seen[0]).__name__ == "NoClient"
        assert "elicitation/create" not in json.dumps(client.frames)
