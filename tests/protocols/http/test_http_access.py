"""Who is heard: keys, origins, limits, and the form of every refusal."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.messages import Prompt
from hermes.outcomes import CancelReason, Cause
from hermes.protocols.http.body_guard import SECURITY_HEADERS
from hermes.protocols.http.metrics import GAUGES
from hermes.protocols.http.routes import ROUTES
from hermes.settings import Settings
from tests.support.core import call, hang, say
from tests.support.http_surface import KEY, http_surface
from tests.support.raw_http import read_until

ENVELOPE = {"message", "type", "param", "code"}
POSTS = [route.path for route in ROUTES if route.method == "POST"]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "Bearer wrong-key-of-some-length",
        "Bearer",
        f"Basic {KEY}",
        KEY,
        "Bearer kéy".encode("latin-1"),
        b"Bearer \xff",
    ],
)
async def test_without_the_key_the_answer_is_always_the_same(authorization: Any) -> None:
    async with http_surface() as surface:
        headers = {} if authorization is None else {"Authorization": authorization}
        answer = await surface.client.get("/v1/models", headers={"Authorization": "", **headers})
        assert answer.status_code == 401
        assert answer.json()["error"] == {
            "message": "a valid key is required",
            "type": "gateway_auth_error",
            "param": None,
            "code": "gateway_auth_failed",
        }
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("authorization", [f"bearer {KEY}", f"Bearer   {KEY}", f"BEARER {KEY}"])
async def test_the_scheme_may_have_any_case_and_blanks(authorization: str) -> None:
    async with http_surface() as surface:
        answer = await surface.client.get("/v1/models", headers={"Authorization": authorization})
        assert answer.status_code == 200


async def test_the_key_is_taken_from_nowhere_else() -> None:
    async with http_surface() as surface:
        headers = {"Authorization": "", "X-API-Key": KEY, "Cookie": f"key={KEY}"}
        assert (await surface.client.get(f"/v1/models?token={KEY}&key={KEY}", headers=headers)).status_code == 401


async def test_every_route_but_health_and_pages_needs_the_key() -> None:
    settings = Settings.model_validate({"browser": {"extension_control": {"enabled": True}}})
    async with http_surface(settings=settings) as surface:
        for route in ROUTES:
            path = route.path.replace("{", "").replace("}", "")
            answer = await surface.client.request(route.method, path, headers={"Authorization": ""}, content=b"")
            assert (answer.status_code == 401) is not route.public, route


async def test_a_refusal_is_audited_without_the_token(caplog: pytest.LogCaptureFixture) -> None:
    async with http_surface() as surface:
        with caplog.at_level(logging.WARNING, "hermes.protocols.http.access"):
            await surface.client.get(
                "/v1/models", headers={"Authorization": "Bearer sesame-open", "User-Agent": "probe"}
            )
        (record,) = [r for r in caplog.records if "valid key" in r.getMessage()]
        assert "/v1/models" in record.getMessage() and "probe" in record.getMessage()
        assert "sesame" not in record.getMessage()


# --- origins ---------------------------------------------------------------------------------------------------------


@pytest.mark.fault("B-167")
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_an_unlisted_origin_is_refused_before_the_key(path: str, origin: str) -> None:
    async with http_surface() as surface:
        answer = await surface.client.get(path, headers={"Origin": origin, "Authorization": ""})
        assert (answer.status_code, answer.content) == (403, b"")
        assert "access-control-allow-origin" not in answer.headers


async def test_the_servers_own_origin_counts_as_none() -> None:
    async with http_surface() as surface:
        assert (await surface.get("/v1/models", Origin=surface.url)).status_code == 200


async def test_a_rebound_name_is_not_the_servers_own() -> None:
    async with http_surface() as surface:
        headers = {"Host": f"evil.example:{surface.port}", "Origin": f"http://evil.example:{surface.port}"}
        assert (await surface.client.get("/v1/models", headers=headers)).status_code == 403


async def test_a_listed_origin_gets_its_headers_on_json_streams_and_refusals() -> None:
    settings = Settings.model_validate({"gateway": {"api_server": {"cors_origins": ["https://ui.example"]}}})
    async with http_surface(say("x"), settings=settings) as surface:
        origin = {"Origin": "https://ui.example"}
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        answers = [
            await surface.get("/v1/models", **origin),
            await surface.post("/v1/chat/completions", body, **origin),
            await surface.client.get("/v1/models", headers={**origin, "Authorization": ""}),
            await surface.get("/nowhere", **origin),
        ]
        for answer in answers:
            assert answer.headers["access-control-allow-origin"] == "https://ui.example"
            assert answer.headers["vary"] == "Origin"
            assert "X-Hermes-Session-Id" in answer.headers["access-control-expose-headers"]
        preflight = await surface.client.options("/v1/models", headers={**origin, "Authorization": ""})
        assert (preflight.status_code, preflight.content) == (200, b"")
        assert "PATCH" in preflight.headers["access-control-allow-methods"]
        assert (await surface.client.options("/v1/models")).status_code == 403


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_too_large_either_way(chunked: bool) -> None:
    async def pieces() -> Any:
        for _ in range(101):
            yield b"x" * 100_000

    async with http_surface() as surface:
        content = pieces() if chunked else b"x" * 10_000_001
        answer = await surface.client.post("/v1/chat/completions", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("body", [b"[1]", b'"x"', b"3", b"null", b"{", b"", b"\xff"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/runs", "/api/sessions/s/chat"])
async def test_a_body_that_is_no_object_is_refused_with_the_envelope(path: str, body: bytes) -> None:
    async with http_surface() as surface:
        await surface.post("/api/sessions", {"id": "s"})
        answer = await surface.post(path, body)
        assert answer.status_code == 400
        assert set(answer.json()["error"]) == ENVELOPE
        assert answer.json()["error"]["code"] in ("invalid_json", "invalid_request")


async def test_json_is_taken_whatever_its_content_type_says() -> None:
    async with http_surface(say("x")) as surface:
        body = {"messages": [{"role": "user", "content": "x"}]}
        assert (await surface.post("/v1/chat/completions", body, Content_Type="text/plain")).status_code == 200


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_security_headers_are_on_every_answer() -> None:
    async with http_surface(say("x")) as surface:
        body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
        answers = [
            await surface.get("/health"),
            await surface.post("/v1/chat/completions", body),
            await surface.get("/nowhere"),
            await surface.client.put("/v1/models"),
            await surface.client.get("/v1/models", headers={"Authorization": ""}),
        ]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/models/", 404, "not_found"),
        ("GET", "/chat/completions", 404, "not_found"),
        ("DELETE", "/v1/runs", 405, "method_not_allowed"),
        ("PUT", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/embeddings", 404, "endpoint_not_supported"),
        ("GET", "/v1/models/gpt-99", 404, "model_not_found"),
        ("GET", "/p/other/v1/models", 404, "not_found"),
    ],
)
async def test_what_is_not_served_is_said_in_json(method: str, path: str, status: int, code: str) -> None:
    async with http_surface() as surface:
        answer = await surface.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()["error"]) == ENVELOPE


async def test_the_served_profile_may_be_named_in_the_path() -> None:
    async with http_surface() as surface:
        assert (await surface.get("/p/default/v1/models")).status_code == 200


async def test_health_needs_no_key_and_head_is_answered() -> None:
    async with http_surface() as surface:
        for path in ("/health", "/v1/health"):
            answer = await surface.client.get(path, headers={"Authorization": ""})
            assert answer.json() == {"status": "ok", "platform": "hermes-agent", "version": "1.2.3"}
            assert (await surface.client.head(path, headers={"Authorization": ""})).status_code == 200


async def test_a_crash_of_a_handler_is_a_500_with_the_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_surface() as surface:

        def broken() -> Any:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(surface.surface.api.runs, "admit", broken)
        answer = await surface.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"
        assert "secret detail" not in answer.text


async def test_capabilities_name_only_what_is_served() -> None:
    async with http_surface() as surface:
        body = (await surface.get("/v1/capabilities")).json()
        served = {(route.method, route.path) for route in ROUTES}
        assert body["endpoints"].pop("browser_control_ws")["path"] in surface.surface.websockets
        for endpoint in body["endpoints"].values():
            assert (endpoint["method"], endpoint["path"]) in served
        assert body["features"]["run_events_replay"]["durable"] is True
        assert body["features"]["jobs_admin"] is False


async def test_detailed_health_and_metrics_show_the_turns() -> None:
    async with http_surface(say("x")) as surface:
        await surface.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
        await surface.until(lambda: surface.surface.api.runs.active == 0)
        body = (await surface.get("/health/detailed")).json()
        assert (body["status"], body["gateway_state"]) == ("ok", "running")
        assert body["metrics_today"]["messages"] == 1
        text = (await surface.get("/metrics")).text
        assert 'hermes_turns_ended_total{cause="",status="completed"} 1.0' in text


async def test_the_metrics_say_what_the_server_has_at_hand_whoever_asked_for_it() -> None:
    async with http_surface(say("", calls=[call("nap", seconds=3600)])) as surface:
        session = surface.tree.registry.create(source="test", cwd="/")
        turn = await session.submit_nowait(Prompt("x")).wait_turn()
        assert turn is not None
        await surface.until(lambda: turn.in_tools)
        found = samples((await surface.get("/metrics")).text)
        assert found["hermes_turns_running"] == found["hermes_sessions"] == 1
        assert found["hermes_open_questions"] == found["hermes_processes"] == found["hermes_active_runs"] == 0
        assert found["hermes_connections"] >= 1
        assert found["hermes_tree_nodes"] > 3
        assert 0 < found["hermes_loop_longest_round_seconds"] <= found["hermes_loop_busy_seconds"]
        turn.cancel(CancelReason(Cause.USER_INTERRUPT))
        await turn.wait_ended()
        found = samples((await surface.get("/metrics")).text)
        assert found['hermes_turns_ended_total{cause="user_interrupt",status="cancelled"}'] == 1
        assert found["hermes_turns_running"] == 0
        assert {name for name in GAUGES if name not in found} == set()


def samples(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_the_live_tree_is_shown_and_one_node_of_it_cancelled() -> None:
    async with http_surface(say("", calls=[call("nap", seconds=3600)]), say("went on")) as surface:
        run_id = (await surface.post("/v1/runs", {"input": "x"})).json()["run_id"]
        await surface.until(lambda: surface.live_runs()[0].last_event == "tool.started")

        def nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
            return [node, *(found for child in node["children"] for found in nodes(child))]

        tree = (await surface.get("/v1/tree")).json()["tree"]
        tool = next(node for node in nodes(tree) if node["kind"] == "tool_call")
        answer = await surface.client.delete(f"/v1/tree/{tool['node_id']}?reason=no")
        assert answer.json()["cancelled"] is True
        assert (await surface.ended(run_id))["output"] == "went on"
        assert (await surface.client.delete("/v1/tree/n999")).status_code == 404


@pytest.mark.fault("B-098")
async def test_the_tree_can_be_watched() -> None:
    async with http_surface(hang()) as surface:
        stream = await surface.raw("GET", "/v1/tree?stream=1")
        first = await read_until(stream, b'"version"')
        assert b"event: tree" in first and b'"turn"' not in first
        await surface.post("/v1/runs", {"input": "x"})
        rest = await read_until(stream, b'"kind":"turn"')
        whole = (first + rest).replace(b"\r\n", b"\n")
        assert b"retry: " in whole
        # Each snapshot has its version as its id, so a browser knows what it saw last.
        ids = [int(line[4:]) for line in whole.split(b"\n") if line.startswith(b"id: ")]
        assert len(ids) == whole.count(b"event: tree") and ids == sorted(set(ids))
        stream.socket.close()


async def test_a_ticket_for_the_gateways_socket_is_minted_with_the_key_only() -> None:
    async with http_surface() as surface:
        assert (await surface.post("/api/auth/ws-ticket")).status_code == 404
        surface.surface.api.mint_ticket = lambda: "t-1"
        assert (await surface.post("/api/auth/ws-ticket")).json() == {"ticket": "t-1", "ttl_seconds": 30}
        refused = await surface.client.post("/api/auth/ws-ticket", headers={"Authorization": ""})
        assert refused.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", {"messages": [{"role": {}, "content": "hi"}]}, 400),
        ("POST", "/v1/responses", {"input": [{"role": [], "content": "hi"}]}, 200),
        ("POST", "/api/sessions", {"provider": {}}, 400),
        ("POST", "/api/sessions", {"model": [1]}, 400),
        ("GET", "/api/sessions?limit=\u00b2&offset=" + "9" * 5000, None, 200),
        ("GET", "/api/sessions/s/messages?limit=\u00b2", None, 400),
        ("GET", "/v1/runs/none/events?after=" + "9" * 4000, None, 404),
    ],
)
async def test_values_of_a_strange_kind_are_refused_or_ignored(method: str, path: str, body: Any, status: int) -> None:
    async with http_surface(say("x")) as surface:
        await surface.post("/api/sessions", {"id": "s"})
        answer = await surface.client.request(method, path, content=None if body is None else json.dumps(body))
        assert answer.status_code == status, answer.text


async def test_tools_and_skills_are_listed_although_nobody_talks_yet(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "writing" / "letters"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: letters\ndescription: Write letters.\n---\nDear ...")
    async with http_surface() as surface:
        object.__setattr__(surface.tree.services, "home", tmp_path)
        toolsets = (await surface.get("/v1/toolsets")).json()
        assert {tool for row in toolsets["data"] for tool in row["tools"]} >= {"nap", "ask"}
        await surface.until(lambda: not surface.tree.registry.live())
        skills = (await surface.get("/v1/skills")).json()
        (letters,) = [one for one in skills["data"] if one["name"] == "letters"]
        assert (letters["description"], letters["category"]) == ("Write letters.", "writing")
        assert skills["object"] == "list" and (await surface.get("/v1/capabilities")).json()["features"]["skills_api"]


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"1;" + b"a" * 200_000], ids=["no number", "too long"])
async def test_a_body_that_breaks_the_protocol_is_refused_with_the_same_headers(chunk: bytes) -> None:
    async with http_surface() as surface:
        stream = await trio.open_tcp_stream("127.0.0.1", surface.port)
        head = f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
        await stream.send_all(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk)
        answer = b""
        while piece := await stream.receive_some():
            answer += piece
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        for name, value in SECURITY_HEADERS:
            assert answer.count(b"\r\n%s: %s\r\n" % (name, value)) == 1
        await stream.aclose()
