"""What a model, a repository and a skill that mean harm can do through a real server: less than they would like."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import COMMAND, ServerProcess, clean_environment, kill_leftovers, server_process
from tests.support.terminal import PtyTerminal, line, pty_terminal, shows

pytestmark = pytest.mark.e2e
LIMIT = 60
KEY = "a-key-that-looks-like-none-0123456789"


def call(tool: str, /, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": tool, "arguments": arguments}})


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": KEY, "HERMES_MODEL": "fake-model"}


@asynccontextmanager
async def gateway(home: Path, *replies: Reply) -> AsyncIterator[tuple[ServerProcess, FakeProvider]]:
    """A server whose model gives these replies and then says that it is done."""
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script(replies=[*replies, Reply.of({"text": "done"})])) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                yield server, provider


async def turn(server: ServerProcess, cwd: Path) -> dict[str, Any]:
    """The end of a turn in a new session."""
    made = await server.call("session.create", {"cwd": str(cwd)})
    at = len(server.frames)
    await server.call("prompt.submit", {"session_id": made["session_id"], "text": "please"})
    end: dict[str, Any] = (await server.event("message.complete", after=at))["params"]["payload"]
    return end


def results(provider: FakeProvider) -> list[dict[str, Any]]:
    rows = provider.requests[-1].body["messages"]
    return [json.loads(row["content"]) for row in rows if row["role"] == "tool"]


@pytest.mark.parametrize("name", ["todo", "terminal", "no_such_tool"])
async def test_arguments_that_are_nested_too_deeply_are_the_models_error_and_the_turn_goes_on(
    name: str, tmp_path: Path
) -> None:
    deep = [Reply.of({"tool_call": {"name": name, "arguments": f'{{"a":{"[" * n}{"]" * n}}}'}}) for n in (150, 5000)]
    async with gateway(tmp_path / "home", *deep) as (server, provider):
        end = await turn(server, tmp_path)
        assert (end["status"], end["text"]) == ("complete", "done"), end
        assert len(provider.requests) == 3
        told = [row["content"] for row in provider.requests[-1].body["messages"] if row["role"] == "tool"]
        assert len(told) == 2 and all(
            ("unknown tool" if name == "no_such_tool" else "nested more than") in text for text in told
        )
        assert "Traceback" not in server.stderr


@pytest.mark.parametrize("spelled", ["linked", "real"])
async def test_the_homes_secrets_are_not_read_or_written_though_the_home_is_reached_by_a_link(
    spelled: str, tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (tmp_path / "linked").symlink_to(real)
    (real / ".env").write_text(f"SOME_API_KEY={KEY}\n")
    (real / "server.key").write_text(KEY)
    folder = tmp_path / spelled
    calls = [
        call("read_file", path=str(folder / "server.key")),
        call("read_file", path=str(folder / ".env")),
        call("write_file", path=str(folder / "sessions.db"), content="x"),
        call("write_file", path=str(folder / "config.yaml"), content="x"),
        call("search_files", pattern="a-key-that", path=str(folder)),
    ]
    async with gateway(tmp_path / "linked", *calls) as (server, provider):
        assert (await turn(server, tmp_path))["status"] == "complete"
        found = results(provider)
        assert [result.get("status") for result in found[:4]] == ["blocked"] * 4, found
        assert KEY not in json.dumps(provider.requests[-1].body)


async def test_an_instruction_file_that_is_a_link_to_credentials_is_not_in_the_prompt(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home / ".aws", work / ".git", work / "below"):
        folder.mkdir(parents=True)
    (home / ".aws" / "credentials").write_text("the-credentials-of-the-user")
    (home / ".netrc").write_text("the-credentials-of-the-user")
    (work / "AGENTS.md").symlink_to(home / ".aws" / "credentials")
    (work / "below" / "AGENTS.md").symlink_to(home / ".netrc")
    (work / "CLAUDE.md").symlink_to(work / "rules.md")
    (work / "rules.md").write_text("rules-of-the-project")
    (work / "below" / "a.txt").write_text("x\n")
    async with gateway(home, call("read_file", path=str(work / "below" / "a.txt"))) as (server, provider):
        assert (await turn(server, work))["status"] == "complete"
        sent = json.dumps(provider.requests[-1].body)
        assert "rules-of-the-project" in sent
        assert "the-credentials-of-the-user" not in sent


BOMB = "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12))


@pytest.mark.parametrize(
    "front",
    [
        "description: 2020-13-45",
        f"description: {'[' * 2000}{']' * 2000}",
        "a: !!float x",
        f"a: &a [x, x]\n{BOMB}description: *m",
        f"a: &a [x, x]\n{BOMB}tags: *m",
        f"a: &a [x, x]\n{BOMB}name: *m\nrequired_environment_variables: *m",
        "? {a: b}\n: c",
    ],
)
async def test_a_skill_whose_head_is_hostile_costs_neither_the_turn_nor_the_other_skills(
    front: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for name, head in (("hostile", front), ("honest", "description: An honest skill.")):
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(f"---\n{head}\n---\nBody of the {name} one.\n")
    async with gateway(home, call("skill_view", name="hostile")) as (server, provider):
        assert (await turn(server, tmp_path))["status"] == "complete"
        assert "An honest skill." in json.dumps(provider.requests[0].body)
        assert "Body of the hostile one." in json.dumps(results(provider))


async def test_what_the_server_keeps_is_for_its_owner_alone_in_a_home_that_others_may_enter(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    note = call("memory", target="memory", operations=[{"action": "add", "content": "likes tea"}])
    async with gateway(home, note, call("terminal", command="seq 1 200000")) as (server, _):
        session = {"session_id": (await server.call("session.create", {"cwd": str(tmp_path)}))["session_id"]}
        await server.call("image.attach_bytes", {**session, "data": picture})
        await server.call("file.attach", {**session, "data_url": "data:text/plain;base64,aGFsbG8=", "name": "x.txt"})
        await server.call("prompt.submit", {**session, "text": "please"})
        await server.event("message.complete")
        await server.call("session.save", session)
        kept = {path.parts[len(home.parts)] for path in home.rglob("*") if path.is_file()}
        assert {"attachments", "cache", "images", "memories", "sessions", "sessions.db"} <= kept
        assert [str(path) for path in home.rglob("*") if path.is_file() and others_may_read(path, home)] == []


def others_may_read(path: Path, home: Path) -> bool:
    """With the rights of the file and of every folder on the way to it, the home itself let alone."""
    way = [folder for folder in path.parents if folder.is_relative_to(home) and folder != home]
    return bool(path.stat().st_mode & 0o044) and all(folder.stat().st_mode & stat.S_IXOTH for folder in way)


async def test_commands_and_servers_do_not_see_the_keys_of_providers(tmp_path: Path) -> None:
    asked = call("terminal", command="env; cat /proc/self/environ | tr '\\0' '\\n'")
    async with gateway(tmp_path / "home", asked) as (server, provider):
        assert (await turn(server, tmp_path))["status"] == "complete"
        assert "HERMES_HOME" in json.dumps(results(provider))
        assert KEY not in json.dumps(provider.requests[-1].body) and KEY not in json.dumps(server.frames)


async def test_a_diff_and_an_answer_do_not_drive_the_terminal(tmp_path: Path) -> None:
    """Neither the clipboard (OSC 52) nor the title of the window, a report or another screen."""
    hostile = "\x1b]52;c;Y3VybCBldmls\x07 \x1b]0;owned\x07 \x1b[6n \x9b?1049h \x1bP+q\x1b\\ mark\n"
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("host:\n  yolo: true\n")
    write = call("write_file", path=str(tmp_path / "note.txt"), content=hostile)
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script(replies=[write, Reply.of({"text": f"done {hostile}"})])) as provider:
            environ = clean_environment(home) | environment(provider) | {"LANG": "C.UTF-8"}
            async with pty_terminal([str(COMMAND)], cwd=tmp_path, environ=environ) as terminal:
                await shows(terminal, "ready")
                await line(terminal, "write it")
                screen = await shows(terminal, "done", "mark")
                assert "+" in screen
                assert_harmless(terminal)
        kill_leftovers(home)
    assert os.path.exists(tmp_path / "note.txt")


def assert_harmless(terminal: PtyTerminal) -> None:
    raw = bytes(terminal.written)
    for sequence in (b"\x1b]52", b"owned\x07", b"\x1b]0;owned", b"\xc2\x9b", b"\x1bP"):
        assert sequence not in raw, sequence
