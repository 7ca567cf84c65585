"""Background processes whose end and the server's fall together, through the real process.

A process ends with its server, and one that a killed server has left is ended by the next. Its end is a turn of its
own only while the server lives; the next life begins none by itself, says ``not_found`` of it, and its histories are
whole."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.mortal_server import Deaths, mortal_servers
from tests.support.process_probe import Marks, running_with
from tests.support.proof import times
from tests.support.server_process import ServerProcess, assert_no_children

pytestmark = pytest.mark.e2e

LIMIT = 600 if os.environ.get("PROOF") else 90
ROUNDS = times(100, 4)
MARKS = Marks()


def calling(name: str, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": name, "arguments": arguments}})


def started(command: str) -> list[Reply]:
    return [
        Reply.of({"text": "so it ended"}, when={"last_user_contains": "finished, exit"}),
        calling("terminal", command=command, background=True, notify=True),
        Reply.of({"text": "started"}),
    ]


def looking(process_id: str) -> list[Reply]:
    return [
        calling("process_manage", action="poll", session_id=process_id),
        calling("process_manage", action="list"),
        Reply.of({"text": "looked"}),
    ]


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key-0123456789", "HERMES_MODEL": "fake-model"}


async def prompt(server: ServerProcess, session_id: str, text: str) -> str:
    """What the model says to it."""
    at = len(server.frames)
    await server.call("prompt.submit", {"session_id": session_id, "text": text})
    end = await server.event("message.complete", after=at)
    return str(end["params"]["payload"]["text"])


async def begin(servers: Deaths) -> tuple[ServerProcess, str, str]:
    """A server with a background process: the server, its stored session, the id of the process."""
    server = await servers.start("gateway")
    made = (await server.call("session.create", {}))["session_id"]
    assert await prompt(server, made, "go") == "started"
    [process] = (await server.call("process.list", {"session_id": made}))["processes"]
    [listed] = (await server.call("session.list", {}))["sessions"]
    return server, listed["id"], process["session_id"]


async def look_in_the_next_life(
    servers: Deaths, provider: FakeProvider, key: str, process_id: str
) -> list[dict[str, Any]]:
    """Resume the session, and have the model look for its process. Returns the history."""
    server = await servers.start("gateway")
    resumed = (await server.call("session.resume", {"session_id": key}))["session_id"]
    asked = len(provider.requests)
    # Whatever would begin by itself, begins before the next prompt is answered.
    provider.replace_script(Script.of(*looking(process_id), strict=True))
    assert await prompt(server, resumed, "and now?") == "looked"
    assert len(provider.requests) == asked + 3
    polled, listed = [
        json.loads(row["content"]) for row in provider.requests[-1].body["messages"] if row["role"] == "tool"
    ][-2:]
    assert (polled["status"], listed) == ("not_found", {"processes": []})
    assert (await server.call("process.list", {"session_id": resumed}))["processes"] == []
    rows: list[dict[str, Any]] = (await server.call("session.history", {"session_id": resumed}))["messages"]
    await assert_no_children(server)
    assert await server.stop() == 0
    return rows


def told(rows: list[dict[str, Any]]) -> int:
    return sum(row.get("display_kind") == "process_complete" for row in rows)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_process_does_not_outlive_its_server_and_the_next_one_says_that_it_is_not_there(
    how: str, tmp_path: Path
) -> None:
    mark = MARKS.next()
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*started(f"exec sleep {mark}"), strict=True)) as provider:
            async with mortal_servers(tmp_path / "home", environment(provider)) as servers:
                server, key, process_id = await begin(servers)
                if how == "stopped":
                    assert await server.stop() == 0
                    assert running_with(f"sleep {mark}") == []
                else:
                    await servers.kill(server)
                    assert running_with(f"sleep {mark}") != []
                rows = await look_in_the_next_life(servers, provider, key, process_id)
                assert running_with(f"sleep {mark}") == []
                assert told(rows) == 0


async def test_a_process_that_ends_while_no_server_lives_begins_no_turn_in_the_next_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = "until test -e go; do sleep 0.02; done; touch went"
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*started(command), strict=True)) as provider:
            async with mortal_servers(home, environment(provider)) as servers:
                server, key, process_id = await begin(servers)
                await servers.kill(server)
                (home / "go").touch()
                while not (home / "went").exists():
                    await trio.sleep(0.01)
                assert told(await look_in_the_next_life(servers, provider, key, process_id)) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_an_end_in_the_same_moment_as_the_servers_is_told_whole_or_not_at_all(
    how: signal.Signals, tmp_path: Path
) -> None:
    dice = random.Random(f"ends {how}")
    command = "until test -e go; do sleep 0.005; done"
    with trio.fail_after(LIMIT):
        for number in range(ROUNDS):
            home = tmp_path / f"home{number}"
            async with FakeProvider(Script.of(*started(command), strict=True)) as provider:
                async with mortal_servers(home, environment(provider)) as servers:
                    server, key, process_id = await begin(servers)
                    (home / "go").touch()
                    await trio.sleep(dice.uniform(0, 0.025))
                    server.process.send_signal(how)
                    await server.exit_code()
                    rows = await look_in_the_next_life(servers, provider, key, process_id)
                    at = [place for place, row in enumerate(rows) if row.get("display_kind") == "process_complete"]
                    assert len(at) <= 1, rows
                    # What has begun has an end of its own before the next prompt.
                    assert all(rows[place + 1]["role"] == "assistant" for place in at), rows
