"""A second program that holds the lock, a full disk, and files that may not be written, on every surface of the real
process."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import COMMAND, ServerProcess, free_port, http_server, server_process

pytestmark = pytest.mark.e2e
HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another_program(path: Path) -> Iterator[None]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.communicate()


def script(mark: Path) -> Script:
    call = {"tool_call": {"name": "terminal", "arguments": {"command": f"touch {mark}"}}}
    return Script.of(
        Reply.of({"wait_for": "locked"}, call, when={"last_user_contains": "touch it"}),
        Reply.of({"echo": ""}, when={"last_role": "user"}),
        strict=True,
    )


def environment(provider: FakeProvider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k" * 20, "HERMES_MODEL": "fake-model"}


async def test_over_acp_the_tool_of_an_unstored_call_is_not_run_and_the_next_prompt_works(tmp_path: Path) -> None:
    home, mark = tmp_path / "home", tmp_path / "it-ran"
    with trio.fail_after(90):
        async with FakeProvider(script(mark)) as provider:
            async with server_process(home, "acp", environ=environment(provider)) as server:
                await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                key = (await server.call("session/new", {"cwd": str(home), "mcpServers": []}))["sessionId"]

                async def prompt(text: str) -> dict[str, Any]:
                    given = {"sessionId": key, "prompt": [{"type": "text", "text": text}]}
                    return await server.request("session/prompt", given)

                answers: list[dict[str, Any]] = []
                answered = trio.Event()

                async def first() -> None:
                    answers.append(await prompt("touch it"))
                    answered.set()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(first)
                    await provider.wait_for_request(1)
                    with held_by_another_program(home / "sessions.db"):
                        provider.release("locked")
                        await answered.wait()
                        refused = await prompt("while it is held")
                for answer in (*answers, refused):
                    assert answer["error"]["data"]["cause"] == "locked", answer
                assert "the conversation could not be saved" in answers[0]["error"]["message"]
                assert not mark.exists()
                again = await prompt("again")
                assert again["result"]["stopReason"] == "end_turn", again
                assert not mark.exists()


async def test_over_http_the_tool_of_an_unstored_call_is_not_run_and_the_next_prompt_works(tmp_path: Path) -> None:
    home, mark = tmp_path / "home", tmp_path / "it-ran"
    with trio.fail_after(90):
        async with FakeProvider(script(mark)) as provider:
            async with http_server(home, environ=environment(provider)) as server:
                headers = {"Authorization": f"Bearer {server.key}", "X-Hermes-Session-Id": "held"}
                async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=60) as client:

                    async def prompt(text: str) -> Any:
                        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
                        return await client.post("/v1/chat/completions", json=body)

                    answers: list[Any] = []

                    async def first() -> None:
                        answers.append(await prompt("touch it"))

                    with held_until_answered(home, provider) as hold:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(first)
                            await provider.wait_for_request(1)
                            hold()
                    assert answers[0].status_code == 502
                    words = "the conversation could not be saved: another program holds the session database locked"
                    assert answers[0].json()["error"]["message"] == words
                    assert not mark.exists()
                    again = await prompt("again")
                    assert again.status_code == 200, again.text
                    assert not mark.exists()


def cannot_grow(server: ServerProcess) -> None:
    """The server may write no file beyond its size of now: what a full disk or a quota does."""
    limit = (server.home / "sessions.db-wal").stat().st_size
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def can_grow(server: ServerProcess) -> None:
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def test_over_acp_a_full_disk_refuses_the_prompt_and_nothing_is_sent_to_the_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(60):
        async with FakeProvider(Script(strict=True)) as provider:
            async with server_process(home, "acp", environ=environment(provider)) as server:
                await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                key = (await server.call("session/new", {"cwd": str(home), "mcpServers": []}))["sessionId"]

                async def prompt(text: str) -> dict[str, Any]:
                    given = {"sessionId": key, "prompt": [{"type": "text", "text": text}]}
                    return await server.request("session/prompt", given)

                assert (await prompt("one"))["result"]["stopReason"] == "end_turn"
                asked = len(provider.requests)
                cannot_grow(server)
                refused = await prompt("x" * 100_000)
                assert refused["error"]["data"]["cause"] in ("full", "io"), refused
                assert len(provider.requests) == asked
                can_grow(server)
                assert (await prompt("two"))["result"]["stopReason"] == "end_turn"
                assert await server.stop() == 0
    assert stored_texts(home) == ["one", "one", "two", "two"]


async def test_over_http_a_full_disk_refuses_the_prompt_and_nothing_is_sent_to_the_model(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with trio.fail_after(60):
        async with FakeProvider(Script(strict=True)) as provider:
            async with http_server(home, environ=environment(provider)) as server:
                headers = {"Authorization": f"Bearer {server.key}", "X-Hermes-Session-Id": "full"}
                async with httpx2.AsyncClient(base_url=server.origin, headers=headers, timeout=60) as client:

                    async def prompt(text: str) -> Any:
                        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
                        return await client.post("/v1/chat/completions", json=body)

                    assert (await prompt("one")).status_code == 200
                    asked = len(provider.requests)
                    cannot_grow(server)
                    refused = await prompt("x" * 100_000)
                    assert refused.status_code in (502, 503), refused.text
                    assert "database" in refused.json()["error"]["message"]
                    assert len(provider.requests) == asked
                    can_grow(server)
                    assert (await prompt("two")).status_code == 200
                assert await server.stop() == 0
    assert stored_texts(home) == ["one", "one", "two", "two"]


def stored_texts(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "sessions.db")) as database:
        found = database.execute("SELECT content FROM messages WHERE active = 1 ORDER BY position, id")
        return [text for (text,) in found]


@contextmanager
def held_until_answered(home: Path, provider: FakeProvider) -> Iterator[Any]:
    holders = []

    def hold() -> None:
        holder = held_by_another_program(home / "sessions.db")
        holder.__enter__()
        holders.append(holder)
        provider.release("locked")

    yield hold
    for holder in holders:
        holder.__exit__(None, None, None)


@pytest.fixture
def bound_command(tmp_path: Path) -> Path:
    """``hermes`` to which file permissions apply, whoever runs the tests."""
    if os.geteuid() != 0:
        return COMMAND
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("file permissions do not bind this user")
    path = tmp_path / "hermes"
    taken = "-dac_override,-dac_read_search"
    path.write_text(f'#!/bin/sh\nexec {setpriv} --bounding-set={taken} --inh-caps={taken} {COMMAND} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("command", ["gateway", "acp", "serve"])
async def test_a_database_that_may_not_be_written_is_refused_at_the_start(
    command: str, tmp_path: Path, bound_command: Path
) -> None:
    home = tmp_path / "home"
    with trio.fail_after(60):
        async with http_server(home) as server:
            await server.stop()
        before = (home / "sessions.db").read_bytes()
        (home / "sessions.db").chmod(0o400)
        arguments = (command, "--port", str(free_port())) if command == "serve" else (command,)
        async with server_process(home, *arguments, command=bound_command) as started:
            assert await started.exit_code() == 1
            await started.wait_until(lambda: started.output_ended)
        assert "may not be written" in started.stderr
        assert "Traceback" not in started.stderr
        assert (home / "sessions.db").read_bytes() == before
