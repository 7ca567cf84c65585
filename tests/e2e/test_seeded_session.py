"""``python -m hermes.testing.seed`` as a user types it: it prints the id of a session that every surface loads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.support.server_process import clean_environment, http_server, server_process

pytestmark = pytest.mark.e2e
MESSAGES, PAGE = 5000, 500


def seed_from_a_shell(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environment(home)
    if "--home" in arguments:
        del environ["HERMES_HOME"]
    return subprocess.run(
        [sys.executable, "-m", "hermes.testing.seed", *arguments],
        cwd="/",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_prints_the_id_alone_and_makes_the_home_it_is_told(tmp_path: Path) -> None:
    home = tmp_path / "not" / "there"
    made = seed_from_a_shell(tmp_path, "10", "--home", str(home))
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{6}\n", made.stdout)
    assert made.stderr == ""
    assert (home / "sessions.db").stat().st_mode & 0o777 == 0o600


def test_a_number_that_is_none_is_refused() -> None:
    for wrong in ("many", "-1", "0"):
        made = seed_from_a_shell(Path("/"), wrong, "--home", "/nowhere")
        assert made.returncode == 2, made.stderr
        assert "Traceback" not in made.stderr


async def test_the_seeded_session_loads_as_a_whole_on_the_three_surfaces(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    key = seed_from_a_shell(home, str(MESSAGES)).stdout.strip()
    with trio.fail_after(90):
        async with server_process(home, "gateway") as server:
            resumed = await server.call("session.resume", {"session_id": key})
            assert resumed["message_count"] == MESSAGES
            shown = [message["text"] for message in resumed["messages"] if message["role"] == "user"]
            assert shown[0].startswith("Question 1:")
            assert shown == [text for text in shown if text.startswith("Question ")]
            questions = len(shown)
        async with server_process(home, "acp") as server:
            await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            await server.call("session/load", {"sessionId": key, "cwd": str(home), "mcpServers": []})
            updates = [frame["params"]["update"] for frame in server.frames if frame.get("method") == "session/update"]
            said = [one["content"]["text"] for one in updates if one["sessionUpdate"] == "user_message_chunk"]
            assert said == shown
        async with http_server(home) as http:
            headers = {"Authorization": f"Bearer {http.key}"}
            async with httpx2.AsyncClient(base_url=http.origin, headers=headers, timeout=30) as client:
                rows: list[dict[str, Any]] = []
                for offset in range(0, MESSAGES, PAGE):
                    page: dict[str, int | str] = {"limit": PAGE, "offset": offset, "order": "oldest"}
                    rows += (await client.get(f"/api/sessions/{key}/messages", params=page)).json()["data"]
                assert [row["content"] for row in rows if row["role"] == "user"] == shown
                assert (await client.get(f"/api/sessions/{key}")).json()["session"]["message_count"] == MESSAGES
        assert questions > MESSAGES // 5
