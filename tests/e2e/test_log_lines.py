"""The log of a running server: JSON lines that say whose work they are about and how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.support.server_process import server_process

pytestmark = pytest.mark.e2e


async def test_a_turn_that_is_stopped_leaves_lines_with_session_turn_request_cause_and_duration(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with server_process(tmp_path / "home", "gateway", "--log-format", "json") as server:
            session = await server.call("session.create", {})
            await server.call("prompt.submit", {"session_id": session["session_id"], "text": "run: sleep 60"})
            await server.event("tool.start")
            await server.call("session.interrupt", {"session_id": session["session_id"], "reason": "seen enough"})
            await server.wait_until(lambda: "turn_ended" in server.stderr, "the line")
            assert await server.stop() == 0
    lines = [json.loads(line) for line in server.stderr.splitlines()]
    ends = {line["event"]: line for line in lines if str(line.get("event", "")).endswith("_ended")}
    assert {"session_ended", "turn_ended", "tool_call_ended"} <= set(ends)
    turn = ends["turn_ended"]
    assert (turn["outcome"], turn["cause"], turn["reason"]) == ("cancelled", "user_interrupt", "seen enough")
    assert turn["duration_s"] > 0
    assert turn["session"] == session["stored_session_id"]
    assert turn["turn"] == ends["tool_call_ended"]["turn"] != ""
    assert "prompt.submit" in turn["request"]
    assert ends["session_ended"]["cause"] == "shutdown"
