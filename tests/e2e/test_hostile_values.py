"""Values that are of the right type and mean nothing: refused in words, never an error of the server's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.server_process import server_process

pytestmark = pytest.mark.e2e
NUL = "a\0b"
LONG = "x/" * 5000
CASES: list[tuple[str, dict[str, Any], int | None]] = [
    ("prompt.submit", {"text": "x", "truncate_before_row_id": 2**63, "confirm_truncate": True}, 4018),
    ("prompt.submit", {"text": "x", "truncate_before_row_id": 1e30, "confirm_truncate": True}, 4004),
    ("session.cwd.set", {"cwd": NUL}, 4017),
    ("session.cwd.set", {"cwd": LONG}, 4017),
    ("session.events.since", {"last_seen": 2**63 - 1}, None),
    ("spawn_tree.save", {"subagents": [{}], "finished_at": 1e300}, -32602),
    ("spawn_tree.save", {"subagents": [{}], "finished_at": -1e300}, -32602),
    ("spawn_tree.save", {"subagents": [{}], "session_id": NUL}, None),
    ("spawn_tree.load", {"path": NUL}, 4044),
    ("spawn_tree.load", {"path": LONG}, 4044),
    ("spawn_tree.load", {"path": "~nobody-of-this-name/x"}, 4044),
    ("complete.path", {"word": "@file:", "cwd": NUL}, None),
    ("complete.path", {"word": f"./{NUL}/x"}, None),
    ("complete.path", {"word": LONG}, None),
    ("image.attach", {"path": NUL}, 4016),
    ("image.attach", {"path": LONG}, 4016),
    ("file.attach", {"path": LONG}, 4016),
    ("input.detect_drop", {"text": f"/{LONG}"}, None),
    ("config.set", {"key": "cwd", "value": LONG}, 4002),
    ("file.attach", {"path": NUL}, 4016),
    ("file.attach", {"data_url": "data:;base64,aGk=", "name": f"../{NUL}/.."}, None),
    ("input.detect_drop", {"text": f"/{NUL}"}, None),
    ("project.facts", {"cwd": NUL}, None),
    ("config.set", {"key": "prompt", "value": {"a": 1}}, 4002),
    ("config.set", {"key": "theme", "value": ["dark"]}, 4002),
    ("config.set", {"key": "cwd", "value": NUL}, 4002),
    ("cli.exec", {"argv": [NUL]}, 5017),
    ("shell.exec", {"command": f"echo {NUL}"}, 5003),
    ("command.dispatch", {"command": f"/save json {NUL}"}, 4002),
    ("command.dispatch", {"command": "/save json ~nobody-of-this-name/x"}, 4002),
    ("command.dispatch", {"command": f"/image {NUL}"}, 4016),
    ("command.dispatch", {"command": f"/queue edit {10**30} x"}, 4004),
    ("command.dispatch", {"command": f"/undo {10**30}"}, 4018),
    ("command.dispatch", {"command": f"/insights {10**30}"}, None),
    ("session.title", {"title": "\u202e\0\u200b"}, 4022),
    ("clarify.respond", {"request_id": f"x.{10**30}"}, 4009),
]
"""Method, parameters beside the session, and the code it is refused with; None: it is answered."""


async def test_every_strange_value_is_answered_or_refused_in_words(tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with server_process(tmp_path / "home", "gateway") as server:
            made = await server.call("session.create", {"cwd": str(tmp_path)})
            for method, params, code in CASES:
                sessionless = method in (
                    "cli.exec",
                    "shell.exec",
                    "project.facts",
                    "spawn_tree.load",
                    "clarify.respond",
                )
                own = {} if sessionless or "session_id" in params else {"session_id": made["session_id"]}
                answer = await server.request(method, {**own, **params})
                found = answer["error"]["code"] if "error" in answer else None
                assert found == code, (method, str(params)[:80], str(answer)[:300])
            assert await server.call("ping") == {"pong": True}
            assert "Traceback" not in server.stderr
            assert server.stray == []
