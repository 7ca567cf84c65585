"""The set of servers: what a session sees, reloads, servers that an editor brings along, HTTP."""

from __future__ import annotations

import contextlib
import functools
import gc
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.messages import Prompt
from hermes.nurseries import mcp_transport
from hermes.nurseries.mcp_config import McpServerConfig, revision
from hermes.nurseries.mcp_servers import (
    McpServers,
    Reloaded,
    editor_servers,
    needs_confirmation,
    publish_status,
    session_tools,
    tell_sessions,
    wait_session_ready,
)
from hermes.nurseries.mcp_transport import TransportHost
from hermes.nurseries.piped_process import open_piped
from hermes.nurseries.process_spec import ProcessSpec
from hermes.nurseries.server_tree import ServerTree
from hermes.nurseries.session_memory import SessionMemory
from hermes.outcomes import CancelReason, Cause
from tests.support.core import call, make_services, running_tree, say
from tests.support.mcp_rig import hostile, mcp_rig, specimen_http
from tests.support.process_probe import PATH, no_longer_subreaper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def names(tools: Any) -> list[str]:
    return [tool.spec.name for tool in tools]


def setting(config: McpServerConfig) -> dict[str, Mapping[str, Any]]:
    return {config.name: {"command": config.command, "args": list(config.args), "timeout": config.timeout}}


async def test_a_session_keeps_its_tools_once_they_are_fixed_until_a_reload(tmp_path: Path) -> None:
    config = hostile(tmp_path, "plain")
    async with mcp_rig(tmp_path) as rig:
        rig.servers.configure_from(setting(config))
        early, late = SessionMemory(cwd="/"), SessionMemory(cwd="/")
        with trio.fail_after(60):
            assert rig.servers.tools_for(early, fixed=False) == ()
            assert await rig.servers.wait_ready(50)
            assert rig.servers.tools_for(early, fixed=True) == ()
            first = rig.servers.tools_for(late, fixed=False)
            assert names(first) == ["mcp__x__echo", "mcp__x__mute", "mcp__x__die", "mcp__x__rename"]
            changed = trio.Event()
            rig.servers.on_change = changed.set
            await rig.call("rename")
            await changed.wait()
            assert rig.servers.tools_for(late, fixed=True) is first
            assert "mcp__x__renamed" in names(rig.servers.tools_for(SessionMemory(cwd="/"), fixed=True))
            await rig.servers.reload(lambda: setting(config))
            assert "mcp__x__renamed" in names(rig.servers.tools_for(late, fixed=True))
            assert "mcp__x__renamed" in names(rig.servers.tools_for(early, fixed=True))


async def test_a_cancel_of_all_servers_ends_them_and_the_next_call_brings_one_back(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
        with trio.fail_after(60):
            assert "first" in str(await rig.call("echo", {"text": "first"}))
            scope = rig.servers._scope
            assert scope is not None
            (running,) = scope.children
            assert scope.request_cancel(CancelReason(Cause.NODE_CANCEL)) is True
            while running in scope.children:
                await trio.sleep(0.01)
            assert "again" in str(await rig.call("echo", {"text": "again"}))


async def test_tools_of_a_server_that_has_died_stay_offered_and_bring_it_back(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure):
                await rig.call("die")
            while rig.servers.status()[0]["status"] != "failed":
                await trio.sleep(0.01)
            assert "mcp__x__echo" in names(rig.servers.tools())
            assert (await rig.call("echo")).content == "{}"
            assert rig.servers.status() == [{"name": "x", "status": "connected", "tool_count": 4}]


async def test_a_reload_ends_what_is_gone_replaces_what_is_different_and_keeps_the_rest(tmp_path: Path) -> None:
    keep, change, gone = (hostile(tmp_path, "plain", name) for name in ("keep", "change", "gone"))
    different = hostile(tmp_path, "plain", "change", timeout=7.0)
    async with mcp_rig(tmp_path) as rig:
        with trio.fail_after(60):
            rig.servers.configure_from({**setting(keep), **setting(change), **setting(gone)})
            rig.servers.warm()
            await rig.servers.wait_ready(50)
            before = rig.pids()
            wanted = {**setting(keep), **setting(different)}
            assert await rig.servers.reload(lambda: wanted) == Reloaded(revision(wanted))
            assert [row["name"] for row in rig.servers.status()] == ["keep", "change"]
            assert {row["status"] for row in rig.servers.status()} == {"connected"}
            while len(rig.children()) > 2:
                await trio.sleep(0.01)
            after = rig.pids()
            assert (set(after), after["keep"] == before["keep"]) == ({"keep", "change"}, True)
            assert after["change"] != before["change"]


async def test_reloads_at_the_same_time_are_one_reload_if_it_loaded_what_was_wanted(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path) as rig:
        wanted = setting(hostile(tmp_path, "plain"))
        answers: dict[str, Reloaded] = {}

        async def reload(who: str, revision_wanted: str | None) -> None:
            answers[who] = await rig.servers.reload(lambda: wanted, wanted=revision_wanted)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reload, "first", None)
                while rig.servers.status() == []:
                    await trio.sleep(0)
                for who, revision_wanted in (("any", None), ("same", revision(wanted)), ("other", "another")):
                    nursery.start_soon(reload, who, revision_wanted)
        assert {who: answer.coalesced for who, answer in answers.items()} == {
            "first": False,
            "any": True,
            "same": True,
            "other": False,
        }
        assert {answer.revision for answer in answers.values()} == {revision(wanted)}


async def test_a_reload_whose_caller_leaves_does_not_hold_the_next_one(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path) as rig:
        with trio.fail_after(60):
            with trio.move_on_after(0.1):
                await rig.servers.reload(lambda: setting(hostile(tmp_path, "hang")))
            assert not (await rig.servers.reload(lambda: setting(hostile(tmp_path, "plain")))).coalesced
            assert rig.servers.status()[0]["status"] == "connected"


@pytest.mark.parametrize(
    ("confirm", "ask", "needed"),
    [(None, True, True), (False, True, True), (True, True, False), (None, False, False)],
)
def test_a_reload_asks_first_unless_confirmed_or_switched_off(confirm: bool | None, ask: bool, needed: bool) -> None:
    assert needs_confirmation(confirm, ask=ask) is needed


async def test_switched_off_and_wrong_servers_are_listed_and_never_started(tmp_path: Path) -> None:
    off = hostile(tmp_path, "plain", "off", enabled=False)
    wrong = McpServerConfig("wrong", problem="needs either `command` or `url`")
    async with mcp_rig(tmp_path, off, wrong) as rig:
        with trio.fail_after(30):
            rig.servers.warm()
            await rig.servers.wait_ready(20)
            assert rig.servers.status() == [
                {"name": "off", "status": "disabled", "tool_count": 0},
                {"name": "wrong", "status": "failed", "tool_count": 0, "error": "needs either `command` or `url`"},
            ]
            with pytest.raises(ToolFailure, match="is switched off"):
                await rig.call("echo", server="off")
            with pytest.raises(ToolFailure, match="needs either"):
                await rig.call("echo", server="wrong")
            assert rig.children() == []


def editors(config: McpServerConfig) -> list[dict[str, Any]]:
    """As an editor writes it."""
    return [{"name": config.name, "command": config.command, "args": list(config.args), "env": []}]


async def test_an_editors_servers_work_in_their_session_and_end_with_it(tmp_path: Path) -> None:
    services, _ = make_services(say(calls=[call("mcp__x__echo", "c1", a=1)]), say("seen"), home=tmp_path)
    with no_longer_subreaper(), trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="acp", cwd=str(tmp_path))
            other = tree.registry.create(source="acp", cwd=str(tmp_path))
            start = editor_servers(services, lambda: {"PATH": PATH}, None)
            start(session, editors(hostile(tmp_path, "plain")))
            start(other, [])
            await wait_session_ready(session, None, 50)
            session.extra_tools.extend(session_tools(session, None))
            assert session_tools(other, None) == ()
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            await turn.wait_ended()
            results = [row.text for row in session.rows if row.role == "tool"]
            assert len(results) == 1 and '{"a": 1}' in results[0]
            assert session.info().mcp_servers == [{"name": "x", "status": "connected", "tool_count": 4}]
            (before,) = services.supervisor.live()
            start(session, editors(hostile(tmp_path, "garbage")))
            while [live.pid for live in services.supervisor.live()] in ([before.pid], []):
                await trio.sleep(0.01)
            assert len(services.supervisor.live()) == 1
            tree.registry.close_nowait(session, CancelReason(Cause.SESSION_CLOSED))
            await session.wait_closed()
            assert services.supervisor.live() == []


@pytest.mark.fault("B-050")
async def test_a_stop_in_a_call_is_a_cancelled_turn_and_no_crash(tmp_path: Path) -> None:
    services, _ = make_services(say(calls=[call("mcp__x__mute", "c1")]), home=tmp_path)
    with no_longer_subreaper(), trio.fail_after(60):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="acp", cwd=str(tmp_path))
            editor_servers(services, lambda: {"PATH": PATH}, None)(session, editors(hostile(tmp_path, "stuck")))
            await wait_session_ready(session, None, 50)
            session.extra_tools.extend(session_tools(session, None))
            turn = await session.submit_nowait(Prompt("go")).wait_turn()
            assert turn is not None
            while "stuck" not in (tmp_path / "notes").read_text():
                await trio.sleep(0.01)
            interrupt = session.interrupt_nowait(CancelReason(Cause.USER_INTERRUPT))
            assert (await interrupt.wait_settled(0.9)).settled
            record = await turn.wait_ended()
            assert (record.interrupted, record.failed) == (True, False)


async def test_a_server_that_hangs_holds_up_no_turn_that_comes_later(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    with no_longer_subreaper(), trio.fail_after(30):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="acp", cwd=str(tmp_path))
            silent = {"name": "silent", "command": "sleep", "args": ["1000"], "env": []}
            editor_servers(services, lambda: {"PATH": PATH}, None)(session, [silent])
            await wait_session_ready(session, None, 0.2)
            began = trio.current_time()
            # It has had its 0.2 seconds; another wait of so long would be noticed.
            for _ in range(100):
                await wait_session_ready(session, None, 0.2)
            assert trio.current_time() - began < 15


async def test_the_status_is_published_only_when_it_is_different(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    with trio.fail_after(30):
        async with running_tree(services) as tree:
            session = tree.registry.create(source="tui", cwd=str(tmp_path))
            async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
                publish_status(session, rig.servers)
                before = session.log.latest_seq
                publish_status(session, rig.servers)
                assert session.log.latest_seq == before
                assert session.info().mcp_servers == [{"name": "x", "status": "configured", "tool_count": 0}]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_listening(port: int) -> None:
    while True:
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
        except OSError:
            await trio.sleep(0.05)
        else:
            return


# The client library leaves its stream iterators to the garbage collector; their connections are closed by then.
@pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted.*:ResourceWarning")
async def test_a_server_over_http_works_is_cancelled_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    command, env = specimen_http(tmp_path, port)
    spec = ProcessSpec(command, env, name="http server")
    config = McpServerConfig("x", "http", url=f"http://127.0.0.1:{port}/mcp", timeout=20.0, connect_timeout=20.0)
    with trio.fail_after(90):
        async with mcp_rig(tmp_path, config) as rig:
            with pytest.raises(ToolFailure, match="MCP server x cannot be used"):
                await rig.call("add", {"a": 1, "b": 2})
            async with open_piped(rig.supervisor, spec):
                await wait_listening(port)
                assert (await rig.call("add", {"a": 1, "b": 2})).content == "3"
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(rig.call, "slow", {"seconds": 600})
                        await rig.wait_note("slow began")
                        asked = trio.current_time()
                        scope.cancel()
                assert trio.current_time() - asked < 1
                await rig.wait_note("slow was cancelled")
                assert (await rig.call("add", {"a": 2, "b": 2})).content == "4"
            with pytest.raises(ToolFailure):
                await rig.call("add", {"a": 1, "b": 2})
            async with open_piped(rig.supervisor, spec):
                await wait_listening(port)
                rig.servers._servers["x"].retry_now()
                assert (await rig.call("add", {"a": 3, "b": 2})).content == "5"
        gc.collect()


@pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted.*:ResourceWarning")
async def test_a_server_over_the_older_sse_works_and_can_be_cancelled(tmp_path: Path) -> None:
    port = free_port()
    command, env = specimen_http(tmp_path, port, "sse")
    config = McpServerConfig("x", "sse", url=f"http://127.0.0.1:{port}/sse", timeout=20.0, connect_timeout=20.0)
    with trio.fail_after(90):
        async with mcp_rig(tmp_path, config) as rig:
            async with open_piped(rig.supervisor, ProcessSpec(command, env, name="sse server")):
                await wait_listening(port)
                assert (await rig.call("add", {"a": 1, "b": 2})).content == "3"
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(rig.call, "slow", {"seconds": 600})
                        await rig.wait_note("slow began")
                        scope.cancel()
                await rig.wait_note("slow was cancelled")
                assert (await rig.call("add", {"a": 2, "b": 2})).content == "4"
        gc.collect()


async def test_servers_can_be_asked_for_before_they_are_held(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path) as rig:
        early = McpServers(rig.servers._host.transport, label="early")
        early.configure([hostile(tmp_path, "plain")])
        early.warm()
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(early.run, rig.root)
                assert await early.wait_ready(20)
                assert early.status()[0]["status"] == "connected"
                nursery.cancel_scope.cancel()


async def test_the_configured_servers_end_with_the_server_tree(tmp_path: Path) -> None:
    services, _ = make_services(home=tmp_path)
    tree = ServerTree(services)
    host = TransportHost(services.supervisor, lambda: {"PATH": PATH}, str(tmp_path))
    servers = tree.mcp = McpServers(host)
    servers.configure([hostile(tmp_path, "plain")])
    told: list[str] = []

    async def surface() -> None:
        session = tree.registry.create(source="tui", cwd=str(tmp_path))
        tell_sessions(servers, tree.registry.live, servers)
        await wait_session_ready(session, servers, 20)
        told.extend(names(session_tools(session, servers)))
        told.append(str(session.info().mcp_servers[0]["status"]))

    with no_longer_subreaper(), trio.fail_after(60):
        await tree.run([("surface", surface)], signals=False)
    assert told == ["mcp__x__echo", "mcp__x__mute", "mcp__x__die", "mcp__x__rename", "connected"]
    assert services.supervisor.live() == []
    assert len(services.tree) == 0


@pytest.mark.filterwarnings("ignore:.*was garbage collected before it had been exhausted.*:ResourceWarning")
async def test_an_answer_over_http_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_transport, "MAX_BODY", 1000)

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(head + b" " * 100_000)
        await stream.aclose()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(functools.partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
            port = listener.socket.getsockname()[1]
            config = McpServerConfig("x", "http", url=f"http://127.0.0.1:{port}/mcp", connect_timeout=10.0)
            async with mcp_rig(tmp_path, config) as rig:
                with pytest.raises(ToolFailure, match="MCP server x cannot be used"):
                    await rig.call("echo")
                assert "more than 1000 bytes" in rig.servers.status()[0]["error"]
            nursery.cancel_scope.cancel()
    gc.collect()
