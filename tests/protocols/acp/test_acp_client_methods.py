"""The client's own files and terminals, as its sessions see them."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.nurseries.session import Session
from hermes.protocols.acp import client_methods
from tests.support.acp import AcpClient, acp_client
from tests.support.core import PlainTool, call, make_services, say


def reading(seen: list[Any]) -> PlainTool:
    async def read(ctx: Any, arguments: Any) -> str:
        seen.append(await ctx.client_tool("fs/read_text_file", {"path": "/a.txt"}))
        return "read"

    return PlainTool("reader", read)


def live(client: AcpClient, session_id: str) -> Session:
    session = client.tree.registry.by_key(session_id)
    assert session is not None
    return session


async def test_only_what_the_client_announced_is_offered() -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        await client.hello(fs={"readTextFile": True})
        session = await client.new_session()
        assert set(live(client, session).client_tools) == {"fs/read_text_file"}
        await client.hello(terminal=True)
        session = await client.new_session()
        assert all(name.startswith("terminal/") for name in live(client, session).client_tools)


async def test_a_second_handshake_holds_for_the_sessions_that_are_open() -> None:
    services, _ = make_services()
    async with acp_client(services, hello=False) as client:
        await client.hello(terminal=True)
        session = await client.new_session()
        await client.hello(fs={"readTextFile": True})
        assert set(live(client, session).client_tools) == {"fs/read_text_file"}


async def test_a_tool_gets_what_the_client_answers() -> None:
    seen: list[Any] = []
    services, _ = make_services(say(calls=[call("reader")]), say("ok"), tools=[reading(seen)])
    async with acp_client(services, hello=False) as client:
        await client.hello(fs={"readTextFile": True})
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        asked = await client.asked("fs/read_text_file")
        assert asked["params"] == {"sessionId": session, "path": "/a.txt"}
        client.reply(asked, {"content": "unsaved"})
        await client.answer(request)
        assert seen == [{"content": "unsaved"}]


async def test_a_client_that_refuses_or_is_silent_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    offered, _ = client_methods.METHODS["fs/read_text_file"]
    monkeypatch.setattr(client_methods, "METHODS", {"fs/read_text_file": (offered, 0.5)})
    seen: list[Any] = []
    services, _ = make_services(
        say(calls=[call("reader", "c1")]),
        say("ok"),
        say(calls=[call("reader", "c2"), call("reader", "c3")]),
        say(calls=[call("reader", "c4")]),
        say("ok"),
        tools=[reading(seen)],
    )
    async with acp_client(services, hello=False) as client:
        await client.hello(fs={"readTextFile": True})
        session = await client.new_session()
        request = client.start_prompt(session, "hi")
        asked = await client.asked("fs/read_text_file")
        error = {"code": -32601, "message": "no"}
        client.send({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        await client.answer(request)
        start = len(client.frames)
        assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
        silent = await client.asked("fs/read_text_file", after=start)
        assert seen == [None] * 4
        cancelled = [f["params"]["requestId"] for f in client.frames if f.get("method") == "$/cancel_request"]
        # A call beside it may have asked already; afterwards nobody asks any more.
        assert silent["id"] in cancelled
        assert len(cancelled) <= 2
        assert "fs/read_text_file" not in live(client, session).client_tools


async def test_a_client_whose_terminals_do_not_answer_is_given_no_more_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("terminal/create", "terminal/output")
    offered, _ = client_methods.METHODS["terminal/output"]
    monkeypatch.setattr(client_methods, "METHODS", dict.fromkeys(names, (offered, 0.1)))

    async def ask(ctx: Any, arguments: Any) -> str:
        return str(await ctx.client_tool("terminal/output", {"terminalId": "t"}))

    services, _ = make_services(say(calls=[call("reader")]), say("ok"), tools=[PlainTool("reader", ask)])
    async with acp_client(services, hello=False) as client:
        await client.hello(terminal=True)
        session = await client.new_session()
        assert (await client.prompt(session, "hi"))["stopReason"] == "end_turn"
        assert live(client, session).client_tools == {}
