"""The conformance list of the HTTP surface, point by point. Other files go deeper; here each is shown once, whole.

``PROOF=1`` runs the full counts and the real pauses.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.nurseries.browser_broker import BrowserFailure
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.http import runs, streaming
from hermes.protocols.http.routes import ROUTES
from hermes.settings import Settings
from hermes.testing import FakeProvider, Reply, Script
from tests.protocols.http.test_http_browser_control import ON, connected, receive, register, send
from tests.protocols.http.test_http_chat_completions import fail
from tests.protocols.http.test_http_disconnect import HI, prepare
from tests.protocols.http.test_http_readers import reconnecting
from tests.support.core import Reply as ModelReply
from tests.support.core import call, hang, say
from tests.support.http_clients import served
from tests.support.http_surface import KEY, Surface, frames, http_surface
from tests.support.raw_http import read_until
from tests.support.server_process import http_server, server_process
from tests.support.sse_client import streaming as reading

PROOF = os.environ.get("PROOF") == "1"
SCALE = 1.0 if PROOF else 0.03
AUTH = {"Authorization": f"Bearer {KEY}"}
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HI, "stream": True}),
    "responses": ("/v1/responses", {"input": "hi", "stream": True}),
    "session stream": ("/api/sessions/s1/chat/stream", {"message": "hi"}),
}


async def start(surface: Surface, text: str = "hi", **members: Any) -> str:
    answer = await surface.post("/v1/runs", {"input": text, **members})
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def events_of(surface: Surface, run_id: str) -> list[dict[str, Any]]:
    return [frame.data for frame in frames((await surface.get(f"/v1/runs/{run_id}/events")).text)]


@pytest.mark.e2e
@pytest.mark.parametrize("key", ["fifteen-chars-x", "changeme-changeme-changeme"])
async def test_01_a_short_or_placeholder_key_does_not_listen(key: str, tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with server_process(tmp_path, "serve", "--port", "0", environ={"API_SERVER_KEY": key}) as server:
            assert await server.exit_code() != 0
            await server.wait_until(lambda: server.output_ended)
            assert key not in server.stderr and len(server.stderr.strip().splitlines()) <= 2
        # The other surfaces need no key.
        async with server_process(tmp_path, "gateway", environ={"API_SERVER_KEY": key}) as gateway:
            await gateway.event("gateway.ready")


async def test_02_a_wrong_token_is_401_with_one_body() -> None:
    async with http_surface() as surface:
        bodies = set()
        for token in (None, "Bearer wrong", "Bearer " + KEY[:-1], "Bearer kéy".encode("latin-1"), "Basic " + KEY):
            headers: Any = {"Authorization": b"" if token is None else token}
            answer = await surface.client.get("/v1/models", headers=headers)
            assert answer.status_code == 401
            bodies.add(answer.content)
        assert len(bodies) == 1


async def test_03_origins_are_judged_before_the_key_and_marked_on_json_and_streams() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"cors_origins": ["https://ui.example"]}}})
    async with http_surface(say("x"), settings=settings) as surface:
        refused = await surface.client.get("/health", headers={"Origin": "https://evil.example", "Authorization": ""})
        assert (refused.status_code, refused.content) == (403, b"")
        listed = await surface.get("/v1/models", Origin="https://ui.example")
        stream = await surface.post("/v1/chat/completions", STREAMS["chat"][1], Origin="https://ui.example")
        for answer in (listed, stream):
            assert answer.headers["access-control-allow-origin"] == "https://ui.example"


@pytest.mark.parametrize("declared", [True, False])
async def test_04_a_body_of_ten_million_and_one_bytes_is_413(declared: bool) -> None:
    async def pieces() -> Any:
        for _ in range(10):
            yield b" " * 1_000_000
        yield b" "

    async with http_surface() as surface:
        content: Any = b" " * 10_000_001 if declared else pieces()
        answer = await surface.client.post("/v1/runs", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


async def test_05_a_body_that_is_no_object_is_400_on_every_post() -> None:
    async with http_surface(settings=ON) as surface:
        await surface.post("/api/sessions", {"id": "s"})
        for route in [route for route in ROUTES if route.method == "POST" and route.body is not None]:
            path = route.path.replace("{session_id}", "s")
            if "{" in path:
                continue
            for body in (b"[1]", b'"x"', b"{", b"7"):
                answer = await surface.client.post(path, content=body)
                assert answer.status_code == 400, (path, body, answer.text)
                assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}


@pytest.mark.parametrize("include_usage", [False, True])
async def test_06_07_a_chat_stream_begins_ends_and_tells_its_usage_as_the_protocol_says(include_usage: bool) -> None:
    async with http_surface(say("a ", "b", calls=[call("nap", seconds=0)]), say("c")) as surface:
        body = {**STREAMS["chat"][1], "stream_options": {"include_usage": include_usage}, "hermes_events": False}
        chunks = [frame.data for frame in frames((await surface.post("/v1/chat/completions", body)).text)]
        assert chunks.pop() == "[DONE]"
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
        ends = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"] and c["choices"][0]["finish_reason"]]
        assert ends == ["stop"]
        spent = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
        if include_usage:
            assert (chunks[-1]["choices"], chunks[-1]["usage"], chunks[-2]["usage"]) == ([], spent, None)
        else:
            assert chunks[-1]["usage"] == spent


async def test_08_a_silent_tool_of_25_seconds_has_two_keepalives_on_every_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (streaming, runs):
        monkeypatch.setattr(module, "KEEPALIVE_SECONDS", 10 * SCALE)
    slow = say("", calls=[call("nap", seconds=25 * SCALE)])
    counts: dict[str, int] = {}

    async def count(surface: Surface, name: str, method: str, path: str, body: Any) -> None:
        async with reading(surface.port, method, path, headers=AUTH, body=body) as answer:
            lines = []
            while (line := await answer.line()) is not None:
                lines.append(line)
        counts[name] = lines.count(": keepalive")

    async with http_surface(*[slow] * 4, within=60) as surface, trio.open_nursery() as nursery:
        await prepare(surface, "/api/sessions/s1")
        for name, (path, body) in STREAMS.items():
            nursery.start_soon(count, surface, name, "POST", path, body)
            while len(surface.live_runs()) < len(counts) + 1 and name not in counts:
                await trio.sleep(0.001)
        run_id = await start(surface)
        nursery.start_soon(count, surface, "run events", "GET", f"/v1/runs/{run_id}/events", None)
    assert counts == dict.fromkeys([*STREAMS, "run events"], 2)


@pytest.mark.parametrize("phase", ["in the text", "in a tool"])
@pytest.mark.parametrize("route", list(STREAMS))
async def test_09_a_closed_socket_ends_the_model_call_or_the_tool_and_frees_the_slot(route: str, phase: str) -> None:
    text = phase == "in the text"
    reply = say(*["word "] * 1000, pause=0.02) if text else say("", calls=[call("nap", seconds=3600)])
    async with http_surface(reply) as surface:
        path, body = STREAMS[route]
        await prepare(surface, path)
        stream = await surface.raw("POST", path, body)
        await read_until(stream, b"word" if text else b"nap")
        stream.socket.close()
        with trio.fail_after(2):
            await surface.until(lambda: surface.surface.api.runs.active == 0)
        assert surface.model.open == 0


async def test_10_an_error_of_many_lines_is_a_valid_answer() -> None:
    broken = fail("first\r\nsecond ✗\nthird")

    async def half(request: Any, on_delta: Any) -> Any:
        await say("some text ")(request, on_delta)
        return await broken(request, on_delta)

    async with http_surface(half) as surface:
        answer = await surface.post("/v1/chat/completions", {"messages": HI})
        assert (answer.status_code, answer.json()["choices"][0]["finish_reason"]) == (200, "error")
        assert answer.json()["choices"][0]["message"]["content"].startswith("some text")
        assert answer.headers["x-hermes-error"].startswith("first second ? third")
        assert (await surface.get("/health")).status_code == 200


async def test_11_the_official_client_does_everything_on_its_list() -> None:
    def use(client: Any) -> None:
        model, ask = "hermes-agent", [{"role": "user", "content": "hi"}]
        assert client.chat.completions.create(model=model, messages=ask).choices[0].message.content == "hello"
        assert list(client.chat.completions.create(model=model, messages=ask, stream=True))
        with client.chat.completions.stream(model=model, messages=ask) as stream:
            assert stream.get_final_completion().choices[0].message.content == "hello"
        response = client.responses.create(model=model, input="hi")
        assert response.output_text == "hello"
        assert [event.type for event in client.responses.create(model=model, input="hi", stream=True)]
        with client.responses.stream(model=model, input="hi") as stream:
            assert stream.get_final_response().output_text == "hello"
        assert client.responses.retrieve(response.id).id == response.id
        client.responses.delete(response.id)
        assert [one.id for one in client.models.list()] == [model]
        assert client.models.retrieve(model).id == model

    async with http_surface(*[say("hello")] * 6) as surface:
        await surface.openai(use)


async def test_12_responses_chain_converse_are_forgotten_and_evicted() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_stored_responses": 2}}})
    async with http_surface(*[say(f"r{number}") for number in range(6)], settings=settings) as surface:

        async def respond(**members: Any) -> Any:
            return await surface.post("/v1/responses", {"input": "hi", **members})

        first = (await respond()).json()
        chained = (await respond(previous_response_id=first["id"])).json()
        assert [row.text for row in surface.model.requests[-1].messages if row.role == "assistant"] == ["r0"]
        assert (await respond(previous_response_id="resp_none")).status_code == 404
        unstored = (await respond(store=False)).json()
        assert (await surface.get(f"/v1/responses/{unstored['id']}")).status_code == 404
        talk = (await respond(conversation="talk")).json()
        # The shelf holds two: the least recently used has gone.
        assert (await surface.get(f"/v1/responses/{first['id']}")).status_code == 404
        assert (await surface.get(f"/v1/responses/{chained['id']}")).status_code == 200
        assert (await surface.client.delete(f"/v1/responses/{talk['id']}")).json()["deleted"] is True
        assert (await surface.client.delete(f"/v1/responses/{talk['id']}")).status_code == 404
        await respond(conversation="talk")
        assert not [row for row in surface.model.requests[-1].messages if row.role == "assistant"]


@pytest.mark.e2e
async def test_12_16_a_killed_server_leaves_nothing_in_progress_and_a_replay_says_interrupted(tmp_path: Path) -> None:
    script = Script(replies=[Reply.of({"text": "x"}, faults={"hang": True})], when_used_up="repeat")
    body = {"input": "hi"}
    async with FakeProvider(script) as provider:
        environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}
        with trio.fail_after(60):
            async with http_server(tmp_path / "home", environ=environ) as server:
                headers = {"Authorization": f"Bearer {server.key}"}
                async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client:
                    once = {"Idempotency-Key": "job-17"}
                    run_id = (await client.post("/v1/runs", json=body, headers=once)).json()["run_id"]
                    streaming_body = {"input": "hi", "stream": True}
                    async with reading(
                        server.port, "POST", "/v1/responses", headers=headers, body=streaming_body
                    ) as answer:
                        created = await answer.data()
                        assert created is not None
                        response_id = created["response"]["id"]
                        stored = (await client.get(f"/v1/responses/{response_id}")).json()
                        assert stored["status"] == "in_progress"
                        await server.stop(signal.SIGKILL)
            async with http_server(tmp_path / "home", environ=environ) as server:
                async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=20) as client:
                    stored = (await client.get(f"/v1/responses/{response_id}")).json()
                    assert stored["status"] == "incomplete"
                    replay = await client.post("/v1/runs", json=body, headers=once)
                    assert replay.json() == {"run_id": run_id, "status": "interrupted", "replayed": True}
                    assert replay.headers["idempotency-replayed"] == "true"
                    status = (await client.get(f"/v1/runs/{run_id}")).json()
                    assert (status["status"], status["completed"], status["interrupted"]) == (
                        "interrupted",
                        False,
                        True,
                    )


OUTCOMES: dict[str, tuple[tuple[ModelReply, ...], dict[str, Any], str]] = {
    "a final answer": ((say("done"),), {}, "completed"),
    "a stop": ((hang(),), {}, "cancelled"),
    "a failure": ((fail("broken"),), {}, "failed"),
    "the server's budget": ((say("", calls=[call("nap", seconds=0)]),) * 3, {"agent": {"max_turns": 1}}, "failed"),
    "a shutdown": ((hang(),), {}, "interrupted"),
}


@pytest.mark.parametrize("outcome", list(OUTCOMES))
async def test_13_status_event_and_flags_agree_on_every_outcome(outcome: str) -> None:
    replies, changes, expected = OUTCOMES[outcome]
    async with http_surface(*replies, settings=Settings.model_validate(changes)) as surface:
        run_id = await start(surface)
        if replies[0] in (OUTCOMES["a stop"][0][0], OUTCOMES["a shutdown"][0][0]):
            await surface.until(lambda: surface.model.open == 1)
        if outcome == "a stop":
            await surface.post(f"/v1/runs/{run_id}/stop")
        if outcome == "a shutdown":
            await surface.tree.registry.close_all(CancelReason(Cause.SHUTDOWN))
        status = await surface.ended(run_id)
        ends = [e for e in await events_of(surface, run_id) if e["event"].startswith("run.") and "completed" in e]
        assert [end["event"] for end in ends] == [f"run.{expected}"]
        assert status["status"] == expected
        flags = ("completed", "partial", "interrupted")
        assert [status[name] for name in flags] == [ends[0][name] for name in flags]
        assert status["completed"] == (expected == "completed")
        assert status["interrupted"] == (expected in ("cancelled", "interrupted"))
        assert ("turn_exit_reason" in status) == (expected != "completed")


async def test_14_a_steer_is_judged_by_state_then_text_and_never_lost_in_the_race_with_the_end() -> None:
    rounds = 1000 if PROOF else 100
    async with http_surface(hang(), *[say("x")] * rounds, within=400) as surface:
        run_id = await start(surface)
        await surface.until(lambda: surface.model.open == 1)
        for body in (b'{"text": "  "}', b"{}"):
            answer = await surface.client.post(f"/v1/runs/{run_id}/steer", content=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_steer_input")
        assert (await surface.client.post(f"/v1/runs/{run_id}/steer", content=b"[]")).status_code == 400
        assert (await surface.post(f"/v1/runs/{run_id}/steer", {"input": "be quick"})).json()["accepted"] is True
        await surface.post(f"/v1/runs/{run_id}/stop")
        assert (await surface.ended(run_id))["pending_steer"] == "be quick"
        late = await surface.client.post(f"/v1/runs/{run_id}/steer", content=b"{}")
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run_not_accepting_steer")
        for number in range(rounds):
            run_id = await start(surface, session_id="race")
            text = f"steer {number}"
            answer = await surface.post(f"/v1/runs/{run_id}/steer", {"text": text})
            status = await surface.ended(run_id)
            session = surface.tree.registry.by_key("race")
            assert session is not None
            stored = sum(text == row.text or f"{text}\n" in f"{row.text}\n" for row in session.rows)
            handed_back = status.get("pending_steer", "").split("\n").count(text)
            assert stored + handed_back == int(answer.status_code == 200), number


async def test_15_stop_works_in_every_state_and_twice() -> None:
    ask = say("", calls=[call("ask")])
    nap = say("", calls=[call("nap", seconds=3600)])
    async with http_surface(hang(), nap, ask) as surface:
        first = await start(surface, session_id="s")
        queued = await start(surface, session_id="s")
        for run_id in (queued, first):
            for _ in range(2):
                assert (await surface.post(f"/v1/runs/{run_id}/stop")).json()["status"] in ("stopping", "cancelled")
            status = await surface.ended(run_id)
            assert (status["status"], status["cause"]) == ("cancelled", "run_stop")
        in_tool = await start(surface)
        await surface.until(lambda: surface.model.open == 0 and len(surface.model.requests) == 2)
        asking_after = await start(surface)
        await surface.until(lambda: any(run.open_questions("approval") for run in surface.live_runs()))
        for run_id in (in_tool, asking_after):
            await surface.post(f"/v1/runs/{run_id}/stop")
            assert (await surface.ended(run_id))["status"] == "cancelled"
        after = (await surface.post(f"/v1/runs/{in_tool}/stop")).json()
        assert after == (await surface.get(f"/v1/runs/{in_tool}")).json()


async def test_16_parallel_duplicates_are_one_run_and_replays_are_answered_at_the_cap() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"max_concurrent_runs": 1}}})
    async with http_surface(hang(), settings=settings) as surface:
        answers: list[Any] = []

        async def one() -> None:
            answers.append(await surface.post("/v1/runs", {"input": "x"}, Idempotency_Key="k"))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(one)
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["run_id"] for answer in answers}) == 1
        assert sum(not answer.json()["replayed"] for answer in answers) == 1
        refused = await surface.post("/v1/runs", {"input": "y"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


async def test_17_three_readers_hold_identical_lists() -> None:
    async with http_surface(say(*["w "] * 300, pause=0.002)) as surface:
        run_id = await start(surface)
        slow = await surface.raw("GET", f"/v1/runs/{run_id}/events")
        restless: list[dict[str, Any]] = []
        async with trio.open_nursery() as readers:
            readers.start_soon(reconnecting, surface, run_id, random.Random(1), restless)
        steady = await events_of(surface, run_id)
        received = await read_until(slow, b": stream closed")
        assert restless == steady
        assert received.count(b"\nid: ") == len(steady)
        await slow.aclose()


async def test_18_an_approval_takes_each_choice_once_and_nothing_else() -> None:
    for choice in ("once", "session", "always", "deny", "APPROVE"):
        async with http_surface(say("", calls=[call("ask")]), say("went on")) as surface:
            run_id = await start(surface)
            await surface.until(lambda: any(run.open_questions("approval") for run in surface.live_runs()))
            path = f"/v1/runs/{run_id}/approval"
            assert (await surface.post(path, {"choice": "perhaps"})).json()["error"][
                "code"
            ] == "invalid_approval_choice"
            wrong = await surface.post(path, {"choice": choice, "request_id": "nobody"})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "approval_not_pending")
            status = (await surface.get(f"/v1/runs/{run_id}")).json()
            assert status["status"] == "waiting_for_approval"
            named = {"choice": choice, "request_id": status["approval"]["request_id"]}
            assert (await surface.post(path, named)).json()["resolved"] == 1
            assert (await surface.post(path, named)).status_code == 409
            assert (await surface.ended(run_id))["output"] == "went on"


async def test_19_while_draining_turns_are_refused_and_control_works() -> None:
    async with http_surface(hang()) as surface:
        run_id = await start(surface)
        await surface.post("/api/sessions", {"id": "s1"})
        surface.tree.draining.set()
        for path, body in [
            *STREAMS.values(),
            ("/v1/runs", {"input": "x"}),
            ("/api/sessions/s1/chat", {"message": "x"}),
        ]:
            refused = await surface.post(path, body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining"), path
            assert refused.headers["retry-after"] == "1"
        assert (await surface.get("/health")).status_code == 200
        assert (await surface.post(f"/v1/runs/{run_id}/stop")).json()["status"] == "stopping"
        assert (await surface.ended(run_id))["status"] == "cancelled"


@pytest.mark.e2e
async def test_20_a_dead_saved_endpoint_slows_no_menu_and_a_refresh_asks_it(tmp_path: Path) -> None:
    async with FakeProvider(Script(models=["other-model"])) as other:
        config = {
            "providers": {
                "dead": {"base_url": "http://127.0.0.1:9/v1", "models": ["ghost"]},
                "other": {"base_url": other.base_url, "models": ["listed"]},
            }
        }
        async with served(tmp_path / "home", Script(), config=config) as run:
            headers = {"Authorization": f"Bearer {run.server.key}"}
            async with httpx2.AsyncClient(base_url=run.server.origin, headers=headers, timeout=30) as client:
                began = time.monotonic()
                menu = (await client.get("/api/model/options")).json()
                assert time.monotonic() - began < 10
                rows = {row["slug"]: row for row in menu["providers"]}
                assert rows["custom:dead"]["models"] == ["ghost"]
                assert "other-model" not in rows["custom:other"]["models"]
                fresh = (await client.get("/api/model/options?refresh=1")).json()
                assert "other-model" in {m for row in fresh["providers"] for m in row["models"]}
                assert {row["slug"] for row in fresh["providers"]} == set(rows)


async def test_21_a_command_goes_to_its_own_conversations_browser_and_survives_a_reconnect() -> None:
    replies = (say("", calls=[call("browser_navigate", url="https://docs.example/")]), say("done"))
    async with http_surface(*replies, settings=ON) as surface:
        for key in ("s", "other"):
            await surface.post("/api/sessions", {"id": key})
        async with connected(surface, session_id="other", controller_id="ext-2") as stranger:
            async with connected(surface) as first:
                run_id = await start(surface, session_id="s")
                command = (await receive(first))["params"]
            async with connected(surface) as again:
                result = {"command_id": command["command_id"], "ok": True, "result": "there"}
                await send(again, "browser.controller.result", **result)
                assert (await surface.ended(run_id))["output"] == "done"
            with trio.move_on_after(0.1):
                raise AssertionError(f"the other conversation was told: {await stranger.get_message()!r}")
        lane_of_s = next(lane for lane in surface.surface.api.browsers._controllers if lane.session_id == "s")
        with pytest.raises(BrowserFailure, match="unavailable"):
            await surface.surface.api.browsers.dispatch(lane_of_s, "browser_navigate", {}, "c2")
        ticket = await register(surface)
        assert surface.surface.api.browsers.redeem(ticket) is not None
        assert surface.surface.api.browsers.redeem(ticket) is None


async def test_22_another_principal_finds_nothing_under_any_id() -> None:
    async with http_surface(say("x"), say("y"), hang(), settings=ON) as surface:
        await surface.post("/api/sessions", {"id": "s"})
        response = (await surface.post("/v1/responses", {"input": "x"})).json()["id"]
        ended = await start(surface)
        await surface.ended(ended)
        live = await start(surface)
        upload = {"Content_Type": "text/plain", "X_Artifact_Filename": "a.txt"}
        artifact = (await surface.post("/v1/artifacts/upload", b"x", **upload)).json()["artifact_id"]
        surface.surface.api.principal = "principal:default:somebody-else"
        paths = [("GET", f"/v1/runs/{run}{rest}") for run in (ended, live) for rest in ("", "/events")]
        paths += [("POST", f"/v1/runs/{live}/{verb}") for verb in ("stop", "steer", "approval", "clarify")]
        paths += [("GET", f"/v1/responses/{response}"), ("DELETE", f"/v1/responses/{response}")]
        paths += [("GET", "/api/sessions/s"), ("GET", "/api/sessions/s/messages"), ("DELETE", "/api/sessions/s")]
        paths += [("POST", "/api/sessions/s/chat"), ("POST", "/api/sessions/s/chat/stream")]
        for method, path in paths:
            body: dict[str, Any] = {"text": "x", "choice": "deny", "message": "x", "answers": {}}
            answer = await surface.client.request(method, path, json=body)
            assert answer.status_code == 404, (method, path, answer.text)
        taken = await surface.get(f"/v1/artifacts/download/{artifact}")
        assert (taken.status_code, taken.json()["error"]["code"]) == (400, "artifact_rejected")
        assert (
            await surface.post("/v1/responses", {"input": "x", "previous_response_id": response})
        ).status_code == 404


def test_every_point_of_the_list_is_here() -> None:
    numbers = {
        int(part) for name in globals() if name.startswith("test_") for part in name.split("_") if part.isdigit()
    }
    assert set(range(1, 23)) <= numbers
