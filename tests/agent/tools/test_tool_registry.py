"""Which tools a session has, under which names; and how their calls look."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from hermes.agent.ports import ToolFlags, ToolSpec
from hermes.agent.tool_display import (
    first_changed_line,
    inline_diff,
    result_text,
    start_text,
    tool_kind,
    tool_locations,
    tool_preview,
    tool_title,
    unified_diff,
)
from hermes.agent.tools.registry import build_tools, load_plugins
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.todo import TodoList
from hermes.messages import FileDiff
from tests.support.tool_context import make_services

CORE = (
    "terminal", "process_manage", "read_file", "write_file", "patch", "search_files", "todo_list", "clarify",
    "delegate_task", "memory", "session_search", "skills_list", "skill_view",
)  # fmt: skip


@pytest.fixture
def services(tmp_path: Path) -> ToolServices:
    return make_services(tmp_path)


def test_all_core_tools_are_there_with_valid_schemas(services: ToolServices) -> None:
    tools = build_tools(services, answers=lambda _method: True)
    assert tools.names()[: len(CORE)] == CORE
    for spec in tools.specs():
        jsonschema.Draft202012Validator.check_schema(dict(spec.parameters))
        assert spec.parameters["type"] == "object"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("todo", "todo_list"),
        ("process", "process_manage"),
        ("Terminal", "terminal"),
        ("ReadFile", "read_file"),
        ("read-file", "read_file"),
        ("functions.read_file", "read_file"),
        ("readfile", "read_file"),
        ("patch_tool", "patch"),
    ],
)
def test_older_and_misspelt_names_find_their_tool(services: ToolServices, written: str, name: str) -> None:
    tool = build_tools(services).find(written)
    assert tool is not None
    assert tool.spec.name == name


def test_name_that_only_resembles_another_is_unknown_and_gets_suggestions(services: ToolServices) -> None:
    tools = build_tools(services)
    assert tools.find("reed_file") is None
    assert "read_file" in tools.near("reed_file")


def test_toolsets_select_and_exclude(services: ToolServices) -> None:
    acp = build_tools(services, enabled=["hermes-acp"]).names()
    assert "clarify" not in acp
    assert "terminal" in acp
    assert "terminal" not in build_tools(services, disabled=["shell"]).names()
    assert build_tools(services, enabled=["read_file", "planning"]).names() == ("read_file", "todo_list")


def test_children_neither_ask_nor_remember_nor_delegate(services: ToolServices) -> None:
    names = set(build_tools(services, child=True, may_delegate=False).names())
    assert not names & {"clarify", "memory", "delegate_task"}


def test_client_tools_exist_only_while_a_client_answers(services: ToolServices) -> None:
    assert "terminal_read" not in build_tools(services).names()
    names = build_tools(services, answers=lambda method: method == "terminal.read").names()
    assert "terminal_read" in names
    assert "window_read" not in names


def test_pinned_order_is_kept_and_new_tools_wait_for_the_next_session(services: ToolServices) -> None:
    tools = build_tools(services, pinned=["todo", "gone_tool", "terminal"])
    assert tools.names() == ("todo_list", "terminal")


def test_foreign_tool_never_replaces_a_built_in_one(services: ToolServices) -> None:
    class Impostor(TodoList):
        pass

    tools = build_tools(services, extra=[Impostor(services)])
    assert type(tools.find("todo_list")) is TodoList


def test_plugins_are_loaded_and_a_broken_one_is_left_out(services: ToolServices) -> None:
    points = [
        EntryPoint("good", "hermes.agent.tools.todo:TodoList", "hermes.tools"),
        EntryPoint("bad", "no_such_module_here:x", "hermes.tools"),
        EntryPoint("leaves", "sys:exit", "hermes.tools"),
    ]
    assert [tool.spec.name for tool in load_plugins(services, points)] == ["todo_list"]


@pytest.mark.parametrize(
    ("name", "arguments", "preview"),
    [
        ("terminal", {"command": "ls\n  -la"}, "ls -la"),
        ("terminal", {"command": "API_KEY=abcdef123456 run"}, "API_KEY=*** run"),
        ("read_file", {"path": "a.py", "offset": 3}, "a.py"),
        ("todo_list", {"todos": [1, 2]}, "2 items"),
        ("patch", {"patch": "*** Begin Patch\n*** Update File: a\n*** Delete File: b\n"}, "a, b"),
        ("delegate_task", {"tasks": [{"goal": "x"}, {"goal": "y"}]}, "x; y"),
        ("process_manage", {"action": "poll", "session_id": "proc_1"}, "poll proc_1"),
        ("clarify", {"questions": [{"question": "Which?"}]}, "Which?"),
        ("mcp__x__y", {"n": 1, "q": "s"}, "1"),
    ],
)
def test_preview_shows_the_main_argument(name: str, arguments: dict[str, Any], preview: str) -> None:
    assert tool_preview(name, arguments) == preview


def test_title_is_short_and_names_the_tool() -> None:
    title = tool_title("terminal", {"command": "x" * 300})
    assert title.startswith("terminal: xxx")
    assert len(title) == len("terminal: ") + 80


def test_kinds_follow_the_table_and_unknown_tools_are_other() -> None:
    kinds = [
        tool_kind(name)
        for name in ("read_file", "patch", "search_files", "terminal", "web_search", "memory", "mcp__a__b")
    ]
    assert kinds == ["read", "edit", "search", "execute", "fetch", "other", "other"]


def test_a_diff_names_its_lines_wherever_the_change_is_and_shows_what_is_too_long_to_compare_as_replaced() -> None:
    old = [f"{n}\n" for n in range(9000)]
    new = [*old[:5000], "changed\n", *old[5001:]]
    assert unified_diff("".join(old), "".join(new), "/w/a") == (
        "--- a/w/a\n+++ b/w/a\n@@ -4998,7 +4998,7 @@\n 4997\n 4998\n 4999\n-5000\n+changed\n 5001\n 5002\n 5003\n"
    )
    other = [old[0], *(f"x{line}" for line in old[1:-1]), old[-1]]
    lines = unified_diff("".join(old), "".join(other), "a").splitlines()
    assert lines[2:5] == ["@@ -1,9000 +1,9000 @@", " 0", "-1"]
    assert lines[-2:] == ["+x8998", " 8999"]
    assert len(lines) == 3 + 2 + 2 * 8998


def test_a_form_feed_ends_no_line_of_a_diff() -> None:
    assert unified_diff("a\fb\n", "a\fc\n", "x").splitlines(keepends=False)[0] == "--- a/x"
    assert unified_diff("a\fb\n", "a\fc\n", "x").split("\n")[3:5] == ["-a\fb", "+a\fc"]


def test_locations_and_diffs_for_editors() -> None:
    diff = FileDiff("/w/a.py", "a\nb\n", "a\nc\n")
    assert tool_locations("patch", {}, (diff,)) == (("/w/a.py", 2),)
    assert tool_locations("read_file", {"path": "a", "offset": 4}) == (("a", 4),)
    assert first_changed_line(FileDiff("x", None, "new")) is None
    assert unified_diff(None, "x\n", "/w/a").splitlines()[:2] == ["--- /dev/null", "+++ b/w/a"]
    assert "… 1 more files" in inline_diff([diff] * 7)


def test_results_are_readable_text() -> None:
    content = json.dumps({"output": "hi\n", "exit_code": 0, "error": None})
    assert result_text("terminal", {}, content) == "hi\nexit code 0"
    assert result_text("read_file", {}, json.dumps({"error": "no such file"})) == "no such file"
    assert result_text("unknown", {}, "plain") == "plain"
    assert "more characters" in result_text("unknown", {}, "x" * 9000)
    assert start_text("terminal", {"command": "ls"}) == "$ ls"
    assert start_text("read_file", {"path": "a"}) is None


def test_tools_of_installed_packages_are_offered_under_every_preset_unless_they_are_switched_off(
    services: ToolServices,
) -> None:
    plugin: Any = SimpleNamespace(spec=ToolSpec("weather", "the weather", {"type": "object"}), flags=ToolFlags())
    for preset in ("hermes-cli", "hermes-acp", "hermes-api-server"):
        assert "weather" in build_tools(services, enabled=[preset], plugins=[plugin]).names()
    assert "weather" not in build_tools(services, disabled=["weather"], plugins=[plugin]).names()
