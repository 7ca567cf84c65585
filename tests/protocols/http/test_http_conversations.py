"""Named conversations when several requests come at once: one session, one chain, nobody's turn is lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from hermes.agent.store.memory import MemoryStore
from hermes.protocols.http.conversations import ConversationOrder, ConversationTurn
from tests.support.core import clock, hang, say
from tests.support.http_surface import Surface, http_surface


async def several(surface: Surface, *bodies: dict[str, Any], path: str = "/v1/responses", **headers: str) -> list[Any]:
    answers: list[Any] = [None] * len(bodies)

    async def one(number: int, body: dict[str, Any]) -> None:
        answers[number] = await surface.post(path, body, **headers)

    async with trio.open_nursery() as nursery:
        for number, body in enumerate(bodies):
            nursery.start_soon(one, number, body)
    return answers


async def test_first_requests_at_once_are_one_conversation_and_each_continues_the_one_before() -> None:
    async with http_surface(*[say(f"answer {number}", pause=0.02) for number in range(4)]) as surface:
        bodies = [{"input": f"question {number}", "conversation": "notes"} for number in range(3)]
        answers = await several(surface, *bodies)
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 1
        chain = [answer.json()["previous_response_id"] for answer in answers]
        assert chain.count(None) == 1 and len(set(chain)) == 3
        assert (await surface.post("/v1/responses", {"input": "last", "conversation": "notes"})).status_code == 200
        sent = [row.text for row in surface.model.requests[-1].messages if row.role == "user"]
        assert sorted(sent) == ["last", "question 0", "question 1", "question 2"]


async def test_two_servers_over_one_home_give_a_new_name_the_same_session() -> None:
    store = MemoryStore(now=clock)
    async with http_surface(say("a"), store=store) as one, http_surface(say("b"), store=store) as two:
        answers: list[Any] = []

        async def ask(surface: Surface) -> None:
            answers.append(await surface.post("/v1/responses", {"input": "x", "conversation": "notes"}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, one)
            nursery.start_soon(ask, two)
        sessions = {answer.headers["x-hermes-session-id"] for answer in answers if answer.status_code == 200}
        assert len(sessions) == 1
        assert all(answer.status_code in (200, 409) for answer in answers)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/runs"])
async def test_first_requests_at_once_with_a_new_session_key_share_a_session(path: str) -> None:
    async with http_surface(say("a"), say("b")) as surface:
        answers = await several(surface, {"input": "x"}, {"input": "y"}, path=path, X_Hermes_Session_Key="desk 4")
        assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 1


async def test_a_refused_request_and_one_whose_client_has_gone_hold_nobody_back() -> None:
    async with http_surface(hang(), say("fine")) as surface:
        body = {"input": "x", "conversation": "notes"}
        refused = await surface.post("/v1/responses", {**body, "deadline_s": "soon"})
        assert refused.status_code == 400
        stream = await surface.raw("POST", "/v1/responses", {**body, "stream": True})
        await surface.until(lambda: len(surface.model.requests) == 1)
        async with trio.open_nursery() as nursery:
            answers: list[Any] = []

            async def second() -> None:
                answers.append(await surface.post("/v1/responses", {**body, "input": "y"}))

            nursery.start_soon(second)
            await surface.until(lambda: surface.surface.api.runs.active == 2)
            assert len(surface.model.requests) == 1, "the second waits for the first"
            await stream.aclose()
        assert answers[0].status_code == 200
        assert answers[0].json()["previous_response_id"] is not None


async def test_who_gives_up_waiting_takes_no_place() -> None:
    order = ConversationOrder()
    first, second, third = (ConversationTurn(order) for _ in range(3))
    await first.wait_first("x")
    with trio.move_on_after(0.01):
        await second.wait_first("x")
    second.leave()
    first.leave()
    first.leave()
    with trio.fail_after(5):
        await third.wait_first("x")
