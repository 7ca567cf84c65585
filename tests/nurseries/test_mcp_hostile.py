"""Servers that hang, flood, lie or die: each hurts only its own calls, and leaves nothing behind."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from hermes.agent.ports import ToolFailure
from hermes.nurseries import mcp_connection, mcp_server
from tests.support.mcp_rig import McpRig, hostile, mcp_rig
from tests.support.process_probe import open_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def state(rig: McpRig, name: str = "x") -> str:
    return next(str(row["status"]) for row in rig.servers.status() if row["name"] == name)


def error(rig: McpRig, name: str = "x") -> str:
    return next(str(row.get("error")) for row in rig.servers.status() if row["name"] == name)


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("hang", "was not ready within 0.5 s"),
        ("exit", "ended with exit code 7: no licence"),
        ("garbage-only", "prints something that is not the protocol"),
        ("flood-at-once", "was not ready within 0.5 s"),
        ("old", "speaks another protocol: RuntimeError"),
    ],
)
async def test_a_server_that_never_gets_ready_fails_and_the_others_work(
    tmp_path: Path, behaviour: str, told: str
) -> None:
    limit = 0.5 if told.endswith("0.5 s") else 20
    bad = hostile(tmp_path, behaviour, "bad", connect_timeout=limit)
    async with mcp_rig(tmp_path, bad, hostile(tmp_path, "plain", "good")) as rig:
        with trio.fail_after(60):
            rig.servers.warm()
            assert (await rig.call("echo", {"a": 1}, server="good")).content == '{"a": 1}'
            assert await rig.servers.wait_ready(50)
            assert (state(rig, "bad"), error(rig, "bad")) == ("failed", told)
            assert next(tool.spec.name for tool in rig.servers.tools()) == "mcp__good__echo"
            assert len(rig.children()) == 1


async def test_a_program_that_does_not_exist_is_a_failed_server(tmp_path: Path) -> None:
    config = replace(hostile(tmp_path, "plain"), command="/no/such/program")
    async with mcp_rig(tmp_path, config) as rig:
        with trio.fail_after(30):
            with pytest.raises(ToolFailure, match="cannot start mcp x: no such program"):
                await rig.call("echo")
        assert state(rig) == "failed"


async def test_lines_that_are_no_messages_are_logged_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "garbage")) as rig:
        with trio.fail_after(30), caplog.at_level(logging.WARNING):
            assert (await rig.call("echo", {"a": 1})).content == '{"a": 1}'
    assert [record.getMessage()[:12] for record in caplog.records].count("mcp x printe") == 3


async def test_a_server_that_floods_hurts_neither_its_own_calls_nor_the_rest(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "flood", timeout=0.5), hostile(tmp_path, "plain", "good")) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure):
                await rig.call("echo", {"a": 1})
            for number in range(50):
                assert (await rig.call("echo", {"a": number}, server="good")).content == f'{{"a": {number}}}'


async def test_a_server_that_dies_in_a_call_fails_that_call_and_comes_back_for_the_next(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure, match="MCP server x ended with exit code 3: something broke"):
                await rig.call("die")
            assert (await rig.call("echo", {"a": 1})).content == '{"a": 1}'
            assert sum(note.startswith("started") for note in rig.notes()) == 2
            assert len(rig.children()) == 1


async def test_failures_in_a_row_make_the_next_try_wait_and_a_success_forgets_them(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "exit")) as rig:
        with trio.fail_after(60):
            server = rig.servers._servers["x"]
            for _ in range(3):
                server._next_try = 0.0
                with pytest.raises(ToolFailure, match="ended with exit code 7"):
                    await rig.call("echo")
            assert server._next_try - trio.current_time() > 0.5
            server._next_try = trio.current_time() + mcp_server.PATIENCE + 10
            with pytest.raises(ToolFailure, match=r"the next try is possible in 1\d s"):
                await rig.call("echo")
            rig.servers.configure([hostile(tmp_path, "plain")])
            assert (await rig.call("echo")).content == "{}"


async def test_a_message_without_end_closes_the_connection(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "long-line")) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure, match="sent a message of more than 16777216 bytes"):
                await rig.call("echo")


async def test_a_result_that_is_not_of_the_protocol_is_a_failed_call(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "wrong-result")) as rig:
        with trio.fail_after(60):
            with pytest.raises(ToolFailure, match="gave an answer that is not of the protocol"):
                await rig.call("echo")


async def test_answers_to_questions_that_nobody_asked_are_dropped(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "wrong-ids", timeout=5.0)) as rig:
        with trio.fail_after(60):
            for number in range(5):
                assert (await rig.call("echo", {"a": number})).content == f'{{"a": {number}}}'
            assert state(rig) == "connected"
            assert len(rig.children()) == 1


@pytest.mark.fault("B-017")
async def test_a_server_that_keeps_a_cancelled_call_and_gives_no_sign_of_life_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "SIGN_OF_LIFE", 0.2)
    async with mcp_rig(tmp_path, hostile(tmp_path, "stuck")) as rig:
        with trio.fail_after(60):
            await rig.call("echo")
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(rig.call, "mute")
                    await rig.wait_note("stuck")
                    scope.cancel()
            assert (await rig.call("echo", {"a": 1})).content == '{"a": 1}'
            assert sum(note.startswith("started") for note in rig.notes()) == 2
            assert len(rig.children()) == 1


@pytest.mark.fault("B-070")
async def test_fifty_deaths_leave_one_child_and_no_descriptor(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "plain")) as rig:
        with trio.fail_after(120):
            await rig.call("echo")
            before = open_descriptors()
            for _ in range(50):
                rig.servers._servers["x"]._failures = 0
                with pytest.raises(ToolFailure):
                    await rig.call("die")
                await rig.call("echo")
                assert len(rig.children()) == 1
            assert open_descriptors() <= before


async def test_a_server_that_does_not_read_never_makes_a_caller_wait(tmp_path: Path) -> None:
    async with mcp_rig(tmp_path, hostile(tmp_path, "stuck")) as rig:
        with trio.fail_after(60):
            await rig.call("echo")
            big = {"a": "x" * 100_000}
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(rig.call, "mute")
                    await rig.wait_note("stuck")
                    for _ in range(20):
                        nursery.start_soon(rig.call, "echo", big)
                    await trio.testing.wait_all_tasks_blocked(0.05)
                    asked = trio.current_time()
                    scope.cancel()
            assert trio.current_time() - asked < 1.0
