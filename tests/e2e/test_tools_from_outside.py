"""Tools as a host meets them, through the real process: one node cancelled alone, many sessions, hostile output,
processes that go on beside the conversation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.drivers import GatewayDriver, driving
from tests.support.process_probe import Marks, running_with
from tests.support.server_process import HttpServer, assert_no_children

pytestmark = pytest.mark.e2e

PROOF = bool(os.environ.get("PROOF"))
SESSIONS, TURNS = 50, 20 if PROOF else 2
LIMIT = 600 if PROOF else 90
TOOL_SERVER = Path(__file__).parent.parent / "support" / "mcp_server_program.py"
MARKS = Marks()


def calls(*steps: tuple[str, dict[str, Any]], when: str | None = None) -> Reply:
    rule = None if when is None else {"last_user_contains": when, "last_role": "user"}
    return Reply.of(*({"tool_call": {"name": name, "arguments": given}} for name, given in steps), when=rule)


def terminal(command: str, *, when: str | None = None, **more: Any) -> Reply:
    return calls(("terminal", {"command": command, **more}), when=when)


def say(text: str, **more: Any) -> Reply:
    return Reply.of({"text": text}, **more)


@asynccontextmanager
async def playing(
    home: Path, *replies: Reply, surface: str = "gateway stdio", config: dict[str, Any] | None = None
) -> AsyncIterator[tuple[GatewayDriver, FakeProvider]]:
    """A server of this home with a scripted model that accepts no malformed history."""
    if config is not None:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "config.yaml").write_text(json.dumps(config))
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies, strict=True)) as provider:
            environ = {
                "OPENAI_BASE_URL": provider.base_url,
                "OPENAI_API_KEY": "test-key-0123456789",
                "HERMES_MODEL": "fake-model",
            }
            async with driving(surface, home, environ) as driver:
                assert isinstance(driver, GatewayDriver)
                yield driver, provider


def events(driver: GatewayDriver, kind: str) -> list[dict[str, Any]]:
    return [one["params"]["payload"] for one in driver.frames if one.get("params", {}).get("type") == kind]


def results_read_by_the_model(provider: FakeProvider, request: int) -> list[dict[str, Any]]:
    """The tool results of one request of the model (they count from 1)."""
    messages = provider.requests[request - 1].body["messages"]
    return [json.loads(row["content"]) for row in messages if row["role"] == "tool"]


def nodes(tree: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    own = [tree] if tree["kind"] == kind else []
    return own + [node for child in tree["children"] for node in nodes(child, kind)]


async def tool_nodes(driver: GatewayDriver, count: int) -> list[dict[str, Any]]:
    while True:
        found = nodes((await driver.call("tree.get", {}))["tree"], "tool_call")
        if len(found) == count:
            return found
        await trio.sleep(0.02)


# --- edits ------------------------------------------------------------------------------------------------------------


async def test_a_patch_of_several_files_is_taken_from_any_model_and_shown_with_relative_names(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "a.txt").write_text("one\ntwo\n")
    text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** Add File: sub/b.txt\n+new\n*** End Patch"
    edit = calls(("patch", {"mode": "patch", "patch": text}))
    watched = terminal("true", background=True, notify=["ready", "listening"])
    async with playing(home, edit, watched, say("done"), say("it ended")) as (driver, provider):
        await driver.start("edit")
        await driver.event("message.complete")
        result, started = results_read_by_the_model(provider, 3)
        shown = events(driver, "tool.complete")[0]["inline_diff"]
    assert result["success"] is True and (home / "sub/b.txt").read_text() == "new\n"
    assert (home / "a.txt").read_text() == "one\n2\n"
    assert "+++ b/a.txt" in shown and "+++ b/sub/b.txt" in shown and "a//" not in shown
    assert started["notify_on_complete"] is True and "not watched for patterns" in started["note"]


# --- one node ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", ["gateway stdio", "gateway websocket"])
async def test_one_of_three_parallel_calls_is_cancelled_by_its_node_and_the_turn_goes_on(
    surface: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    server = {
        "command": sys.executable,
        "args": [str(TOOL_SERVER), "stdio"],
        "env": {"SPECIMEN_NOTES": str(notes)},
        "supports_parallel_tool_calls": True,
    }
    name = "mcp__specimen__slow"
    three = calls(*((name, {"seconds": seconds}) for seconds in (6.0, 600.0, 6.1)))
    config = {"mcp_servers": {"specimen": server}}
    async with playing(tmp_path / "home", three, say("went on"), surface=surface, config=config) as (driver, provider):
        # Connected before the turn lists the tools, however busy the machine is.
        assert (await driver.call("mcp.servers.test", {"name": "specimen"}))["ok"] is True
        await driver.start("please")
        running = await tool_nodes(driver, 3)
        await driver.call("ping", {})
        one = next(node for node in running if node["details"]["arguments"]["seconds"] == 600)
        if surface == "gateway websocket":
            assert isinstance(driver.server, HttpServer)
            headers = {"Authorization": f"Bearer {driver.server.key}"}
            async with httpx2.AsyncClient(base_url=driver.server.origin, headers=headers) as client:
                answer = await client.delete(f"/v1/tree/{one['node_id']}", params={"reason": "too long"})
            assert (answer.status_code, answer.json()["cancelled"]) == (200, True)
        else:
            stopped = await driver.call("scope.cancel", {"node_id": one["node_id"], "reason": "too long"})
            assert stopped["cancelled"] is True
        assert (await driver.terminal())["status"] == "complete"
        read = [row["content"] for row in (provider.requests[1].body["messages"]) if row["role"] == "tool"]
        assert [("done" in text, "cancelled" in text) for text in read] == [
            (True, False),
            (False, True),
            (True, False),
        ]
        assert "too long" in read[1]
        assert len(events(driver, "tool.complete")) == 3
        await driver.call("session.close", {"session_id": driver.session_id})


async def test_the_tree_names_what_runs_for_a_call_and_hides_its_secrets(tmp_path: Path) -> None:
    mark = MARKS.next()
    command = f"export API_KEY=sk-abcdefghijklmnopqrstuvwxyz123456; setsid sleep {mark} & sleep {mark}"
    async with playing(tmp_path / "home", terminal(command, timeout=77), say("end")) as (driver, _):
        await driver.start("please")
        while len(running_with(f"sleep {mark}")) < 3:
            await trio.sleep(0.02)
        (node,) = await tool_nodes(driver, 1)
        assert "abcdefghijklmnop" not in json.dumps(node)
        running = {int(line.partition(":")[0]) for line in running_with(mark)}
        assert set(node["pids"]) == running
        assert (node["state"], node["name"]) == ("running", "terminal")
        assert node["age_s"] >= 0
        assert 60 < node["deadline_in_s"] <= 77
        await driver.call("scope.cancel", {"node_id": node["node_id"], "reason": "seen enough"})
        assert (await driver.terminal())["status"] == "complete"
        assert running_with(mark) == []


# --- many sessions ----------------------------------------------------------------------------------------------------


async def test_fifty_sessions_never_see_each_others_directory_variables_or_output(tmp_path: Path) -> None:
    replies = []
    for number in range(SESSIONS):
        for turn in range(TURNS):
            word = f"<s{number} t{turn}>"
            setting = f"mkdir -p deep; cd deep; export MINE=value-{number}; " if turn == 0 else ""
            replies.append(terminal(f'{setting}pwd; echo "$MINE|$SHARED|"; echo out-{number}-{turn}', when=word))
    replies.append(Reply.of({"text": "ok"}, when={"last_role": "tool"}))
    async with playing(tmp_path / "home", *replies) as (driver, provider):
        await driver.call("client.capabilities", {"server_requests": True})
        async with trio.open_nursery() as nursery:
            for number in range(SESSIONS):
                nursery.start_soon(one_of_many, driver, provider, tmp_path, number)


async def one_of_many(driver: GatewayDriver, provider: FakeProvider, tmp_path: Path, number: int) -> None:
    folder = tmp_path / f"work{number}"
    folder.mkdir()
    session_id = (await driver.call("session.create", {"cwd": str(folder)}))["session_id"]
    for turn in range(TURNS):
        at = len(driver.frames)
        word = f"<s{number} t{turn}>"
        await driver.call("prompt.submit", {"session_id": session_id, "text": word})
        await driver.find(
            lambda frame: (
                frame.get("params", {}).get("type") == "message.complete"
                and frame["params"]["session_id"] == session_id
            ),
            at,
        )
    mine = [one for one in provider.requests if f"<s{number} t" in json.dumps(one.body["messages"])]
    rows = [row for row in mine[-1].body["messages"] if row["role"] == "tool"]
    assert len(rows) == TURNS
    for turn, row in enumerate(rows):
        expected = f"{folder}/deep\nvalue-{number}||\nout-{number}-{turn}\n"
        assert json.loads(row["content"])["output"] == expected


# --- hostile output ---------------------------------------------------------------------------------------------------

BOMBS = {
    "no newline": "head -c 100000000 /dev/zero | tr '\\0' x",
    "NULs": "head -c 100000000 /dev/zero",
    "invalid UTF-8": "head -c 100000000 /dev/zero | tr '\\0' '\\377'",
    "lines": "yes 'a line of output' | head -c 100000000",
}


@pytest.mark.parametrize("kind", list(BOMBS))
async def test_a_hundred_megabytes_of_output_are_cut_as_documented_in_bounded_memory(kind: str, tmp_path: Path) -> None:
    async with playing(tmp_path / "home", say("hi"), terminal(BOMBS[kind]), say("end")) as (driver, provider):
        await driver.start("hello")
        await driver.terminal()
        before = peak_kilobytes(driver.server.pid)
        await driver.start("please")
        assert (await driver.terminal())["status"] == "complete"
        (result,) = results_read_by_the_model(provider, 3)
        assert result["exit_code"] == 0
        assert len(result["output"]) < 51_000
        if kind == "NULs":
            assert result["output"].strip("\n").startswith("[...") or "\0" not in result["output"]
        else:
            assert "left out" in result["output"]
        assert "\0" not in result["output"]
        assert peak_kilobytes(driver.server.pid) - before < 60_000


def peak_kilobytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


async def test_a_child_that_closes_its_output_and_lives_on_is_waited_for_and_one_that_keeps_it_is_not(
    tmp_path: Path,
) -> None:
    mark = MARKS.next()
    closes = "exec >&- 2>&-; sleep 0.3; exit 5"
    keeps = f"(trap '' HUP; sleep {mark}) & echo said; exit 0"
    async with playing(tmp_path / "home", terminal(closes), terminal(keeps), say("end")) as (driver, provider):
        began = trio.current_time()
        await driver.start("please")
        assert (await driver.terminal())["status"] == "complete"
        first, second = results_read_by_the_model(provider, 3)
        assert (first["exit_code"], first["output"]) == (5, "")
        assert (second["exit_code"], second["output"]) == (0, "said\n")
        assert trio.current_time() - began < 20
        assert running_with(mark) == []


# --- beside the conversation ------------------------------------------------------------------------------------------


async def test_background_processes_are_listed_polled_killed_and_tell_their_end_as_a_turn(tmp_path: Path) -> None:
    mark = MARKS.next()
    told = Reply.of({"text": "so it ended"}, when={"last_user_contains": "finished, exit 3"})
    start = calls(
        (
            "terminal",
            {
                "command": "echo hello; while [ ! -e go ]; do sleep 0.02; done; exit 3",
                "background": True,
                "notify": True,
            },
        ),
        ("terminal", {"command": f"sleep {mark}", "background": True}),
    )
    home = tmp_path / "home"
    async with playing(home, told, start, calls(("process_manage", {"action": "list"})), say("started")) as (
        driver,
        provider,
    ):
        await driver.start("please")
        assert (await driver.terminal())["text"] == "started"
        listed = results_read_by_the_model(provider, 3)[2]["processes"]
        assert [(one["status"], one["exit_code"]) for one in listed] == [("running", None)] * 2
        session = {"session_id": driver.session_id}
        shown = (await driver.call("process.list", session))["processes"]
        assert {one["status"] for one in shown} == {"running"}
        at = len(driver.frames)
        (home / "go").touch()
        end = await driver.event("message.complete", at)
        assert end["params"]["payload"]["text"] == "so it ended"
        user_row = provider.requests[3].body["messages"][-1]
        assert "exit 3" in str(user_row["content"]) and "hello" in str(user_row["content"])
        sleeper = next(one for one in shown if mark in one["command"])
        killed = await driver.call("process.kill", {**session, "process_id": sleeper["session_id"]})
        assert killed["status"] == "killed"
        assert running_with(mark) == []
        again = await driver.call("process.kill", {**session, "process_id": sleeper["session_id"]})
        assert again["status"] == "already_exited"
        assert await driver.call("process.stop", {}) == {"killed": 0}


async def test_a_stop_of_all_processes_and_the_end_of_the_session_leave_none(tmp_path: Path) -> None:
    marks = [MARKS.next(), MARKS.next()]
    replies = []
    for mark in marks:
        replies += [terminal(f"sleep {mark} & setsid sleep {mark} & echo", background=True), say("started")]
    async with playing(tmp_path / "home", *replies) as (driver, _):
        for mark in marks:
            await driver.start("please")
            await driver.terminal()
            while len(running_with(f"sleep {mark}")) < 2:
                await trio.sleep(0.02)
            if mark is marks[0]:
                # The command itself has ended: what it has left behind counts, and ends.
                assert await driver.call("process.stop", {"session_id": driver.session_id}) == {"killed": 1}
            else:
                await driver.call("session.close", {"session_id": driver.session_id})
            assert running_with(mark) == []
        await assert_no_children(driver.server)


async def test_names_that_are_no_utf8_cost_nobody_a_turn(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    odd = os.fsencode(home) + b"/caf\xe9"
    os.mkdir(odd)
    with open(odd + b"/t\xe9a.txt", "w") as file:
        file.write("needle\n")
    files = {"pattern": "*.txt", "target": "files"}
    replies = [
        terminal("cd caf*; pwd"),
        calls(("search_files", files), ("search_files", {"pattern": "needle"})),
        terminal("cat t*.txt; ls"),
        terminal("ls; echo API_KEY=sk-abcdefghijklmnopqrstuvwxyz123456; sleep 60", background=True),
        say("end"),
    ]
    async with playing(home, *replies) as (driver, provider):
        await driver.start("please")
        end = await driver.terminal()
        assert (end["status"], end["text"]) == ("complete", "end")
        read = results_read_by_the_model(provider, 5)
        assert read[0]["exit_code"] == 0
        assert len(read[1]["files"]) == 1 and read[2]["total_count"] == 1
        assert read[3]["output"].startswith("needle\n")
        history = await driver.call("session.history", {"session_id": driver.session_id})
        assert history["messages"]
        info = await driver.call("session.activate", {"session_id": driver.session_id})
        assert info["session_id"] == driver.session_id
        (listed,) = (await driver.call("process.list", {"session_id": driver.session_id}))["processes"]
        assert "caf" in listed["cwd"]
        assert "abcdefghijkl" not in json.dumps(listed)
