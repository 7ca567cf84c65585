"""What the arguments and limits of tools promise and no other test holds them to, one promise a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.ports import StoredSession, ToolFailure, ToolOutput
from hermes.agent.tools.base import BuiltinTool
from hermes.agent.tools.delegate import DelegateTask
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.patch import Patch
from hermes.agent.tools.process import ProcessManage
from hermes.agent.tools.registry import build_tools, knows_v4a
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.session_search import SessionSearch
from hermes.settings import Settings
from tests.support.tool_context import FakeToolContext, make_services


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


@pytest.fixture
def services(tmp_path: Path) -> ToolServices:
    return make_services(tmp_path)


async def call(
    ctx: FakeToolContext, kind: type[BuiltinTool], arguments: Mapping[str, Any], services: ToolServices | None = None
) -> dict[str, Any]:
    output = await kind(services or make_services(ctx.home.parent)).run(ctx, arguments)
    assert isinstance(output, ToolOutput)
    value: dict[str, Any] = json.loads(output.content)
    return value


# --- process_manage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "first", "last", "count"),
    [
        ({}, 101, 300, 200),
        ({"limit": 2}, 299, 300, 2),
        ({"offset": 1}, 1, 200, 200),
        ({"offset": 10, "limit": 3}, 10, 12, 3),
        ({"offset": 299, "limit": 50}, 299, 300, 2),
    ],
)
async def test_a_log_is_its_last_two_hundred_lines_or_what_is_asked_for(
    given: dict[str, Any], first: int, last: int, count: int, ctx: FakeToolContext
) -> None:
    ctx.processes.add("proc_1")
    ctx.processes.logs["proc_1"] = "".join(f"line {number}\n" for number in range(1, 301))
    value = await call(ctx, ProcessManage, {"action": "log", "session_id": "proc_1", **given})
    lines = value["output"].splitlines()
    assert (lines[0], lines[-1], len(lines)) == (f"line {first}", f"line {last}", count)
    assert (value["first_line"], value["total_lines"]) == (first, 300)
    assert "left_out" not in value


async def test_a_log_that_is_cut_says_how_much_is_left_out_and_where_it_begins(ctx: FakeToolContext) -> None:
    ctx.processes.add("proc_1")
    ctx.processes.logs["proc_1"] = "".join(f"{number:03} {'x' * 995}\n" for number in range(1, 101))
    value = await call(ctx, ProcessManage, {"action": "log", "session_id": "proc_1"})
    assert len(value["output"]) == 50_000
    assert value["left_out"] == 100 * 1000 - 1 - 50_000
    assert value["output"].splitlines()[1].startswith(f"{value['first_line'] + 1:03} ")


async def test_a_poll_gives_what_came_since_the_last_one_with_a_short_preview(ctx: FakeToolContext) -> None:
    ctx.processes.add("proc_1", output_preview="y" * 3000)
    ctx.processes.new["proc_1"] = "new\n"
    poll = {"action": "poll", "session_id": "proc_1"}
    first, second = [await call(ctx, ProcessManage, poll) for _ in range(2)]
    assert (first["output"], second["output"]) == ("new\n", "")
    assert (first["status"], len(first["output_preview"])) == ("running", 1000)
    assert "exit_code" not in first
    ctx.processes.add("proc_1", status="exited", exit_code=0)
    assert (await call(ctx, ProcessManage, poll))["exit_code"] == 0


@pytest.mark.parametrize("action", ["poll", "log", "wait", "kill", "write", "submit", "close"])
async def test_an_unknown_process_is_not_found_whatever_is_wanted_of_it(action: str, ctx: FakeToolContext) -> None:
    ctx.processes.add("proc_1")
    for wanted in ("proc_2", ""):
        value = await call(ctx, ProcessManage, {"action": action, "session_id": wanted, "data": "x"})
        assert value["status"] == "not_found" and repr(wanted) in value["error"]


async def test_raw_data_goes_in_as_it_is_and_close_ends_the_input(ctx: FakeToolContext) -> None:
    ctx.processes.add("proc_1")
    for action in ("write", "submit"):
        await call(ctx, ProcessManage, {"action": action, "session_id": "proc_1", "data": "a b"})
    await call(ctx, ProcessManage, {"action": "close", "session_id": "proc_1"})
    assert (ctx.processes.written, ctx.processes.closed) == ([b"a b", b"a b\n"], ["proc_1"])


@pytest.mark.parametrize(("asked", "waited"), [(None, 7.0), (0, 0.0), (3, 3.0), (10**6, 20.0)])
async def test_a_wait_takes_no_longer_than_the_settings_allow(
    asked: int | None, waited: float, ctx: FakeToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    async def wait(process_id: str, timeout: float) -> Any:
        times.append(timeout)
        return ctx.processes.get(process_id)

    monkeypatch.setattr(ctx.processes, "wait", wait)
    ctx.settings = Settings.model_validate({"terminal": {"timeout": 7, "max_foreground_timeout": 20}})
    ctx.processes.add("proc_1")
    value = await call(ctx, ProcessManage, {"action": "wait", "session_id": "proc_1", "timeout": asked})
    assert (times, value["status"]) == ([waited], "timeout")


def test_a_wait_that_is_interrupted_says_so(ctx: FakeToolContext, services: ToolServices) -> None:
    ctx.processes.add("proc_1")
    output = ProcessManage(services).cancelled(ctx, {"action": "wait", "session_id": "proc_1"})
    assert json.loads(output.content)["status"] == "interrupted"


# --- session_search --------------------------------------------------------------------------------------------------


class Archive:
    """Fifteen sessions; each was written in once by the user and once by the model, the later the higher its number.
    The best match comes first: they are found in an order that is neither that of time nor its reverse."""

    numbers = (7, 3, 11, 1, 15, 9, 2, 14, 5, 12, 4, 13, 6, 10, 8)

    async def search(self, query: str, *, limit: int = 20, key: str | None = None) -> list[dict[str, Any]]:
        return [
            {
                "session_key": f"s{number}",
                "row_id": number * 10 + at,
                "role": role,
                "snippet": f"{role} {number}",
                "timestamp": number * 100.0 + at,
                "title": f"Session {number}",
            }
            for number in self.numbers
            for at, role in enumerate(("user", "assistant"))
        ][:limit]

    async def get_session(self, key: str) -> StoredSession | None:
        return None

    async def list_sessions(self, *, limit: int, **_kwargs: Any) -> list[StoredSession]:
        return [StoredSession(f"s{number}", title=f"Session {number}") for number in self.numbers][:limit]


def keys(value: Mapping[str, Any]) -> list[str]:
    return [one["session_id"] for one in value["sessions"]]


FOUND = ["s7", "s3", "s11", "s1", "s15", "s9", "s2", "s14", "s5", "s12", "s4", "s13", "s6", "s10", "s8"]
DISCOVERED: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, FOUND[:3]),
    ({"limit": 5}, FOUND[:5]),
    ({"limit": 10}, FOUND[:10]),
    ({"limit": 500}, FOUND[:10]),
    ({"sort": "newest"}, ["s15", "s14", "s13"]),
    ({"sort": "oldest"}, ["s1", "s2", "s3"]),
    ({"exclude_session_ids": ["s7", "s11"]}, ["s3", "s1", "s15"]),
    ({"after": "1300"}, ["s15", "s14", "s13"]),
    ({"before": 300, "sort": "newest"}, ["s3", "s2", "s1"]),
    ({"after": "1970-01-01T00:23:20+00:00"}, ["s15", "s14"]),
)


@pytest.mark.parametrize(("given", "expected"), DISCOVERED)
async def test_a_search_finds_the_sessions_that_are_asked_for(
    given: dict[str, Any], expected: list[str], ctx: FakeToolContext
) -> None:
    ctx.store = Archive()
    value = await call(ctx, SessionSearch, {"query": "x", **given})
    assert keys(value) == expected
    assert value["sessions"][0]["title"] == f"Session {expected[0][1:]}"


@pytest.mark.parametrize(
    ("role", "matches"),
    [
        (None, [(70, "user", "user 7"), (71, "assistant", "assistant 7")]),
        ("assistant", [(71, "assistant", "assistant 7")]),
        ("user", [(70, "user", "user 7")]),
    ],
)
async def test_a_search_can_be_limited_to_one_role(
    role: str | None, matches: list[tuple[int, str, str]], ctx: FakeToolContext
) -> None:
    ctx.store = Archive()
    [first, *_] = (await call(ctx, SessionSearch, {"query": "x", "role_filter": role}))["sessions"]
    assert [(one["message_id"], one["role"], one["snippet"]) for one in first["matches"]] == matches


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, FOUND[:3]), ({"limit": 99}, FOUND[:10]), ({"exclude_session_ids": ["s7"]}, FOUND[1:4])],
)
async def test_without_arguments_the_recent_sessions_are_listed(
    given: dict[str, Any], expected: list[str], ctx: FakeToolContext
) -> None:
    ctx.store = Archive()
    assert keys(await call(ctx, SessionSearch, given)) == expected


# --- delegate_task ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"output_schema": "a table"}, "output_schema must be a JSON schema, an object"),
        ({"output_schema": []}, "output_schema must be a JSON schema, an object"),
        ({"output_schema": True}, "output_schema must be a JSON schema, an object"),
        ({"toolsets": "files"}, "toolsets must be a list of names"),
        ({"toolsets": [7]}, "toolsets must be a list of names"),
        ({"role": "boss"}, "role must be leaf or orchestrator"),
        ({"group": {"a": 1}}, "group must be a text"),
    ],
)
async def test_a_task_that_says_what_cannot_be_kept_is_refused_in_words(
    wrong: dict[str, Any], said: str, ctx: FakeToolContext
) -> None:
    for arguments in ({"goal": "look", **wrong}, {"tasks": [{"goal": "look", **wrong}]}):
        with pytest.raises(ToolFailure, match=f"task 0: {said}"):
            await call(ctx, DelegateTask, arguments)
    assert ctx.delegated == []


# --- files -----------------------------------------------------------------------------------------------------------


def agents(tmp_path: Path) -> tuple[FakeToolContext, FakeToolContext]:
    """Two agents of one server that work in one folder."""
    mine, sibling = (FakeToolContext(tmp_path, tmp_path) for _ in range(2))
    sibling.session_key = "session_of_a_sibling"
    return mine, sibling


EDITS: tuple[tuple[type[BuiltinTool], Mapping[str, Any]], ...] = (
    (WriteFile, {"path": "a.txt", "content": "mine\n"}),
    (Patch, {"path": "a.txt", "old_string": "theirs", "new_string": "mine"}),
    (Patch, {"patch": "*** Begin Patch\n*** Update File: a.txt\n-theirs\n+mine\n*** End Patch"}),
)


@pytest.mark.parametrize(("kind", "arguments"), EDITS)
async def test_a_siblings_write_of_what_was_read_is_told_and_not_overwritten(
    kind: type[BuiltinTool], arguments: Mapping[str, Any], tmp_path: Path, services: ToolServices
) -> None:
    mine, sibling = agents(tmp_path)
    (tmp_path / "a.txt").write_text("first\n")
    for agent in (mine, sibling):
        await call(agent, ReadFile, {"path": "a.txt"}, services)
    await call(sibling, WriteFile, {"path": "a.txt", "content": "theirs\n"}, services)
    with pytest.raises(ToolFailure, match="was written by another agent of this server since it was read"):
        await call(mine, kind, arguments, services)
    assert (tmp_path / "a.txt").read_text() == "theirs\n"
    await call(mine, ReadFile, {"path": "a.txt"}, services)
    assert "another agent" not in json.dumps(await call(mine, kind, arguments, services))
    assert (tmp_path / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize(("kind", "arguments"), EDITS)
async def test_a_siblings_write_of_what_was_never_read_is_told_with_the_result(
    kind: type[BuiltinTool], arguments: Mapping[str, Any], tmp_path: Path, services: ToolServices
) -> None:
    mine, sibling = agents(tmp_path)
    await call(sibling, WriteFile, {"path": "a.txt", "content": "theirs\n"}, services)
    assert "another agent of this server had written" in (await call(mine, kind, arguments, services))["note"]
    assert (tmp_path / "a.txt").read_text() == "mine\n"


async def test_a_change_by_another_program_is_not_laid_at_a_siblings_door(
    tmp_path: Path, services: ToolServices
) -> None:
    mine, sibling = agents(tmp_path)
    await call(sibling, WriteFile, {"path": "a.txt", "content": "theirs\n"}, services)
    await call(mine, ReadFile, {"path": "a.txt"}, services)
    (tmp_path / "a.txt").write_text("by an editor\n")
    with pytest.raises(ToolFailure, match="changed on disk since it was read"):
        await call(mine, WriteFile, {"path": "a.txt", "content": "mine\n"}, services)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-5.1", True),
        ("openai/gpt-4o", True),
        ("GPT-4.1", True),
        ("ft:gpt-4o:team::1", True),
        ("o1", True),
        ("o4-mini", True),
        ("openrouter/openai/o3", True),
        ("codex-mini-latest", True),
        ("claude-opus-4-5", False),
        ("anthropic/claude-sonnet-4", False),
        ("olmo-3", False),
        ("demo", False),
        ("", False),
    ],
)
def test_the_patch_format_of_one_family_is_told_to_that_family_alone(
    model: str, known: bool, services: ToolServices
) -> None:
    assert knows_v4a(model) is known
    [patch] = [one for one in build_tools(services, v4a=known).specs() if one.name == "patch"]
    assert ("patch" in patch.parameters["properties"], "mode" in patch.parameters["properties"]) == (known, known)
    assert patch.parameters.get("required", []) == ([] if known else ["path", "old_string", "new_string"])


@pytest.mark.parametrize("v4a", [False, True])
def test_both_formats_are_accepted_of_every_model(v4a: bool, services: ToolServices) -> None:
    tool = build_tools(services, v4a=v4a).find("patch")
    assert tool is not None
    assert {"patch", "mode", "old_string"} <= set((tool.spec.accepts or tool.spec.parameters)["properties"])
