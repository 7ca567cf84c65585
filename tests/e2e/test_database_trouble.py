"""The session database cannot be used, through the real process: said clearly, nothing accepted lost, nothing run."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from hermes.testing.seed import seed
from tests.support.server_process import ServerProcess, free_port, server_process

pytestmark = pytest.mark.e2e


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


async def say(server: ServerProcess, session_id: str, text: str, **target: Any) -> dict[str, Any]:
    """The payload of the turn's end, or the error object of a refused submit."""
    at = len(server.frames)
    response = await server.request("prompt.submit", {"session_id": session_id, "text": text, **target})
    if "error" in response:
        refusal: dict[str, Any] = response["error"]
        return refusal
    frame = await server.event("message.complete", after=at)
    payload: dict[str, Any] = frame["params"]["payload"]
    return payload


async def texts(server: ServerProcess, session_id: str) -> list[str]:
    history = await server.call("session.history", {"session_id": session_id})
    return [message["text"] for message in history["messages"]]


async def test_a_lock_of_another_program_does_not_hold_up_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    call = Reply.of({"tool_call": {"name": "terminal", "arguments": {"command": "sleep 7010"}}})
    with trio.fail_after(60):
        async with FakeProvider(Script.of(call)) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                session_id = (await server.call("session.create", {"cwd": str(tmp_path)}))["session_id"]
                await server.call("prompt.submit", {"session_id": session_id, "text": "wait"})
                await server.event("tool.start")
                other = sqlite3.connect(home / "sessions.db", isolation_level=None)
                other.execute("BEGIN IMMEDIATE")
                began = trio.current_time()
                assert await server.stop() == 0
                # Without the end of patience: three waits of 5 s each, one after the other.
                assert trio.current_time() - began < 8
                other.close()
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                # The call whose result could not be stored is given one when the session is loaded and goes on.
                listed = await server.call("session.list")
                assert [one["message_count"] for one in listed["sessions"]] == [2]


# --- at the start ----------------------------------------------------------------------------------------------------


async def make_foreign(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE sessions (id TEXT)")
    database.close()
    return "belongs to another program"


async def make_newer(path: Path) -> str:
    async with server_process(path.parent, "gateway") as server:
        await server.event("gateway.ready")
        await server.call("session.list")
        await server.stop()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE schema_version SET version = 99")
    database.close()
    return "a newer version wrote"


async def make_garbage(path: Path) -> str:
    path.write_bytes(b"not a database at all " * 1000)
    return "not a database file"


async def make_damaged(path: Path) -> str:
    await make_newer(path)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE schema_version SET version = 1")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    database.close()
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\xff" * (len(data) - 4096 * 2)
    path.write_bytes(data)
    return "damaged"


@pytest.mark.parametrize("make", [make_foreign, make_newer, make_garbage, make_damaged])
@pytest.mark.parametrize("command", ["gateway", "acp", "serve"])
async def test_a_database_that_is_not_ours_to_use_is_refused_at_the_start_and_left_untouched(
    make: Any, command: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    path = home / "sessions.db"
    with trio.fail_after(60):
        words = await make(path)
        before = path.read_bytes()
        arguments = (command, "--port", str(free_port())) if command == "serve" else (command,)
        async with server_process(home, *arguments) as server:
            assert await server.exit_code() == 1
            await server.wait_until(lambda: server.output_ended)
        said = [line for line in (*server.stderr.splitlines(), *server.stray) if words in line and "ERROR" not in line]
        assert len(said) == 1, server.stderr
        assert str(home) not in said[0]
        assert "Traceback" not in server.stderr
        assert path.read_bytes() == before


# --- while it runs ---------------------------------------------------------------------------------------------------


@pytest.mark.fault("B-119")
async def test_a_database_that_cannot_grow_refuses_prompts_and_rewinds_and_is_used_again_afterwards(
    tmp_path: Path,
) -> None:
    """The server may write no file beyond its size of now: what a full disk or a quota does."""
    home = tmp_path / "home"
    with trio.fail_after(90):
        async with FakeProvider(Script(strict=True)) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                session_id = (await server.call("session.create", {}))["session_id"]
                assert (await say(server, session_id, "one"))["status"] == "complete"
                before = await texts(server, session_id)
                limit = (home / "sessions.db-wal").stat().st_size
                resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                requests = len(provider.requests)
                refused = await say(server, session_id, "x" * 100_000)
                assert refused["code"] in (5070, 5071), refused
                assert refused["data"]["cause"] in ("full", "io")
                confirmed = {"confirm_truncate": True, "confirm_empty_truncate": True}
                refused = await say(server, session_id, "y" * 100_000, truncate_before_user_ordinal=0, **confirmed)
                assert refused["code"] == 5008, refused
                assert len(provider.requests) == requests, "the model was asked although nothing could be stored"
                assert await texts(server, session_id) == before
                resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                assert (await say(server, session_id, "two"))["status"] == "complete"
                assert await texts(server, session_id) == [*before, "two", "two"]
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                listed = await server.call("session.list")
                back = await server.call("session.resume", {"session_id": listed["sessions"][0]["id"]})
                assert await texts(server, back["session_id"]) == [*before, "two", "two"]


async def test_the_tool_of_a_call_that_cannot_be_stored_is_not_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    mark = tmp_path / "it-ran"
    call = {"tool_call": {"name": "terminal", "arguments": {"command": f"touch {mark}"}}}
    script = Script.of(
        Reply.of({"wait_for": "locked"}, call, when={"last_user_contains": "touch it"}),
        Reply.of({"echo": ""}, when={"last_role": "user"}),
        strict=True,
    )
    with trio.fail_after(90):
        async with FakeProvider(script) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                session_id = (await server.call("session.create", {}))["session_id"]
                await server.call("prompt.submit", {"session_id": session_id, "text": "touch it"})
                await provider.wait_for_request(1)
                other = sqlite3.connect(home / "sessions.db", isolation_level=None)
                other.execute("BEGIN IMMEDIATE")
                provider.release("locked")
                end = (await server.event("message.complete"))["params"]["payload"]
                assert end["status"] == "error"
                assert end["failure_reason"] == "session_persistence_failed:locked", end
                assert not mark.exists()
                assert "tool.start" not in [frame.get("params", {}).get("type") for frame in server.frames]
                assert await server.call("ping") == {"pong": True}
                other.execute("ROLLBACK")
                other.close()
                assert (await say(server, session_id, "again"))["status"] == "complete"
                assert not mark.exists()
                said = [text for text in await texts(server, session_id) if text in ("touch it", "again")]
                assert said == ["touch it", "again", "again"]


async def test_a_database_locked_by_another_program_is_named_and_read_meanwhile(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(90):
        async with FakeProvider(Script(strict=True)) as provider:
            async with server_process(home, "gateway", environ=environment(provider)) as server:
                session_id = (await server.call("session.create", {}))["session_id"]
                await say(server, session_id, "one")
                other = sqlite3.connect(home / "sessions.db", isolation_level=None)
                other.execute("BEGIN IMMEDIATE")
                refused = await say(server, session_id, "two")
                assert refused["code"] == 5071, refused
                assert refused["data"]["cause"] == "locked"
                assert len((await server.call("session.list"))["sessions"]) == 1
                assert await texts(server, session_id) == ["one", "one"]
                other.execute("ROLLBACK")
                other.close()
                assert (await say(server, session_id, "two"))["status"] == "complete"


async def test_damage_that_shows_while_it_runs_is_named_and_the_server_lives(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with trio.fail_after(90):
        key = await seed(home, 3000)
        async with server_process(home, "gateway") as server:
            await server.event("gateway.ready")
            assert await server.call("ping") == {"pong": True}
            path = home / "sessions.db"
            data = bytearray(path.read_bytes())
            data[4096 * 20 :] = b"\xff" * (len(data) - 4096 * 20)
            path.write_bytes(data)
            response = await server.request("session.resume", {"session_id": key})
            assert response["error"]["data"]["cause"] == "corrupt", response
            assert await server.call("ping") == {"pong": True}
            assert await server.stop() == 0
