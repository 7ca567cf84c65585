"""``hermes acp`` through ``acpx``, a command-line client with a file system and terminals; all frames are checked."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.acp_bridge import check_records, find_node, find_package, tapped
from tests.support.server_process import clean_environment, kill_leftovers, processes_of

pytestmark = pytest.mark.e2e
LIMIT = 120


def said(text: str) -> Reply:
    return Reply.of({"text": text})


def tool(name: str, **arguments: Any) -> Reply:
    return Reply.of({"tool_call": {"name": name, "arguments": arguments}})


class Acpx:
    """The command with one agent, one home and one directory."""

    def __init__(self, home: Path, work: Path, provider: FakeProvider) -> None:
        self.home, self.work = home, work
        self.record = home / "frames"
        self._argv = [
            find_node((22, 13)), str(find_package("acpx") / "dist" / "cli.js"),
            "--agent", shlex.join(tapped(self.record)), "--cwd", str(work), "--timeout", "60", "--ttl", "5",
        ]  # fmt: skip
        self._environ = clean_environment(home) | {
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "test-key-0123456789",
            "HERMES_MODEL": "fake-model",
        }

    async def __call__(self, *arguments: str, fails: bool | None = False) -> str:
        """What it says; ``fails`` None: whether it says that it failed is its own affair."""
        done = await trio.run_process(
            [*self._argv, *arguments],
            env=self._environ,
            cwd=self.work,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output = done.stdout.decode()
        assert fails is None or (done.returncode != 0) is fails, output
        return output

    async def frames(self, *arguments: str) -> list[dict[str, Any]]:
        output = await self("--format", "json", *arguments)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@asynccontextmanager
async def acpx(tmp_path: Path, *replies: Reply) -> AsyncIterator[tuple[Acpx, FakeProvider]]:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    with trio.fail_after(LIMIT):
        async with FakeProvider(Script.of(*replies)) as provider:
            client = Acpx(home, work, provider)
            try:
                yield client, provider
            finally:
                kill_leftovers(home)
            check_records(client.record)


def stop_reasons(frames: list[dict[str, Any]]) -> list[str]:
    return [f["result"]["stopReason"] for f in frames if "stopReason" in (f.get("result") or {})]


async def test_a_command_runs_in_the_terminal_of_the_client_and_an_edit_through_its_files(tmp_path: Path) -> None:
    replies = (
        tool("terminal", command="echo out-of-the-terminal && cd /"),
        tool("terminal", command="pwd"),
        tool("write_file", path=str(tmp_path / "work" / "a.txt"), content="written\n"),
        tool("patch", path=str(tmp_path / "work" / "a.txt"), old_string="written", new_string="patched"),
        said("done"),
    )
    async with acpx(tmp_path, *replies) as (client, provider):
        frames = await client.frames("--approve-all", "exec", "go")
        assert stop_reasons(frames) == ["end_turn"]
        asked = [frame["method"] for frame in frames if "id" in frame and "method" in frame]
        assert asked.count("terminal/create") == asked.count("terminal/release") == 2
        assert asked.count("fs/write_text_file") == 2
        assert asked.count("session/request_permission") == 2
        results = [m["content"] for m in provider.requests[-1].body["messages"] if m["role"] == "tool"]
        assert "out-of-the-terminal" in results[0]
        assert json.loads(results[1])["output"].strip() == "/"
        assert (client.work / "a.txt").read_text() == "patched\n"


async def test_what_is_denied_does_not_happen(tmp_path: Path) -> None:
    edit = tool("write_file", path="a.txt", content="x\n")
    async with acpx(tmp_path, edit, said("as you wish")) as (client, _):
        output = await client("--deny-all", "--format", "quiet", "exec", "go", fails=True)
        assert "as you wish" in output
        assert not (client.work / "a.txt").exists()


async def test_a_session_is_kept_switched_cancelled_and_gone_on_with(tmp_path: Path) -> None:
    stuck = Reply.of({"text": ["half ", "an answer"]}, faults={"hang_after": 2})
    async with acpx(tmp_path, said("first answer"), stuck, said("second answer")) as (client, provider):
        await client("sessions", "new")
        await client("prompt", "first")
        await client("set-mode", "accept_edits")
        assert "other-model" in await client("prompt", "/model custom:other-model")
        stopped: list[str] = []

        async def stay() -> None:
            stopped.extend(stop_reasons(await client.frames("prompt", "stay")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay)
            await provider.wait_chunks(2, 2)
            await client("cancel")
        assert stopped == ["cancelled"]
        assert "second answer" in await client("prompt", "go on")
        assert provider.requests[-1].body["model"] == "other-model"
        assert "first answer" in str(provider.requests[-1].body["messages"])


async def test_a_cancel_is_a_result_before_the_first_byte_and_in_the_middle_of_a_tool(tmp_path: Path) -> None:
    silent = Reply.of({"text": "never"}, faults={"hang": True})
    slow = tool("terminal", command="touch begun; sleep 1000")
    async with acpx(tmp_path, silent, slow, said("the next answer")) as (client, provider):
        await client("sessions", "new")
        # Nothing runs yet, and what comes next is not touched.
        await client("cancel", fails=None)
        stopped: list[str] = []

        async def stay(*options: str) -> None:
            stopped.extend(stop_reasons(await client.frames(*options, "prompt", "stay")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay)
            await provider.wait_for_request(1)
            for _ in range(2):
                nursery.start_soon(partial(client, "cancel", fails=None))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stay, "--approve-all")
            while not (client.work / "begun").exists():
                await trio.sleep(0.05)
            await client("cancel")
        assert stopped == ["cancelled", "cancelled"]
        assert "the next answer" in await client("prompt", "go on")


async def test_a_prompt_of_16_mib_reaches_the_model_whole(tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_text("z" * (16 << 20))
    async with acpx(tmp_path, said("read")) as (client, provider):
        assert stop_reasons(await client.frames("exec", "--file", str(big))) == ["end_turn"]
        assert len(provider.requests[0].body["messages"][-1]["content"]) >= 16 << 20


async def test_a_session_is_loaded_by_another_process(tmp_path: Path) -> None:
    async with acpx(tmp_path, said("first answer"), said("second answer")) as (client, provider):
        await client("--ttl", "1", "sessions", "new")
        await client("--ttl", "1", "prompt", "first")
        while processes_of(client.home):
            await trio.sleep(0.1)
        assert "second answer" in await client("prompt", "second")
        assert "first answer" in str(provider.requests[-1].body["messages"])


async def test_two_sessions_have_conversations_of_their_own(tmp_path: Path) -> None:
    script = said("an answer"), said("an answer")
    async with acpx(tmp_path, *script) as (client, provider):
        for name in ("one", "two"):
            await client("sessions", "new", "--name", name)
        async with trio.open_nursery() as nursery:
            for name in ("one", "two"):
                nursery.start_soon(client, "prompt", "--session", name, f"for {name}")
        asked = sorted(str(request.body["messages"][-1]) for request in provider.requests)
        assert ["one" in words for words in asked] == [True, False]
