"""The log of a running server: JSON lines that say whose work they are about and how it ended."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest
import trio

from tests.support.server_process import COMMAND, server_process

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


@pytest.mark.parametrize(
    ("options", "in_words", "in_the_log"),
    ((("--log-format", "text"), 1, 0), (("--log-format", "json"), 0, 1), (("--log-to", "file"), 1, 1)),
)
def test_a_start_that_is_refused_says_why_once_to_people_and_once_to_the_log(
    options: tuple[str, ...], in_words: int, in_the_log: int, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = subprocess.run(
            [COMMAND, "serve", "--port", str(port), "--home", str(home), *options], capture_output=True, text=True
        )
    assert (refused.returncode, refused.stdout) == (1, "")
    why = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    lines = [line for line in refused.stderr.splitlines() if why in line]
    written = [line for file in home.rglob("agent.log") for line in file.read_text().splitlines() if why in line]
    records = written + [line for line in lines if not line.startswith("hermes: ")]
    assert (len(lines) + len(written) - len(records), len(records)) == (in_words, in_the_log)


def test_an_address_that_is_none_of_this_machine_is_told_to_be_changed(tmp_path: Path) -> None:
    refused = subprocess.run(
        [COMMAND, "serve", "--host", "::1%nowhere", "--home", str(tmp_path / "home")], capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("hermes: cannot listen on ::1%nowhere:")
    assert refused.stderr.endswith("Choose another --host.\n")
