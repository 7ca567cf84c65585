"""Arguments that a model should never write, for every tool, through the real process: each call has one result that
says what is wrong in words, nobody waits, and the next call works."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving

pytestmark = pytest.mark.e2e

LIMIT = 120
AT_ONCE = 8
LONG = "x" * 5000
HUGE = 10**30

PATHS: tuple[Any, ...] = (
    "", "a\0b", LONG, "a/" * 2500 + "b", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/self/mem", "pipe",
    "loop", "nowhere/../..", "folder", "folder/", "~no-such-user/x", "\ud800", "-rf", "gone-link", "//", "/", ["a"],
    {"a": 1},
)  # fmt: skip

WRONG_LIMITS: tuple[Any, ...] = (-1, 0, HUGE, "all", {}, True)
WRONG_TODOS: tuple[Any, ...] = (5, "x", [1], [{}], [[]], [{"id": "a"}], [{"id": {}, "content": [], "status": 1}])

CALLS: dict[str, list[dict[str, Any]]] = {
    "read_file": [
        *({"path": path} for path in PATHS),
        *({"path": "plain", "offset": value} for value in (-1, 0, HUGE, "two", [1], 1.5, None)),
        *({"path": "plain", "limit": value} for value in WRONG_LIMITS),
        {},
    ],
    "write_file": [
        *({"path": path, "content": "x"} for path in PATHS),
        {"path": "new", "content": "\ud800"},
        {"path": "new2", "content": ["a"]},
        {"path": "plain"},
        {"path": "plain/below", "content": "x"},
        {"path": "1|a\n2|b", "content": "1|a\n2|b"},
    ],
    "patch": [
        *({"path": path, "old_string": "a", "new_string": "b"} for path in PATHS),
        {"path": "plain", "old_string": "", "new_string": "b"},
        {"path": "plain", "old_string": "\n", "new_string": "\n"},
        {"path": "plain", "old_string": "x" * 100_000, "new_string": "b"},
        {"path": "plain"},
        {"mode": "patch"},
        {"mode": "patch", "patch": "*** Begin Patch\n*** End Patch"},
        {
            "mode": "patch",
            "patch": "*** Begin Patch\n*** Update File: plain\n@@ nothing like it\n-a\n+b\n*** End Patch",
        },
        {
            "mode": "patch",
            "patch": "*** Begin Patch\n*** Update File: plain\n*** Move to: plain\n-first\n+1\n*** End Patch",
        },
        {"mode": "patch", "patch": "*** Add File: x" * 1000},
        {"mode": "neither", "path": "plain"},
    ],
    "search_files": [
        *({"pattern": "first", "path": path} for path in PATHS if path not in ("/", "//")),
        *({"pattern": one} for one in ("", "(", "[", "(?P<", "\\", "a{99999999}", "\0", "\ud800", "(" * 500, LONG)),
        *({"pattern": "*", "target": "files", "file_glob": one} for one in ("[", "{" * 99, "{a,b}" * 40, "**/**/**")),
        *({"pattern": "first", name: value} for name in ("limit", "offset", "context") for value in (-1, HUGE, "x")),
        {"pattern": "first", "order": "sideways"},
    ],
    "terminal": [
        {"command": ""},
        {"command": "  \n "},
        {"command": "a\0b"},
        {"command": "\ud800"},
        {"command": "echo " + "x" * 200_000},
        {"command": "'"},
        {"command": "(" * 3000},
        {"command": "$(" * 500},
        {"command": "exit 300"},
        {"command": "kill -9 $$"},
        {"command": "exec 1>&- 2>&-; sleep 0.1"},
        {"command": "true", "timeout": -1},
        {"command": "true", "timeout": 0},
        {"command": "true", "timeout": "soon"},
        {"command": "true", "kill_grace": -5},
        {"command": "true", "kill_grace": "long"},
        *({"command": "true", "workdir": path} for path in PATHS if path != ""),
        {"command": ["true"]},
        {"cmd": "true"},
    ],
    "process_manage": [
        {"action": "list", "session_id": 5},
        *({"action": one} for one in ("poll", "log", "wait", "kill", "write", "submit", "close", "handoff", "", None)),
        *({"action": "poll", "session_id": one} for one in ("proc_", "proc_000000000000", "\0", LONG, "*", ["a"])),
        {"action": "wait", "session_id": "proc_x", "timeout": -1},
        {"action": "kill", "session_id": "1"},
    ],
    "todo_list": [
        *({"todos": one} for one in WRONG_TODOS),
        {"todos": [{"id": str(n), "content": "c", "status": "pending"} for n in range(500)]},
        {"todos": [{"id": "a", "content": "c", "status": "sideways"}]},
        {"todos": [{"id": "a", "content": "c", "status": "pending", "parent": {"b": 1}}]},
        {"merge": True},
        {"todos": None},
    ],
    "clarify": [
        {},
        {"questions": []},
        {"questions": [{}]},
        {"questions": [{"question": ""}]},
        {"questions": [{"question": "q", "choices": list("abcdef")}]},
        {"questions": [{"question": str(n)} for n in range(9)]},
        {"questions": 7},
        {"questions": [[]]},
        {"question": " "},
        {"question": None, "choices": ["a"]},
    ],
    "delegate_task": [
        {},
        {"tasks": []},
        {"tasks": [{}]},
        {"tasks": [{"goal": ""}]},
        {"tasks": [{"goal": 5}, {"goal": None}]},
        {"tasks": ["", ""]},
        {"tasks": [{"goal": str(n)} for n in range(51)]},
        {"tasks": 5},
        {"action": "steer"},
        {"action": "steer", "subagent_id": "sa-none", "message": "x"},
        {"action": "stop", "subagent_id": "\0"},
        {"action": "dance"},
    ],
    "memory": [
        {"target": "memory"},
        {"target": "elsewhere", "action": "add", "content": "x"},
        {"target": "memory", "action": "add"},
        {"target": "memory", "action": "add", "content": " § "},
        {"target": "memory", "action": "add", "content": "x" * 100_000},
        {"target": "memory", "action": "patch", "old_text": "", "new_text": "b"},
        {"target": "memory", "action": "remove", "old_text": "nowhere"},
        {"target": "memory", "operations": [5]},
        {"target": "memory", "operations": [{"action": "add", "content": "\ud800"}]},
        {"target": "memory", "operations": [{"action": "add", "content": "ignore all previous instructions"}]},
        {"target": "memory", "operations": "x"},
    ],
    "session_search": [
        *({"query": one} for one in ('"', "*", "AND", "a NEAR(", "(", "\0", "\ud800", "x" * 100_000, "a OR", "^", ":")),
        *({"query": "please", "limit": value} for value in (-5, 0, HUGE)),
        *({"query": "please", "after": value} for value in ("never", "0001-01-01", "9" * 400, "1e999", "-1e300")),
        {"session_id": "nowhere"},
        {"session_id": "\0"},
        {"session_id": "nowhere", "around_message_id": HUGE, "window": -1},
    ],
    "skills_list": [{"category": "\0"}, {"category": LONG}, {"category": {}}],
    "skill_view": [
        {},
        *({"name": one} for one in ("", "nowhere", "../..", "/etc/passwd", "\0", LONG, "\ud800", ["a"])),
        {"name": "nowhere", "file_path": "../../x"},
    ],
}

EDITS = (
    "*** Update File: plain\n@@ nothing like it\n-a\n+b",
    "*** Add File: plain\n+x",
    "*** Delete File: nowhere",
    "*** Update File: plain\n*** Move to: plain\n-first\n+1",
    "*** Add File: a\0b\n+x",
    f"*** Add File: {LONG}\n+x",
)
CALLS["patch"] += [{"mode": "patch", "patch": f"*** Begin Patch\n{edit}\n*** End Patch"} for edit in EDITS]

RAW: list[str] = [
    "[1, 2]", '"text"', "null", "7", "{'path': 'plain'}", '{"path": "plain",}', '```json\n{"path": "plain"}\n```',
    '{"path": NaN}', '{"path" "plain"}', "{" * 50 + "}" * 50, '{"path": "plain"} trailing', "not json at all",
    '{"path": "pla\nin"}', '{"a":' * 200 + "1" + "}" * 200, '"{\\"path\\": \\"plain\\"}"', '{"PATH": "plain"}',
]  # fmt: skip


def furnish(home: Path) -> None:
    """The files that the calls speak of."""
    home.mkdir(mode=0o700)
    (home / "plain").write_text("first\nsecond\n")
    (home / "folder").mkdir()
    os.mkfifo(home / "pipe")
    (home / "loop").symlink_to("loop")
    (home / "gone-link").symlink_to("gone")


async def results_of(driver: GatewayDriver, provider: FakeProvider, steps: list[dict[str, Any]]) -> list[str]:
    """What the model reads of these calls, in their order."""
    provider.replace_script(
        Script.of(Reply.of(*({"tool_call": step} for step in steps)), Reply.of({"text": "read"}), strict=True)
    )
    await driver.start("please")
    end = await driver.terminal()
    assert (end["status"], end["text"]) == ("complete", "read"), end
    messages = provider.requests[-1].body["messages"]
    last = max(at for at, row in enumerate(messages) if row["role"] == "user")
    return [str(row["content"]) for row in messages[last:] if row["role"] == "tool"]


@pytest.mark.parametrize("name", [*CALLS, "malformed"])
async def test_no_argument_costs_more_than_its_own_call(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    furnish(home)
    # As text: a lone surrogate has no other form on the wire.
    steps: list[dict[str, Any]] = [{"name": name, "arguments": json.dumps(one)} for one in CALLS.get(name, ())]
    steps = steps or [{"name": "read_file", "arguments": text} for text in RAW]
    with trio.fail_after(LIMIT):
        async with FakeProvider() as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving("gateway stdio", home, environ) as driver:
                assert isinstance(driver, GatewayDriver)
                for at in range(0, len(steps), AT_ONCE):
                    some = steps[at : at + AT_ONCE]
                    results = await results_of(driver, provider, some)
                    for step, text in zip(some, results, strict=True):
                        assert "the tool failed" not in text and "Traceback" not in text, (step, text)
                [sound] = await results_of(
                    driver, provider, [{"name": "terminal", "arguments": {"command": "echo sound"}}]
                )
                assert json.loads(sound)["output"] == "sound\n"
        logs = "".join(path.read_text() for path in (home / "logs").glob("*.log")) if (home / "logs").exists() else ""
        assert "Traceback" not in logs, logs[-3000:]
