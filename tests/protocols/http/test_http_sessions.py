"""Sessions over HTTP: resources, messages, fork, the model lock, chat and its stream, the pages for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import StoredSession
from hermes.agent.store.memory import MemoryStore
from hermes.protocols.http import openapi
from hermes.protocols.http.routes import ROUTES
from tests.protocols.http.test_http_chat_completions import fail
from tests.support.core import call, clock, hang, say
from tests.support.http_surface import Surface, frames, http_surface


async def made(surface: Surface, **body: Any) -> dict[str, Any]:
    answer = await surface.post("/api/sessions", body)
    assert answer.status_code == 201, answer.text
    session: dict[str, Any] = answer.json()["session"]
    return session


async def chat(surface: Surface, session_id: str, message: str = "hi", **body: Any) -> dict[str, Any]:
    answer = await surface.post(f"/api/sessions/{session_id}/chat", {"message": message, **body})
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


async def test_a_session_is_made_read_changed_and_deleted() -> None:
    async with http_surface() as surface:
        session = await made(surface, title="Notes", source="browser", system_prompt="be brief")
        assert session["id"].startswith("api_")
        assert (session["source"], session["has_system_prompt"]) == ("hermes_browser", True)
        path = f"/api/sessions/{session['id']}"
        assert (await surface.get(path)).json()["session"]["title"] == "Notes"
        patched = await surface.client.patch(path, json={"title": None, "pinned": True})
        assert (patched.json()["session"]["title"], patched.json()["session"]["pinned"]) == (None, True)
        assert (await surface.client.delete(path)).json()["deleted"] is True
        assert (await surface.get(path)).json()["error"]["code"] == "session_not_found"


class Doorway(MemoryStore):
    """Two who want to make a session are let through together: both have looked before either has made it."""

    def __init__(self) -> None:
        super().__init__(now=clock)
        self._came = 0
        self._both = trio.Event()

    async def _meet(self) -> None:
        self._came += 1
        if self._came == 2:
            self._both.set()
        await self._both.wait()

    async def create_session(self, session: StoredSession) -> bool:
        if session.key == "same":
            await self._meet()
        return await super().create_session(session)

    async def branch(self, key: str, new: StoredSession, **options: Any) -> Any:
        if new.key == "same":
            await self._meet()
        return await super().branch(key, new, **options)


@pytest.mark.parametrize("path", ["/api/sessions", "/api/sessions/s/fork"])
async def test_of_two_requests_for_one_id_at_the_same_moment_one_makes_the_session(path: str) -> None:
    async with http_surface(say("hello"), store=Doorway()) as surface:
        await made(surface, id="s")
        await chat(surface, "s")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await surface.post(path, {"id": "same"}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
        assert sorted(answer.status_code for answer in answers) == [201, 409]
        (refused,) = (answer.json()["error"] for answer in answers if answer.status_code == 409)
        assert (refused["code"], refused["param"]) == ("session_exists", "id")


async def test_the_unread_mark_is_kept_listed_and_not_inherited() -> None:
    async with http_surface(say("hello")) as surface:
        assert (await made(surface, id="s"))["unread"] is False
        await chat(surface, "s")
        marked = await surface.client.patch("/api/sessions/s", json={"unread": True})
        assert marked.json()["session"]["unread"] is True
        assert (await surface.get("/api/sessions/s")).json()["session"]["unread"] is True
        assert [entry["unread"] for entry in (await surface.get("/api/sessions")).json()["data"]] == [True]
        assert (await surface.post("/api/sessions/s/fork", {})).json()["session"]["unread"] is False
        cleared = await surface.client.patch("/api/sessions/s", json={"unread": False})
        assert cleared.json()["session"]["unread"] is False


async def test_a_session_without_messages_is_in_the_list_and_found_by_its_title() -> None:
    async with http_surface() as surface:
        session = await made(surface, title="Notes")
        for query in ("", "?title=Notes", "?title=Notes&include_hidden=1"):
            listed = (await surface.get(f"/api/sessions{query}")).json()["data"]
            assert [one["id"] for one in listed] == [session["id"]]
        assert (await surface.get("/api/sessions?title=Other")).json()["data"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"id": "../x"}, 400, "invalid_session_id"),
        ({"id": "taken"}, 409, "session_exists"),
        ({"title": "Taken"}, 400, "invalid_title"),
        ({"title": 5}, 400, "invalid_title"),
        ({"system_prompt": 5}, 400, "invalid_system_prompt"),
        ({"require_model_lock": True}, 400, "missing_model"),
    ],
)
async def test_a_session_that_cannot_be_made(body: Any, status: int, code: str) -> None:
    async with http_surface() as surface:
        await made(surface, id="taken", title="Taken")
        answer = await surface.post("/api/sessions", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize(
    ("body", "code"), [({"color": "red"}, "unsupported_session_field"), ({"pinned": "yes"}, "invalid_session_field")]
)
async def test_a_change_that_is_refused_changes_nothing(body: Any, code: str) -> None:
    async with http_surface() as surface:
        session = await made(surface, id="s")
        answer = await surface.client.patch("/api/sessions/s", json={"title": "New", **body})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert (await surface.get("/api/sessions/s")).json()["session"] == session


async def test_chat_answers_and_is_listed_with_its_messages() -> None:
    async with http_surface(say("hello"), say("again")) as surface:
        await made(surface, id="s", system_prompt="be brief")
        answer = await chat(surface, "s")
        assert answer["message"] == {"role": "assistant", "content": "hello"}
        assert (answer["completed"], answer["partial"], answer["interrupted"], answer["failed"]) == (
            True,
            False,
            False,
            False,
        )
        assert answer["usage"]["runtime"] == answer["runtime"]
        await chat(surface, "s", "more")
        listed = (await surface.get("/api/sessions")).json()
        assert [entry["id"] for entry in listed["data"]] == ["s"]
        assert listed["has_more"] is False
        messages = (await surface.get("/api/sessions/s/messages")).json()
        assert [entry["content"] for entry in messages["data"]] == ["hi", "hello", "more", "again"]
        page = (await surface.get("/api/sessions/s/messages?limit=1&order=latest")).json()
        assert [entry["content"] for entry in page["data"]] == ["again"]
        assert page["pagination"] == {"limit": 1, "offset": 0, "order": "latest", "returned": 1}


@pytest.mark.parametrize("query", ["limit=-1", "offset=x", "order=newest"])
async def test_a_bad_page_is_refused(query: str) -> None:
    async with http_surface() as surface:
        await made(surface, id="s")
        answer = await surface.get(f"/api/sessions/s/messages?{query}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_pagination")


async def test_a_failed_chat_says_so() -> None:
    async with http_surface(fail("broken")) as surface:
        await made(surface, id="s")
        answer = await chat(surface, "s")
        assert (answer["completed"], answer["failed"], answer["error"]) == (False, True, answer["message"]["content"])


@pytest.mark.parametrize(
    ("body", "code"),
    [({}, "missing_message"), ({"message": "x", "system_message": 4}, "invalid_system_message")],
)
async def test_a_chat_without_a_message_is_refused(body: Any, code: str) -> None:
    async with http_surface() as surface:
        await made(surface, id="s")
        answer = await surface.post("/api/sessions/s/chat", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert (await surface.post("/api/sessions/none/chat", {"message": "x"})).status_code == 404


async def test_the_session_stream_tells_one_turn_in_order() -> None:
    async with http_surface(say("a", calls=[call("nap", seconds=0)]), say("b")) as surface:
        await made(surface, id="s")
        answer = await surface.post("/api/sessions/s/chat/stream", {"message": "hi"})
        seen = frames(answer.text)
        names = [frame.event for frame in seen]
        assert names[:2] == ["run.started", "message.started"]
        assert names[-3:] == ["assistant.completed", "run.completed", "done"]
        assert names.index("tool.started") < names.index("tool.completed")
        assert [frame.data["seq"] for frame in seen] == list(range(1, len(seen) + 1))
        end = seen[-2].data
        assert [row["role"] for row in end["messages"]] == ["assistant", "tool", "assistant"]
        assert (await surface.get(f"/v1/runs/{end['run_id']}")).json()["output"] == "b"
        journal = frames((await surface.get(f"/v1/runs/{end['run_id']}/events")).text)
        assert journal[-1].data["event"] == "run.completed"


async def test_a_failed_session_stream_ends_once_and_as_failed() -> None:
    async with http_surface(fail("broken")) as surface:
        await made(surface, id="s")
        seen = frames((await surface.post("/api/sessions/s/chat/stream", {"message": "hi"})).text)
        assert [frame.event for frame in seen][-4:] == ["error", "assistant.completed", "run.failed", "done"]
        assert seen[-3].data["completed"] is False


async def test_a_stopped_session_stream_ends_as_cancelled() -> None:
    async with http_surface(hang()) as surface:
        await made(surface, id="s")
        stream = await surface.raw("POST", "/api/sessions/s/chat/stream", {"message": "hi"})
        await surface.until(lambda: surface.model.open == 1)
        (run,) = surface.live_runs()
        await surface.post(f"/v1/runs/{run.run_id}/stop")
        text = b""
        while b"event: done" not in text:
            text += await stream.receive_some()
        assert b"event: run.cancelled" in text
        stream.socket.close()


async def test_a_session_with_a_running_turn_is_not_deleted() -> None:
    async with http_surface(hang()) as surface:
        await made(surface, id="s")
        stream = await surface.raw("POST", "/api/sessions/s/chat/stream", {"message": "hi"})
        await surface.until(lambda: surface.model.open == 1)
        answer = await surface.client.delete("/api/sessions/s")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "session_active_turn")
        stream.socket.close()


async def test_a_fork_copies_the_messages_and_ends_the_source() -> None:
    async with http_surface(say("hello")) as surface:
        await made(surface, id="s", title="Talk")
        await chat(surface, "s")
        fork = (await surface.post("/api/sessions/s/fork", {})).json()["session"]
        assert (fork["parent_session_id"], fork["title"], fork["is_internal_child"]) == ("s", "Talk #2", False)
        messages = (await surface.get(f"/api/sessions/{fork['id']}/messages")).json()["data"]
        assert [entry["content"] for entry in messages] == ["hi", "hello"]
        assert (await surface.get("/api/sessions/s")).json()["session"]["end_reason"] == "branched"


async def test_a_fork_whose_title_is_taken_changes_nothing() -> None:
    async with http_surface(say("hello")) as surface:
        await made(surface, id="s", title="Talk")
        await chat(surface, "s")
        answer = await surface.post("/api/sessions/s/fork", {"title": "Talk", "id": "f"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_title")
        assert (await surface.get("/api/sessions/f")).status_code == 404
        assert (await surface.get("/api/sessions/s")).json()["session"]["end_reason"] is None


async def test_a_locked_model_runs_and_is_reported() -> None:
    async with http_surface(say("x")) as surface:
        await made(surface, id="s")
        lock = await surface.post("/api/sessions/s/model", {"model": "big-1"})
        assert lock.json()["runtime"]["model_lock"] == "accepted"
        answer = await chat(surface, "s")
        assert (answer["runtime"]["model"], answer["runtime"]["route_source"]) == ("big-1", "session_model_lock")
        refused = await surface.post("/api/sessions/s/model", {})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "missing_model")


async def test_a_foreign_session_is_not_there() -> None:
    async with http_surface(say("x")) as surface:
        await made(surface, id="s")
        surface.surface.api.principal = "somebody else"
        for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/messages"), ("POST", "/chat"), ("POST", "/fork")]:
            answer = await surface.client.request(method, f"/api/sessions/s{path}", content=b'{"message": "x"}')
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_not_found"), path


# --- pages -----------------------------------------------------------------------------------------------------------


async def test_pages_need_no_key_and_load_nothing_from_elsewhere() -> None:
    async with http_surface() as surface:
        for path in ("/", "/docs", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css", "/docs/start.js"):
            answer = await surface.client.get(path, headers={"Authorization": ""})
            assert answer.status_code == 200, path
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "https://" not in (await surface.get("/docs")).text


@pytest.mark.parametrize("path", ["/docs/secret", "/static/../call.py", "/static/.env", "/static/%2e%2e/call.py"])
async def test_only_the_pages_files_are_served(path: str) -> None:
    async with http_surface() as surface:
        assert (await surface.client.get(path, headers={"Authorization": ""})).status_code in (401, 404)


async def test_the_description_has_every_route_and_no_dangling_reference() -> None:
    async with http_surface() as surface:
        described = (await surface.client.get("/openapi.json", headers={"Authorization": ""})).json()
        assert described == openapi.document()
        assert described["openapi"] == "3.1.0"
        viewed = (await surface.client.get("/docs/openapi.json", headers={"Authorization": ""})).json()
        assert (viewed["openapi"], viewed["paths"].keys()) == ("3.0.3", described["paths"].keys())
        assert "'null'" not in str(viewed)
        for route in ROUTES:
            path = route.path.replace("{name:path}", "{name}")
            assert route.method.lower() in described["paths"][path]
        operations = [op["operationId"] for path in described["paths"].values() for op in path.values()]
        assert len(operations) == len(set(operations))
        text = str(described)
        for name in described["components"]["schemas"]:
            text = text.replace(f"#/components/schemas/{name}'", "")
        assert "#/components/schemas/" not in text


async def test_the_page_of_routes_is_fresh() -> None:
    page = Path("docs/reference/http-routes.md")
    assert openapi.markdown() == page.read_text(encoding="utf-8"), "run `hermes schema openapi --format markdown`"
