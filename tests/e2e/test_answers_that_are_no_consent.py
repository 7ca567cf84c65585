"""Only consent runs a command: whatever else a client says to a question, the real process leaves the files alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import AcpDriver, Driver, GatewayDriver, RunDriver, driving

pytestmark = pytest.mark.e2e

LIMIT = 120
COMMAND = "rm -rf build"
NO_CONSENT: tuple[Any, ...] = (
    {"choice": "approve"},
    {"choice": "yes"},
    {"choice": "ONCE"},
    {"choice": "once "},
    {"choice": True},
    {"choice": ["once"]},
    {"choice": {"once": True}},
    {"choice": None},
    {"chosen": "once"},
    {},
    [],
    ["once"],
    "once",
    1,
    None,
)
NO_PERMISSION: tuple[Any, ...] = (
    {"outcome": {"outcome": "selected", "optionId": "allow"}},
    {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
    {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": "chosen", "optionId": "allow_once"}},
    {"outcome": {"optionId": "allow_once"}},
    {"outcome": {"outcome": "cancelled", "optionId": "allow_once"}},
    {"outcome": "allow_once"},
    {"optionId": "allow_once"},
    {},
    [],
    "allow_once",
    None,
)


@asynccontextmanager
async def asking(surface: str, tmp_path: Path) -> AsyncIterator[tuple[Driver, Path]]:
    """A server whose every turn wants to delete ``build``; it is still there at the end."""
    home = tmp_path / "home"
    build = home / "build"
    build.mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    call = {"tool_call": {"name": "terminal", "arguments": {"command": f"cd {home}; {COMMAND}"}}}
    replies = (Reply.of(call, when={"last_role": "user"}), Reply.of({"text": "I see"}, when={"last_role": "tool"}))
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving(surface, home, environ) as driver:
                yield driver, build
                assert build.is_dir(), "the command was run"


async def gateway_question(driver: GatewayDriver, at: int) -> dict[str, Any]:
    return await driver.find(lambda frame: frame.get("method") == "approval", at)


async def test_no_word_but_an_offered_one_is_consent_at_the_gateway(tmp_path: Path) -> None:
    errors: list[dict[str, Any]] = [{"error": {"code": code, "message": "no"}} for code in (-32601, 4404, 1)]
    answers = [{"result": result} for result in NO_CONSENT] + errors
    async with asking("gateway stdio", tmp_path) as (driver, build):
        assert isinstance(driver, GatewayDriver)
        for answer in answers:
            at = len(driver.frames)
            await driver.start("please")
            question = await gateway_question(driver, at)
            await driver.send({"jsonrpc": "2.0", "id": question["id"], **answer})
            # And a second thought, which comes too late.
            await driver.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
            await driver.terminal()
            result = (await driver.event("tool.complete", at))["params"]["payload"]["result"]
            assert "BLOCKED" in json.dumps(result), answer
            assert build.is_dir(), answer


async def test_methods_refuse_what_was_not_offered_and_leave_the_question_open(tmp_path: Path) -> None:
    async with asking("gateway stdio", tmp_path) as (driver, build):
        assert isinstance(driver, GatewayDriver)
        await driver.start("please")
        question = await gateway_question(driver, 0)
        session = {"session_id": driver.session_id}
        for choice in ("approve", "yes", "", None, True, ["once"], {"once": 1}):
            refused = await driver.request("approval.respond", {**session, "choice": choice})
            assert "error" in refused or refused["result"] == {"resolved": 0}, choice
        for body in ({"id": "srq-none", "result": {"choice": "once"}}, {"id": 7, "result": {"choice": "once"}}):
            answer = await driver.request("request.answer", body)
            assert answer.get("result") == {"status": "expired"} or "error" in answer, body
        pending = (await driver.call("approval.pending", session))["approvals"]
        assert [one["request_id"] for one in pending] == [question["params"]["request_id"]]
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        # Late answers, by every way.
        await driver.send({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
        late = await driver.request("request.answer", {"id": question["id"], "result": {"choice": "once"}})
        assert late["result"] == {"status": "expired"}
        named = {**session, "choice": "once", "request_id": question["params"]["request_id"]}
        refused = await driver.request("approval.respond", named)
        assert "error" in refused or refused["result"] == {"resolved": 0}
        assert build.is_dir()


async def test_no_outcome_but_an_offered_option_is_permission_for_an_editor(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = [{"result": result} for result in NO_PERMISSION]
    answers.append({"error": {"code": -32601, "message": "no"}})
    async with asking("acp", tmp_path) as (driver, build):
        assert isinstance(driver, AcpDriver)
        for answer in [*answers, None]:
            at = len(driver.server.frames)
            await driver.start("please")
            question = await driver.server.frame(
                lambda frame: frame.get("method") == "session/request_permission", after=at
            )
            allow = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            if answer is None:
                await driver.stop()
            else:
                await driver.server.send({"jsonrpc": "2.0", "id": question["id"], **answer})
            await driver.terminal()
            await driver.server.send({"jsonrpc": "2.0", "id": question["id"], "result": allow})
            assert build.is_dir(), answer


async def test_no_body_but_a_known_choice_is_consent_for_a_run(tmp_path: Path) -> None:
    async with asking("http run", tmp_path) as (driver, build):
        assert isinstance(driver, RunDriver)
        await driver.start("please")
        await driver.wait_for_question()
        path = f"/v1/runs/{driver.run_id}/approval"
        # This route reads words generously: "ONCE", "approve" and blanks around a word are in its contract.
        generous = ({"choice": "approve"}, {"choice": "ONCE"}, {"choice": "once "})
        for body in (*NO_CONSENT, {"choice": "once", "request_id": "another"}):
            if body in generous:
                continue
            answer = await driver.client.post(path, json=body)
            assert 400 <= answer.status_code < 500, (body, answer.text)
            assert (await driver.status())["status"] == "waiting_for_approval", body
        answer = await driver.client.post(path, content=b"choice=once")
        assert answer.status_code in (400, 415), answer.text
        await driver.stop()
        assert (await driver.terminal())["status"] == "interrupted"
        late: httpx2.Response = await driver.client.post(path, json={"choice": "once"})
        assert late.status_code == 409, late.text
        assert build.is_dir()


async def test_a_stop_of_one_session_leaves_the_question_of_another_open_and_answerable(tmp_path: Path) -> None:
    async with asking("gateway stdio", tmp_path) as (driver, _):
        assert isinstance(driver, GatewayDriver)
        await driver.start("please")
        first, first_session = await gateway_question(driver, 0), driver.session_id
        driver.session_id = ""
        at = len(driver.frames)
        await driver.start("please")
        second, second_session = await gateway_question(driver, at), driver.session_id
        assert first["id"] != second["id"]
        await driver.call("session.interrupt", {"session_id": first_session})
        snapshot = await driver.call("session.activate", {"session_id": second_session})
        assert [one["id"] for one in snapshot["open_requests"]] == [second["id"]]
        cancelled = [one for one in driver.frames if one.get("params", {}).get("type") == "request.cancel"]
        assert [one["params"]["payload"]["id"] for one in cancelled] == [first["id"]]
        # The answer to the one that is closed does not reach the other.
        await driver.send({"jsonrpc": "2.0", "id": first["id"], "result": {"choice": "once"}})
        await driver.send({"jsonrpc": "2.0", "id": second["id"], "result": {"choice": "deny"}})
        end = await driver.find(
            lambda frame: (
                frame.get("params", {}).get("type") == "message.complete"
                and frame["params"]["session_id"] == second_session
            )
        )
        assert end["params"]["payload"]["status"] == "complete"
