"""Responses: the official client in both modes, chains, conversations, storage, and truthful endings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import openai
import pytest
import trio

from hermes.agent.store.memory import MemoryStore
from hermes.errors import StoreUnavailable
from hermes.outcomes import Usage
from hermes.protocols.http import surface as http_module
from hermes.protocols.http import turns
from hermes.settings import Settings
from tests.protocols.http.test_http_chat_completions import fail, think
from tests.support.core import call, clock, hang, say
from tests.support.failing_store import FailingStore
from tests.support.http_surface import Surface, frames, http_surface
from tests.support.raw_http import read_until


async def create(surface: Surface, text: Any = "hi", **body: Any) -> dict[str, Any]:
    answer = await surface.post("/v1/responses", {"input": text, **body})
    assert answer.status_code == 200, answer.text
    created: dict[str, Any] = answer.json()
    return created


async def test_the_official_client_creates_reads_and_deletes() -> None:
    async with http_surface(think("hm", "Hello.")) as surface:

        def use(client: openai.OpenAI) -> None:
            made = client.responses.create(model="m", input="hi")
            assert (made.output_text, made.status, made.error) == ("Hello.", "completed", None)
            assert [item.type for item in made.output] == ["reasoning", "message"]
            assert made.usage is not None and made.usage.input_tokens_details.cached_tokens == 0
            again = client.responses.retrieve(made.id)
            assert again.output == made.output
            items = client.responses.input_items.list(made.id)
            assert items.data[0].content[0].text == "hi"  # type: ignore[union-attr,index]
            client.responses.delete(made.id)
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(made.id)

        await surface.openai(use)


async def test_the_official_stream_helper_follows_a_tool_turn() -> None:
    async with http_surface(say("Let me see. ", calls=[call("nap", seconds=0)]), say("Three.")) as surface:

        def use(client: openai.OpenAI) -> tuple[list[str], Any]:
            with client.responses.stream(model="m", input="hi") as stream:
                kinds: list[str] = [event.type for event in stream]
                return kinds, stream.get_final_response()

        kinds, final = await surface.openai(use)
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert kinds[-1] == "response.completed"
        assert [item.type for item in final.output] == ["message", "function_call", "function_call_output", "message"]
        stored = await surface.get(f"/v1/responses/{final.id}")
        assert [item["id"] for item in stored.json()["output"]] == [item.id for item in final.output]


async def test_every_event_is_numbered_and_every_item_is_opened_and_closed_once() -> None:
    async with http_surface(think("hm", "a"), say("b")) as surface:
        answer = await surface.post("/v1/responses", {"input": "x", "stream": True})
        seen = frames(answer.text)
        assert [frame.data["sequence_number"] for frame in seen] == list(range(len(seen)))
        assert all(frame.event == frame.data["type"] for frame in seen)
        opened = [frame.data["item"]["id"] for frame in seen if frame.event == "response.output_item.added"]
        closed = [frame.data["item"]["id"] for frame in seen if frame.event == "response.output_item.done"]
        assert opened == closed
        assert [item["id"] for item in seen[-1].data["response"]["output"]] == opened
        assert "[DONE]" not in answer.text


async def test_function_calls_stream_their_arguments_and_results() -> None:
    async with http_surface(say("", calls=[call("nap", seconds=0)]), say("b")) as surface:
        answer = await surface.post("/v1/responses", {"input": "x", "stream": True})
        seen = frames(answer.text)
        delta = next(frame.data for frame in seen if frame.event == "response.function_call_arguments.delta")
        done = next(frame.data for frame in seen if frame.event == "response.function_call_arguments.done")
        assert delta["delta"] == done["arguments"] == '{"seconds":0}'
        output = next(item for item in seen[-1].data["response"]["output"] if item["type"] == "function_call_output")
        assert output["output"] == [{"type": "input_text", "text": "rested"}]


async def test_tool_items_can_be_hidden() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"tool_items": "hidden"}}})
    async with http_surface(say("", calls=[call("nap", seconds=0)]), say("b"), settings=settings) as surface:
        assert [item["type"] for item in (await create(surface))["output"]] == ["message"]


async def test_a_chain_carries_session_history_and_instructions() -> None:
    async with http_surface(say("1"), say("2")) as surface:
        first = await create(surface, "one", instructions="be brief")
        second = await surface.post("/v1/responses", {"input": "two", "previous_response_id": first["id"]})
        request = surface.model.requests[-1]
        assert [row.text for row in request.messages] == ["one", "1", "two"]
        assert request.system[-1] == "be brief"
        assert second.json()["previous_response_id"] == first["id"]


async def test_a_chain_from_an_older_response_leaves_the_newer_one_out() -> None:
    async with http_surface(say("1"), say("2"), say("3")) as surface:
        first = await create(surface, "one")
        await create(surface, "two", previous_response_id=first["id"])
        await create(surface, "other two", previous_response_id=first["id"])
        assert [row.text for row in surface.model.requests[-1].messages] == ["one", "1", "other two"]


@pytest.mark.parametrize("conversation", ["notes", {"id": "notes"}])
async def test_a_named_conversation_goes_on_and_starts_anew_after_delete(conversation: Any) -> None:
    async with http_surface(say("1"), say("2"), say("3")) as surface:
        await create(surface, "one", conversation=conversation)
        second = await create(surface, "two", conversation=conversation)
        assert [row.text for row in surface.model.requests[-1].messages] == ["one", "1", "two"]
        await surface.client.delete(f"/v1/responses/{second['id']}")
        await create(surface, "three", conversation=conversation)
        assert [row.text for row in surface.model.requests[-1].messages] == ["three"]


async def test_explicit_history_keeps_the_chains_session() -> None:
    async with http_surface(say("1"), say("2")) as surface:
        first = await surface.post("/v1/responses", {"input": "one"})
        history = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
        body = {"input": "two", "previous_response_id": first.json()["id"], "conversation_history": history}
        second = await surface.post("/v1/responses", body)
        assert second.headers["x-hermes-session-id"] == first.headers["x-hermes-session-id"]
        assert [row.text for row in surface.model.requests[-1].messages] == ["A", "B", "two"]


async def test_a_session_key_finds_the_last_session() -> None:
    async with http_surface(say("1"), say("2")) as surface:
        answers = [
            await surface.post("/v1/responses", {"input": "x"}, X_Hermes_Session_Key="channel-7") for _ in range(2)
        ]
        assert len({answer.headers["x-hermes-session-id"] for answer in answers}) == 1
        assert answers[0].headers["x-hermes-session-key"] == "channel-7"


async def test_input_items_rebuild_calls_with_their_results() -> None:
    items = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "weather?"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c9", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c9", "output": [{"type": "input_text", "text": "sunny"}]},
        {"type": "function_call", "call_id": "lost", "name": "weather", "arguments": "{}"},
        {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
    ]
    async with http_surface(say("x")) as surface:
        await create(surface, items)
        rows = surface.model.requests[-1].messages
        assert [(row.role, row.text) for row in rows] == [
            ("user", "weather?"),
            ("assistant", ""),
            ("tool", "sunny"),
            ("user", "and now?"),
        ]
        assert [c.id for c in rows[1].tool_calls] == ["c9"]


async def test_input_items_can_be_paged_whatever_ids_the_client_gave_them() -> None:
    ids: list[Any] = [5, "same", "same", None, "", "own"]
    items = [{"role": "user", "content": f"{place}", "id": one} for place, one in enumerate(ids)]
    async with http_surface(say("x")) as surface:
        path = f"/v1/responses/{(await create(surface, items))['id']}/input_items?order=asc&limit=1"
        seen: list[dict[str, Any]] = []
        more, after = True, ""
        while more and len(seen) <= len(items):
            page = (await surface.get(path + after)).json()
            seen += page["data"]
            more, after = page["has_more"], f"&after={page['last_id']}"
        assert [item["content"][0]["text"] for item in seen] == [item["content"] for item in items]
        assert (seen[1]["id"], seen[5]["id"]) == ("same", "own")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_input"),
        ({"input": 5}, 400, "missing_input"),
        ({"input": []}, 400, "no_user_message"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, 400, "no_user_message"),
        ({"input": "x", "previous_response_id": "a", "conversation": "b"}, 400, "conflicting_parameters"),
        ({"input": "x", "previous_response_id": "resp_nope"}, 404, "response_not_found"),
        ({"input": "x", "conversation_history": [{}]}, 400, "invalid_history"),
    ],
)
async def test_a_bad_request_is_refused(body: Any, status: int, code: str) -> None:
    async with http_surface() as surface:
        answer = await surface.post("/v1/responses", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_what_is_not_to_be_stored_cannot_be_read_or_chained() -> None:
    async with http_surface(say("1")) as surface:
        made = await create(surface, store=False)
        assert made["store"] is False
        assert (await surface.get(f"/v1/responses/{made['id']}")).status_code == 404
        answer = await surface.post("/v1/responses", {"input": "x", "previous_response_id": made["id"]})
        assert answer.status_code == 404


async def test_the_least_recently_used_goes_when_the_shelf_is_full() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_stored_responses": 2}}})
    async with http_surface(say("1"), say("2"), say("3"), settings=settings) as surface:
        first = await create(surface)
        second = await create(surface)
        await surface.get(f"/v1/responses/{first['id']}")
        await create(surface)
        assert (await surface.get(f"/v1/responses/{first['id']}")).status_code == 200
        assert (await surface.get(f"/v1/responses/{second['id']}")).status_code == 404


async def test_a_foreign_response_is_not_there() -> None:
    async with http_surface(say("1")) as surface:
        made = await create(surface)
        surface.surface.api.principal = "somebody else"
        assert (await surface.get(f"/v1/responses/{made['id']}")).status_code == 404
        assert (await surface.client.delete(f"/v1/responses/{made['id']}")).status_code == 404


# --- endings ---------------------------------------------------------------------------------------------------------


async def test_a_failed_turn_is_never_completed() -> None:
    async with http_surface(fail("broken", "format_error", "so far"), fail("broken"), fail("broken")) as surface:
        with_text = (await surface.post("/v1/responses", {"input": "x"})).json()
        assert (with_text["status"], with_text["error"]["code"]) == ("failed", "server_error")
        without = await surface.post("/v1/responses", {"input": "x"})
        assert (without.status_code, without.json()["error"]["code"]) == (502, "agent_incomplete")
        streamed = frames((await surface.post("/v1/responses", {"input": "x", "stream": True})).text)
        assert streamed[-1].event == "response.failed"
        assert set(streamed[-1].data["response"]["error"]) == {"code", "message"}


async def test_the_iteration_budget_is_incomplete() -> None:
    settings = Settings.model_validate({"agent": {"max_turns": 1}})
    replies = [say("", calls=[call("nap", seconds=0)]), say("the best so far")]
    async with http_surface(*replies, settings=settings) as surface:
        made = await create(surface)
        assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "max_tool_calls"})


async def test_a_stored_stream_that_is_left_becomes_incomplete_with_what_was_said() -> None:
    async with http_surface(say("partly said", calls=[call("nap", seconds=3600)])) as surface:
        stream = await surface.raw("POST", "/v1/responses", {"input": "x", "stream": True})
        await read_until(stream, b"function_call_arguments.done")
        (run,) = surface.live_runs()
        assert (await surface.get(f"/v1/responses/{run.run_id}")).json()["status"] == "in_progress"
        stream.socket.close()
        with trio.fail_after(1):
            await run.stored.wait()
        stored = (await surface.get(f"/v1/responses/{run.run_id}")).json()
        assert stored["status"] == "incomplete"
        assert stored["output"][0]["content"][0]["text"] == "partly said"


async def test_cancel_stops_the_turn_and_answers_with_the_response() -> None:
    async with http_surface(hang()) as surface:
        stream = await surface.raw("POST", "/v1/responses", {"input": "x", "stream": True})
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        answer = await surface.post(f"/v1/responses/{run.run_id}/cancel")
        assert answer.json()["status"] == "cancelled"
        assert surface.model.open == 0
        stream.socket.close()


async def test_what_a_dead_process_left_in_progress_is_incomplete_after_the_next_start() -> None:
    store = MemoryStore(now=clock)
    async with http_surface(say("x"), store=store) as surface:
        made = await create(surface)
        principal = surface.surface.api.principal
        record = await store.get_record("response", made["id"])
        assert record is not None
    unfinished = {**record, "response": {**record["response"], "status": "in_progress"}, "owner": "dead"}
    await store.put_record("response", made["id"], unfinished, owner=principal)
    async with http_surface(store=store) as surface:
        assert (await surface.get(f"/v1/responses/{made['id']}")).json()["status"] == "incomplete"


class LockedAtStart(MemoryStore):
    """Another program holds the database while the server starts, and lets go of it after a while."""

    is_locked = False

    async def list_records(self, kind: str, **given: Any) -> Any:
        if self.is_locked and kind == "response":
            raise StoreUnavailable("another program holds the session database locked", cause="locked")
        return await super().list_records(kind, **given)


async def test_a_store_that_is_locked_at_the_start_keeps_nobody_from_being_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "STORE_AGAIN", 0.01)
    store = LockedAtStart(now=clock)
    async with http_surface(say("x"), store=store) as surface:
        made = await create(surface)
        record = await store.get_record("response", made["id"])
        assert record is not None
        principal = surface.surface.api.principal
    unfinished = {**record, "response": {**record["response"], "status": "in_progress"}, "owner": "dead"}
    await store.put_record("response", made["id"], unfinished, owner=principal)
    store.is_locked = True
    async with http_surface(store=store) as surface:
        assert (await surface.get(f"/v1/responses/{made['id']}")).json()["status"] == "in_progress"
        store.is_locked = False
        while (await surface.get(f"/v1/responses/{made['id']}")).json()["status"] != "incomplete":
            await trio.sleep(0.01)


async def test_a_repeated_key_gives_the_same_response() -> None:
    async with http_surface(say("once")) as surface:
        answers = [await surface.post("/v1/responses", {"input": "x"}, Idempotency_Key="k") for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        assert answers[1].headers["idempotency-replayed"] == "true"
        assert len(surface.model.requests) == 1


async def test_a_repeated_key_gives_the_same_response_although_it_was_not_to_be_stored() -> None:
    async with http_surface(say("once")) as surface:
        body = {"input": "hi", "store": False}
        first = await surface.post("/v1/responses", body, Idempotency_Key="k")
        again = await surface.post("/v1/responses", body, Idempotency_Key="k")
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
        assert (await surface.get(f"/v1/responses/{first.json()['id']}")).status_code == 404


async def test_a_stream_whose_start_is_refused_leaves_no_response_in_progress() -> None:
    store = FailingStore(refused=frozenset({"begin_turn"}), stay=True)
    async with http_surface(say("x"), store=store) as surface:
        answer = await surface.post("/v1/responses", {"input": "hi", "stream": True})
        assert answer.status_code >= 500, answer.text
        records = await surface.tree.services.store.list_records("response")
        assert [record["response"]["status"] for _, record in records] in ([], ["failed"])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_a_stream_begins_although_the_prompt_takes_long_to_become_durable(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "STREAM_WITHIN", 0.05)
    gate = trio.Event()

    async def before(name: str) -> None:
        if name == "begin_turn":
            await gate.wait()

    async with http_surface(say("at last"), store=FailingStore(before=before)) as surface:
        body = {"input": "hi", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        stream = await surface.raw("POST", path, body)
        first = await read_until(stream, b"data: ")
        assert b" 200 " in first and not gate.is_set()
        gate.set()
        assert b"at last" in await read_until(stream, b"at last")
        await stream.aclose()


async def test_usage_counts_the_cached_part_of_the_prompt() -> None:
    async def cached(request: Any, on_delta: Any) -> Any:
        finished = await say("x")(request, on_delta)
        return replace(finished, usage=Usage(input_tokens=10, cache_read_tokens=90, output_tokens=5, calls=1))

    async with http_surface(*[cached] * 3) as surface:
        spent = (await surface.post("/v1/responses", {"input": "hi"})).json()["usage"]
        assert (spent["input_tokens"], spent["input_tokens_details"]) == (100, {"cached_tokens": 90})
        assert spent["total_tokens"] == 105
        asked = {"messages": [{"role": "user", "content": "hi"}]}
        chat = (await surface.post("/v1/chat/completions", asked)).json()["usage"]
        assert chat == {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        run_id = (await surface.post("/v1/runs", {"input": "hi"})).json()["run_id"]
        run = (await surface.ended(run_id))["usage"]
        assert (run["input_tokens"], run["cache_read_tokens"], run["total_tokens"]) == (100, 90, 105)
