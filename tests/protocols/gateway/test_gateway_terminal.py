"""terminal.resize reaches the terminals of the session's processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.agent.ports_tools import ProcessRequest
from hermes.errors import Unsupported
from hermes.nurseries.pty_process import under_terminal
from tests.support.core import make_services, running_tree
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


async def test_a_size_that_is_none_is_refused() -> None:
    services, _ = make_services()
    async with running_tree(services) as tree, connected(tree) as host:
        session_id = (await host.call("session.create"))["session_id"]
        for cols in (0, -1, "wide"):
            with pytest.raises(Refusal) as refused:
                await host.call("terminal.resize", session_id=session_id, cols=cols)
            assert refused.value.code == -32000
        assert await host.call("terminal.resize", session_id=session_id) == {"cols": 80}
