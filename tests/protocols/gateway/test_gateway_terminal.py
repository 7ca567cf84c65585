"""terminal.resize reaches the terminals of the session's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports_tools import ProcessRequest, ToolContext
from hermes.errors import Unsupported
from hermes.nurseries.pty_process import under_terminal
from tests.support.core import PlainTool, call, make_services, running_tree, say
from tests.support.gateway_host import GatewayHost, Refusal, connected

SCRIPT = 'trap "stty size; exit 0" WINCH; stty size; while :; do sleep 0.02; done'


async def shown(host: GatewayHost, wanted: str) -> None:
    text = ""
    while wanted not in text:
        text += (await host.event("agent.terminal.output"))["payload"]["chunk"]


async def test_a_program_in_a_terminal_is_told_its_new_size(tmp_path: Path) -> None:
    try:
        under_terminal(("true",))
    except Unsupported as error:
        pytest.skip(str(error))
    services, _ = make_services(home=tmp_path)
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create", cwd=str(tmp_path)))["session_id"]
        session = tree.registry.get(session_id)
        request = ProcessRequest(
            ("/bin/sh", "-c", SCRIPT), str(tmp_path), {"PATH": os.environ["PATH"]}, pty=True, columns=80, rows=24
        )
        await session.processes.start(request, command="watch", notify=False, turn_id="t")
        await shown(host, "24 80")
        assert await host.call("terminal.resize", session_id=session_id, cols=101, rows=33) == {"cols": 101}
        await shown(host, "33 101")
        await host.event("terminal.close")


async def test_a_program_that_is_waited_for_is_told_too_and_the_next_begins_with_that_size(
    tmp_path: Path,
) -> None:
    try:
        under_terminal(("true",))
    except Unsupported as error:
        pytest.skip(str(error))

    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        script = str(arguments["script"])
        request = ProcessRequest(("/bin/sh", "-c", script), str(tmp_path), {"PATH": os.environ["PATH"]}, pty=True)
        outcome = await ctx.run_process(request, lambda chunk: ctx.progress(chunk.decode()))
        return outcome.output.decode()

    answers = [say(calls=[call("run", script=script)]) for script in (SCRIPT, "stty size")]
    services, _ = make_services(*answers, say("Done."), home=tmp_path, tools=[PlainTool("run", run)])
    async with running_tree(services) as tree, connected(tree) as host:
        await host.call("client.capabilities", server_requests=True, tool_progress=True)
        session_id = (await host.call("session.create", cwd=str(tmp_path)))["session_id"]
        await host.call("prompt.submit", session_id=session_id, text="go")
        with trio.fail_after(30):
            while "24 80" not in (await host.event("tool.progress"))["payload"]["preview"]:
                pass
            await host.call("terminal.resize", session_id=session_id, cols=101, rows=33)
            first, second = [(await host.event("tool.complete"))["payload"]["result"] for _ in range(2)]
        assert first.split() == ["24", "80", "33", "101"] and second.split() == ["33", "101"]


async def test_a_size_that_is_none_is_refused() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for cols in (0, -1, "wide"):
            with pytest.raises(Refusal) as refused:
                await host.call("terminal.resize", session_id=session_id, cols=cols)
            assert refused.value.code == -32000
        assert await host.call("terminal.resize", session_id=session_id) == {"cols": 80}


async def test_a_window_that_no_terminal_has_is_taken_as_the_largest() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create", cols=10**6))["session_id"]
        assert await host.call("terminal.resize", session_id=session_id, rows=40) == {"cols": 10_000}
        await host.call("session.activate", session_id=session_id, cols=-5)
        assert await host.call("terminal.resize", session_id=session_id) == {"cols": 1}
