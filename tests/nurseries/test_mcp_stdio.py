"""A real tool server over stdio: calls, progress, pictures, errors, cancels, its environment and its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from hermes.agent.ports import ParallelClass, ToolFailure
from hermes.agent.redaction import redact
from hermes.outcomes import CancelReason, Cause
from tests.support.mcp_rig import hostile, mcp_rig, specimen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def test_a_server_starts_on_first_use_and_its_tools_work(tmp_path: Path) -> None:
    progress: list[str] = []
    async with mcp_rig(tmp_path, specimen(tmp_path, "my server")) as rig:
        assert rig.servers.status() == [{"name": "my server", "status": "configured", "tool_count": 0}]
        with trio.fail_after(60):
            rig.servers.warm()
            assert await rig.servers.wait_ready(50)
            tools = {tool.spec.name: tool for tool in rig.servers.tools()}
            assert list(tools)[:2] == ["mcp__my_server__add", "mcp__my_server__slow"]
            add = tools["mcp__my_server__add"]
            assert add.spec.description == "Add two numbers."
            assert set(add.spec.parameters["properties"]) == {"a", "b"}
            assert (add.flags.untrusted_output, add.flags.result_limit) == (True, 50_000)
            assert add.flags.parallel is ParallelClass.BARRIER
            server = rig.servers._servers["my server"]
            assert (await server.call("add", {"a": 2, "b": 3}, progress.append)).content == "5"
            assert (await server.call("steps", {"count": 3}, progress.append)).content == "all steps done"
            picture = await server.call("picture", {}, progress.append)
            assert [(image.mime_type, bool(image.data)) for image in picture.images] == [("image/png", True)]
            refused = await server.call("refuse", {}, progress.append)
            assert refused.is_error and "refuse" in refused.content
            names = (await server.call("variables", {}, progress.append)).content.split()
            assert "OWN" in names and "LC_ALL" in names and "SECRET_TOKEN" not in names
        assert progress == ["1/3 step 1", "2/3 step 2", "3/3 step 3"]
        assert rig.servers.status() == [{"name": "my server", "status": "connected", "tool_count": 6}]
        kinds = [(node.kind, node.name) for node in rig.root.walk()]
        assert kinds == [("server", "server"), ("mcp_servers", "mcp servers"), ("mcp", "my server")]


async def test_a_cancelled_call_is_cancelled_in_the_server_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, specimen(tmp_path)) as rig:
        with trio.fail_after(60):
            assert (await rig.call("add", {"a": 1, "b": 1})).content == "2"
            before = rig.children()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(rig.call, "slow", {"seconds": 600})
                    await rig.wait_note("slow began")
                    asked = trio.current_time()
                    scope.cancel()
            assert scope.cancelled_caught and trio.current_time() - asked < 1
            await rig.wait_note("slow was cancelled")
            assert (await rig.call("add", {"a": 2, "b": 2})).content == "4"
            assert rig.children() == before


async def test_a_call_that_takes_too_long_fails_and_is_cancelled_in_the_server(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, specimen(tmp_path, timeout=0.5)) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure, match=r"gave no answer within 0\.5 s"):
                await rig.call("slow", {"seconds": 600})
            await rig.wait_note("slow was cancelled")
            assert (await rig.call("add", {"a": 2, "b": 2})).content == "4"


async def test_calls_of_many_sessions_share_one_process(tmp_path: Path) -> None:
    answers: list[str] = []

    async with mcp_rig(tmp_path, specimen(tmp_path)) as rig:

        async def one(number: int) -> None:
            answers.append((await rig.call("add", {"a": number, "b": 0})).content)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(one, number)
            assert sorted(answers, key=int) == [str(number) for number in range(100)]
            assert len(rig.children()) == 1


async def test_cancelling_the_node_of_a_server_ends_its_process_and_the_next_use_starts_another(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, specimen(tmp_path)) as rig:
        with trio.fail_after(60):
            await rig.call("add", {"a": 1, "b": 1})
            (first,) = rig.children()
            node = next(node for node in rig.root.walk() if node.kind == "mcp")
            node.request_cancel(CancelReason(Cause.NODE_CANCEL, "by hand"))
            assert (await rig.call("add", {"a": 1, "b": 1})).content == "2"
            (second,) = rig.children()
            assert first != second


async def test_secrets_in_what_a_server_says_are_hidden_as_in_the_output_of_a_command(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz123456"
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain"), redact=redact) as rig:
        with trio.fail_after(60):
            short = await rig.call("echo", {"text": secret})
            long = await rig.call("echo", {"text": f"{'x ' * 60_000}{secret}"})
    assert secret not in short.content + long.content
    assert len(long.content) > 120_000
