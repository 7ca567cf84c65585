"""How long each kind of question waits for an answer, asked by the tool that asks it, and what it shows of secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.tools.base import BuiltinTool
from hermes.agent.tools.clarify import Clarify
from hermes.agent.tools.client_bridges import BRIDGES, ClientBridge
from hermes.agent.tools.connections import ManageConnections
from hermes.agent.tools.services import ConnectionTarget
from hermes.agent.tools.shell import Terminal
from hermes.agent.tools.stored_secrets import RequestSecret
from tests.support.core import call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, connected
from tests.support.tool_context import make_services as tool_services

KEY = "sk-ant-api03-abcdefghijklmnopqrst1234"


class Variables:
    def known(self) -> Mapping[str, str]:
        return {}

    def reserved(self, name: str) -> bool:
        return False

    async def store(self, changes: Mapping[str, str]) -> None:
        raise AssertionError("nobody has answered")


class Connections:
    def targets(self) -> list[ConnectionTarget]:
        return [ConnectionTarget("files", "mcp", "failed")]

    async def connect(self, name: str, within: float) -> str | None:
        raise AssertionError("nobody has agreed")


def tools_of(tmp_path: Path) -> dict[str, BuiltinTool]:
    services = tool_services(tmp_path, variables=Variables(), connections=Connections())
    bridges = [ClientBridge(services, bridge) for bridge in BRIDGES]
    plain = [kind(services) for kind in (Clarify, RequestSecret, ManageConnections, Terminal)]
    return {tool.spec.name: tool for tool in (*plain, *bridges)}


CASES: list[tuple[str, str, float, dict[str, Any]]] = [
    ("clarify", "clarify", 3600, {"question": "Which?"}),
    ("approval", "terminal", 300, {"command": "rm -rf build"}),
    ("secret", "request_secret", 300, {"env_var": "TOKEN", "prompt": "Token?"}),
    ("vault.code", "vault_code", 180, {}),
    ("vault.unlock_prompt", "vault_unlock", 120, {"backend": "pass"}),
    ("vault.save_login", "vault_save_login", 180, {"origin": "https://a.example", "site": "a"}),
    ("connection", "manage_connections", 300, {}),
    ("terminal.read", "terminal_read", 30, {}),
    ("window.read", "window_read", 30, {}),
    # Whoever never answered one of these is not waited for so long at the first time.
    ("preview.read", "preview_read", 10, {}),
    ("preview.act", "preview_act", 10, {"action": "click"}),
    ("tour", "tour", 10, {"action": "start"}),
]


async def asked(host: GatewayHost, method: str) -> dict[str, Any]:
    await host.call("client.capabilities", server_requests=True)
    session_id = (await host.call("session.create", source="desktop"))["session_id"]
    await host.call("prompt.submit", session_id=session_id, text="go")
    return await host.question(method)


def result_of(host: GatewayHost) -> str:
    frames = [frame for frame in host.frames if frame.get("params", {}).get("type") == "tool.complete"]
    return json.dumps(frames[-1]["params"]["payload"]["result"])


@pytest.mark.parametrize(("method", "tool", "limit", "arguments"), CASES, ids=[case[0] for case in CASES])
async def test_a_question_that_nobody_answers_ends_with_its_time_and_never_as_consent(
    method: str, tool: str, limit: float, arguments: dict[str, Any], tmp_path: Path, autojump_clock: Any
) -> None:
    made = tools_of(tmp_path)[tool]
    replies = say("", calls=[call(tool, **arguments)]), say("well")
    services, _ = make_services(*replies, home=tmp_path, tools=[made])
    async with running_tree(services) as tree, connected(tree) as host:
        question = await asked(host, method)
        await trio.sleep(limit - 1)
        assert "request.cancel" not in [frame.get("params", {}).get("type") for frame in host.frames]
        began = trio.current_time()
        late = (await host.event("request.cancel"))["payload"]
        assert trio.current_time() - began <= 1
        assert (late["id"], late["method"], late["reason"]) == (question["id"], method, "timeout")
        host.channel.say({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once", "value": "late"}})
        await host.event("message.complete")
        told = result_of(host)
        assert "late" not in told
        assert any(word in told for word in ("time", "timed_out", "deadline", "expired", "exit_code")), told
        assert (await host.call("session.activate", session_id=question["params"]["session_id"]))["open_requests"] == []


@pytest.mark.parametrize(
    ("method", "tool", "arguments", "hidden"),
    [
        ("clarify", "clarify", {"question": f"Use {KEY}?", "choices": [f"yes, {KEY}", "no"]}, True),
        ("approval", "terminal", {"command": f"rm -rf build; echo {KEY}"}, True),
        ("secret", "request_secret", {"env_var": "TOKEN", "prompt": f"As {KEY}"}, True),
        ("vault.code", "vault_code", {"hint": f"for {KEY}"}, True),
        ("connection", "manage_connections", {"reason": f"for {KEY}"}, True),
        ("tour", "tour", {"action": "show", "text": f"this is {KEY}"}, True),
        ("preview.act", "preview_act", {"action": "type", "text": KEY}, False),
    ],
)
async def test_a_question_shows_no_secret_but_what_is_to_be_typed(
    method: str, tool: str, arguments: dict[str, Any], hidden: bool, tmp_path: Path, autojump_clock: Any
) -> None:
    made = tools_of(tmp_path)[tool]
    services, _ = make_services(say("", calls=[call(tool, **arguments)]), say("well"), home=tmp_path, tools=[made])
    async with running_tree(services) as tree, connected(tree) as host:
        shown = json.dumps((await asked(host, method))["params"])
        assert (KEY in shown) is not hidden
        assert "sk-ant" in shown
