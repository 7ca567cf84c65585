"""The protocol's worked transcripts, byte for byte but for ids and times: the bytes on the wire against kept files.

Each file holds what the server wrote, in order, with ids and times replaced by names; ``C`` lines are the client's.
``python -m tests.protocols.gateway.test_gateway_golden`` writes them anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from hermes import __version__
from hermes.agent.ports import ToolContext
from hermes.agent.tools.clarify import Clarify
from hermes.messages import Answered, Question
from tests.support.core import PlainTool, call, hang, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected, gateway_server
from tests.support.tool_context import make_services as tool_services

FOLDER = Path(__file__).parent / "transcripts"
REPLACED = (
    (r'"(started_at|turn_started_at|timestamp|duration_s|last_active)":[0-9.]+', r'"\1":<time>'),
    (r'"node_id":"[^"]*"', '"node_id":"<node>"'),
    (rf'"version":"{re.escape(__version__)}"', '"version":"<version>"'),
)
APPROVAL = Question(
    "approval",
    {
        "command": "rm -rf build",
        "description": "recursive delete",
        "pattern_key": "recursive delete",
        "pattern_keys": ["recursive delete"],
        "choices": ["once", "session", "always", "deny"],
        "allow_permanent": True,
        "allow_session": True,
    },
    choices=("once", "session", "always", "deny"),
    timeout=300,
)
WHICH = {"questions": [{"question": "Which?", "choices": ["red", "blue"]}]}


async def _terminal(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    answer = await ctx.ask(APPROVAL)
    if not isinstance(answer, Answered) or answer.value != {"choice": "once"}:
        return json.dumps({"output": "", "exit_code": -1, "error": "BLOCKED: denied by the user"})
    return json.dumps({"output": "", "exit_code": 0, "error": None})


async def _secret(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    question = {"env_var": "API_TOKEN", "prompt": "Token for the API", "metadata": {}}
    return repr(await ctx.ask(Question("secret", question, timeout=300)))


TOOLS = (PlainTool("terminal", _terminal), Clarify(tool_services(Path("."))), PlainTool("secret", _secret))


class Recorder:
    """The lines of one conversation, both directions, in the order in which they were written."""

    def __init__(self, host: GatewayHost) -> None:
        self.host = host
        self.lines: list[str] = []
        self._seen = 0

    def _heard(self) -> None:
        for raw in self.host.channel.raw[self._seen :]:
            text = raw.decode()
            for pattern, name in REPLACED:
                text = re.sub(pattern, name, text)
            self.lines.append(f"S {text}")
        self._seen = len(self.host.channel.raw)

    def say(self, frame: dict[str, Any]) -> None:
        self._heard()
        self.lines.append(f"C {json.dumps(frame, separators=(',', ':'))}")
        self.host.channel.say(frame)

    async def call(self, number: int, method: str, **params: Any) -> Any:
        frame = {"jsonrpc": "2.0", "id": f"r{number}", "method": method, "params": params}
        self.say(frame)
        try:
            return await self.host.answer(f"r{number}")
        except Refusal:
            return None

    async def to_the_end(self) -> str:
        """Everything, when the server has nothing more to say. That stored sessions changed is told whenever."""
        await trio.testing.wait_all_tasks_blocked(0.01)
        self._heard()
        told = [line for line in self.lines if '"type":"sessions.changed"' not in line]
        for line in [line for line in told if '"status":"streaming","user_row_id"' in line]:
            # It and message.start come in either order; here it stands behind its call.
            call_id = json.loads(line[2:])["id"]
            told.remove(line)
            place = next(n for n, one in enumerate(told) if one.startswith(f'C {{"jsonrpc":"2.0","id":"{call_id}"'))
            told.insert(place + 1, line)
        return "".join(f"{line}\n" for line in told)


async def ask_and_finish() -> str:
    services, _ = make_services(
        say("I will remove it.", calls=[call("terminal", "call_1", command="rm -rf build")]), say("Done."), tools=TOOLS
    )
    async with running_tree(services) as tree, connected(tree) as host:
        talk = Recorder(host)
        await talk.call(1, "client.capabilities", server_requests=True)
        session_id = (await talk.call(2, "session.create", cols=100, cwd="/tmp"))["session_id"]
        await host.event("session.info")
        await talk.call(3, "prompt.submit", session_id=session_id, text="clean the build folder")
        question = await host.question("approval")
        talk.say({"jsonrpc": "2.0", "id": question["id"], "result": {"choice": "once"}})
        await host.event("message.complete")
        return await talk.to_the_end()


async def interrupt_with_an_open_question() -> str:
    services, _ = make_services(say("", calls=[call("clarify", "call_4", **WHICH)]), tools=TOOLS)
    async with running_tree(services) as tree, connected(tree) as host:
        talk = Recorder(host)
        session_id = (await talk.call(1, "session.create", cwd="/tmp"))["session_id"]
        await host.event("session.info")
        await talk.call(2, "prompt.submit", session_id=session_id, text="which one?")
        await host.question("clarify")
        await talk.call(9, "session.interrupt", session_id=session_id)
        return await talk.to_the_end()


async def edit_while_working() -> str:
    services, _ = make_services(say("a"), hang(), say("tabs"))
    async with running_tree(services) as tree, connected(tree) as host:
        talk = Recorder(host)
        session_id = (await talk.call(1, "session.create", cwd="/tmp"))["session_id"]
        await host.event("session.info")
        await talk.call(2, "prompt.submit", session_id=session_id, text="first")
        await host.event("message.complete")
        await host.event("session.info")
        await talk.call(3, "prompt.submit", session_id=session_id, text="use spaces")
        await host.event("message.start")
        edit = {"session_id": session_id, "text": "use tabs", "truncate_before_row_id": 3, "confirm_truncate": True}
        await talk.call(20, "prompt.submit", **edit)
        await talk.call(21, "session.interrupt", session_id=session_id)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await talk.call(22, "prompt.submit", **edit)
        await host.event("message.complete")
        return await talk.to_the_end()


async def older_dialect() -> str:
    services, _ = make_services(
        say("", calls=[call("clarify", "call_1", **WHICH)]),
        say("", calls=[call("terminal", "call_2", command="rm -rf build")]),
        say("", calls=[call("secret", "call_3")]),
        say("Done."),
        tools=TOOLS,
    )
    async with running_tree(services) as tree, connected(tree, websocket=True) as host:
        talk = Recorder(host)
        await talk.call(1, "client.capabilities", server_requests=False, legacy_requests=True)
        session_id = (await talk.call(2, "session.create", cwd="/tmp"))["session_id"]
        await host.event("session.info")
        await talk.call(3, "prompt.submit", session_id=session_id, text="go")
        asked = await host.event("clarify.request")
        await talk.call(4, "clarify.respond", request_id=asked["payload"]["request_id"], answer="blue")
        await host.event("approval.request")
        await talk.call(5, "approval.respond", session_id=session_id, choice="deny")
        await host.event("secret.request")
        expired = await host.event("secret.expire")
        await host.event("message.complete")
        await trio.testing.wait_all_tasks_blocked(0.01)
        await talk.call(6, "secret.respond", request_id=expired["payload"]["request_id"], value="late")
        return await talk.to_the_end()


async def reconnect_with_replay() -> str:
    services, _ = make_services(
        say("Before I deploy", calls=[call("terminal", "call_1", command="rm -rf build")]), say("Done."), tools=TOOLS
    )
    async with running_tree(services) as tree:
        server = gateway_server(tree)
        async with connected(tree, websocket=True, name="ws1", server=server) as first:
            await first.call("client.capabilities", server_requests=True)
            session_id = (await first.call("session.create", cwd="/tmp"))["session_id"]
            await first.call("prompt.submit", session_id=session_id, text="deploy")
            seen = (await first.event("message.start"))["seq"]
            await first.question("approval")
        await trio.sleep(1)
        async with connected(tree, websocket=True, name="ws2", server=server) as host:
            talk = Recorder(host)
            await talk.call(1, "client.capabilities", server_requests=True)
            await talk.call(2, "session.activate", session_id=session_id, omit_messages=True)
            missed = await talk.call(3, "session.events.since", session_id=session_id, last_seen=seen)
            talk.say({"jsonrpc": "2.0", "id": missed["open_requests"][0]["id"], "result": {"choice": "deny"}})
            await host.event("message.complete")
            return await talk.to_the_end()


STORIES: Mapping[str, Callable[[], Awaitable[str]]] = {
    "13.1-ask-and-finish": ask_and_finish,
    "13.2-interrupt-with-an-open-question": interrupt_with_an_open_question,
    "13.3-edit-while-working": edit_while_working,
    "13.4-older-dialect": older_dialect,
    "13.5-reconnect-with-replay": reconnect_with_replay,
}


@pytest.mark.parametrize("name", STORIES)
async def test_the_conversation_is_the_kept_one(autojump_clock: Any, name: str) -> None:
    made = await STORIES[name]()
    assert made.splitlines() == (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in sys.argv[1:] or STORIES:
        text = trio.run(STORIES[one], clock=trio.testing.MockClock(autojump_threshold=0))
        (FOLDER / f"{one}.txt").write_text(text, encoding="utf-8")
