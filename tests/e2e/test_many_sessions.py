"""More live sessions on one connection than the server keeps replays for, through the real process."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.support.server_process import server_process

pytestmark = pytest.mark.e2e
SESSIONS = 80
"""``limits.replay_sessions`` is 64."""


async def test_a_host_that_reads_follows_more_sessions_at_once_than_replays_are_kept_for(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(f"limits:\n  max_sessions: {SESSIONS}\n")
    with trio.fail_after(120):
        async with server_process(home, "gateway") as server:
            made = [(await server.call("session.create", {}))["session_id"] for _ in range(SESSIONS)]
            await server.send(
                *(
                    {
                        "jsonrpc": "2.0",
                        "id": f"p{number}",
                        "method": "prompt.submit",
                        "params": {"session_id": session_id, "text": "hello"},
                    }
                    for number, session_id in enumerate(made)
                )
            )

            def ends() -> list[str]:
                events = [frame["params"] for frame in server.frames if frame.get("method") == "event"]
                return [event["session_id"] for event in events if event["type"] == "message.complete"]

            await server.wait_until(lambda: len(ends()) >= SESSIONS, "the end of every turn")
            assert await server.call("ping") == {"pong": True}
            assert sorted(ends()) == sorted(made)
