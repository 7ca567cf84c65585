"""What the arguments and limits of tools promise and no other test holds them to, one promise a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.ports import StoredSession, ToolFailure, ToolOutput
from hermes.agent.tools.base import BuiltinTool
from hermes.agent.tools.clarify import Clarify
from hermes.agent.tools.command_output import exit_meaning
from hermes.agent.tools.delegate import DelegateTask
from hermes.agent.tools.files import ReadFile, WriteFile
from hermes.agent.tools.memory import Memory
from hermes.agent.tools.patch import Patch
from hermes.agent.tools.process import ProcessManage
from hermes.agent.tools.registry import build_tools, knows_v4a
from hermes.agent.tools.search import SearchFiles
from hermes.agent.tools.services import ToolServices
from hermes.agent.tools.session_search import SessionSearch
from hermes.agent.tools.skills import SkillsList
from hermes.messages import Withdrawn
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


# --- smaller promises ------------------------------------------------------------------------------------------------


async def test_a_list_of_processes_tells_all_that_one_needs_to_choose(ctx: FakeToolContext) -> None:
    ctx.processes.add("proc_1", cwd="/srv", started_at=ctx.now() - 12.34, output_preview="x" * 500)
    ctx.processes.add("proc_2", status="exited", exit_code=3, started_at=10.0, ended_at=14.0)
    running, ended = (await call(ctx, ProcessManage, {"action": "list"}))["processes"]
    assert running == {
        "session_id": "proc_1",
        "command": "serve",
        "cwd": "/srv",
        "pid": 7,
        "uptime_seconds": 12.3,
        "status": "running",
        "exit_code": None,
        "output_preview": "x" * 200,
    }
    assert (ended["status"], ended["exit_code"], ended["uptime_seconds"]) == ("exited", 3, 4.0)


async def test_a_read_shows_two_thousand_lines_at_most_and_says_where_to_go_on(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 2501)))
    for given in ({}, {"limit": 9999}):
        value = await call(FakeToolContext(tmp_path, tmp_path), ReadFile, {"path": "a.txt", **given})
        assert value["content"].splitlines()[-1] == "2000|2000"
        assert (value["truncated"], value["next_offset"], value["total_lines"]) == (True, 2001, 2500)
        assert "500 more lines" in value["hint"]
    (tmp_path / "wide.txt").write_text("y" * 2500 + "\n")
    value = await call(ctx, ReadFile, {"path": "wide.txt"})
    assert value["content"] == f"1|{'y' * 2000}… [500 more characters]" and value["truncated"] is True


async def test_a_search_shows_fifty_hits_and_where_the_next_ones_are(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hit\n" * 60)
    for number in range(60):
        (tmp_path / f"f{number:02}.md").write_text("x\n")
    found = await call(ctx, SearchFiles, {"pattern": "hit"})
    assert (found["total_count"], found["truncated"], "50" in found["hint"]) == (60, True, True)
    files = await call(ctx, SearchFiles, {"pattern": "*.md", "target": "files"})
    rest = await call(ctx, SearchFiles, {"pattern": "*.md", "target": "files", "offset": 50})
    assert (len(files["files"]), len(rest["files"]), rest.get("truncated", False)) == (50, 10, False)
    assert not set(files["files"]) & set(rest["files"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"questions": [{"question": "?"}] * 6}, "at most 5 questions"),
        ({"question": "?", "choices": ["a", "b", "c", "d", "e"]}, "at most 4 choices"),
        ({"questions": [{"question": " "}]}, "empty"),
    ],
)
async def test_more_questions_than_a_person_reads_are_not_asked(
    arguments: dict[str, Any], said: str, ctx: FakeToolContext
) -> None:
    with pytest.raises(ToolFailure, match=said):
        await call(ctx, Clarify, arguments)
    assert ctx.asked == []


def test_questions_that_a_stop_took_back_count_as_far_as_they_were_answered(
    ctx: FakeToolContext, services: ToolServices
) -> None:
    ctx.answer = Withdrawn("user_interrupt", {"answers": {"q0": "tea"}})
    value = json.loads(Clarify(services).cancelled(ctx, {"questions": [{"question": "a"}, {"question": "b"}]}).content)
    assert value["outcome"] == "cancelled"
    assert [one["status"] for one in value["responses"]] == ["answered", "unanswered"]


@pytest.mark.parametrize(("target", "limit"), [("memory", 2200), ("user", 1375)])
async def test_notes_have_a_limit_each_and_are_kept_as_they_were_beyond_it(
    target: str, limit: int, ctx: FakeToolContext
) -> None:
    fits = await call(ctx, Memory, {"target": target, "action": "add", "content": "x" * limit})
    assert fits["usage"] == f"{limit} of {limit} characters"
    with pytest.raises(ToolFailure, match=f"of {limit} characters") as caught:
        await call(ctx, Memory, {"target": target, "action": "add", "content": "y"})
    assert json.loads(caught.value.content)["entries"] == ["x" * limit]


async def test_only_the_final_state_of_several_operations_has_to_fit(ctx: FakeToolContext) -> None:
    await call(ctx, Memory, {"target": "user", "action": "add", "content": "x" * 1300})
    operations = [{"action": "add", "content": "z" * 1000}, {"action": "remove", "old_text": "xxx"}]
    assert (await call(ctx, Memory, {"target": "user", "operations": operations}))["entries"] == ["z" * 1000]


async def test_skills_can_be_listed_by_category(ctx: FakeToolContext) -> None:
    for folder in ("dev/a", "home/b"):
        (ctx.home / "skills" / folder).mkdir(parents=True)
        (ctx.home / "skills" / folder / "SKILL.md").write_text(f"---\nname: {folder[-1]}\ndescription: d\n---\nx")
    assert [one["name"] for one in (await call(ctx, SkillsList, {"category": "home"}))["skills"]] == ["b"]
    assert len((await call(ctx, SkillsList, {}))["skills"]) == 2


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "last"])
async def test_a_patch_keeps_line_endings_and_the_end_of_the_file(
    newline: str, end: str, ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(newline.join(("one", "two", "three", end)).encode())
    text = "*** Begin Patch\n*** Update File: a.txt\n one\n-two\n+2\n*** End Patch"
    await call(ctx, Patch, {"patch": text})
    assert (tmp_path / "a.txt").read_bytes() == newline.join(("one", "2", "three", end)).encode()


@pytest.mark.parametrize(
    ("program", "code", "part"),
    [
        ("grep", 1, "no lines matched"),
        ("diff", 1, "differ"),
        ("x", 124, "timed out"),
        ("x", 130, "interrupted"),
        ("x", 137, "killed"),
    ],
)
def test_well_known_exit_codes_have_a_meaning(program: str, code: int, part: str) -> None:
    assert part in str(exit_meaning(program, code))
    assert exit_meaning(program, 0) is None
