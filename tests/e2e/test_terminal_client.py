"""The terminal client as its user sees it: a chat, an approval, questions, a steer, a stop, a resume, completion."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.cli.chat_editor import QUIET
from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import (
    COMMAND,
    ServerProcess,
    clean_environment,
    free_port,
    http_server,
    http_status,
    kill_leftovers,
    processes_of,
    server_process,
)
from tests.support.terminal import (
    PtyTerminal,
    Terminal,
    has_tmux,
    line,
    pty_terminal,
    shows,
    tmux_terminal,
    until,
)

pytestmark = pytest.mark.e2e

Open = Callable[..., AbstractAsyncContextManager[Any]]
DRIVERS = [
    pytest.param(pty_terminal, id="pty"),
    pytest.param(tmux_terminal, id="tmux", marks=pytest.mark.skipif(not has_tmux, reason="tmux is not installed")),
]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"name": name, "arguments": arguments}}


def said(text: str) -> dict[str, str]:
    return {"last_user_contains": text, "last_role": "user"}


def script(work: Path) -> Script:
    """What the model says, by what it was told."""
    question = {"question": "Which colours?", "choices": ["red", "blue", "green"], "multi_select": True}
    asked = call("clarify", questions=[question, {"question": "Which name?"}])
    edit = call("write_file", path=str(work / "note.txt"), content="first line\n")
    return Script(
        replies=[
            Reply.of({"text": "I will tidy."}, call("terminal", command=f"rm -rf {work}/build"), when=said("tidy")),
            Reply.of(asked, when=said("ask me")),
            Reply.of(edit, when=said("write")),
            Reply.of({"text": "Counting: one, two "}, {"wait_for": "never"}, when=said("count")),
            Reply.of({"text": "All done."}, when={"last_role": "tool"}),
        ],
        when_used_up="echo",
    )


@asynccontextmanager
async def chat(
    open_terminal: Open, tmp_path: Path, *arguments: str, provider: FakeProvider, term: str | None = None
) -> AsyncIterator[Any]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    command = [str(COMMAND), *arguments, "--base-url", provider.base_url, "--model", "fake-model"]
    extra = {"term": term} if term is not None else {}
    async with open_terminal(command, environ=clean_environment(home), cwd=tmp_path, **extra) as terminal:
        try:
            yield terminal
        finally:
            await trio.to_thread.run_sync(kill_leftovers, home)


async def nobody_is_left(tmp_path: Path) -> None:
    with trio.fail_after(10):
        while processes_of(tmp_path / "home"):
            await trio.sleep(0.05)


@pytest.mark.parametrize("open_terminal", DRIVERS)
async def test_a_person_chats_approves_answers_steers_stops_and_comes_back(open_terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(open_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "Hermes", "ready")
            await line(terminal, "good morning")
            await shows(terminal, "good morning", times=2)
            await approves(terminal, tmp_path)
            await answers(terminal)
            await line(terminal, "write it")
            await shows(terminal, "+first line")
            await steers_and_stops(terminal)
            await completes(terminal)
            await leaves(terminal)
            code = await terminal.exit_code()
            screen = await shows(terminal, "takes this session up again")
        assert code == 0
        session_id = screen.split("--resume ")[-1].split()[0]
        async with chat(open_terminal, tmp_path, "--resume", session_id, provider=provider) as terminal:
            await shows(terminal, "All done.", "/history shows them")
            await line(terminal, "and again")
            await shows(terminal, "and again", times=2)
            await terminal.key("C-d")
            assert await terminal.exit_code() == 0
    await nobody_is_left(tmp_path)


def input_line(screen: str) -> str:
    """What stands at the prompt now."""
    return [shown for shown in screen.splitlines() if shown.startswith(">")][-1].rstrip()


async def approves(terminal: Terminal, work: Path) -> None:
    await line(terminal, "tidy up")
    await shows(terminal, "May this run?", f"rm -rf {work}/build"[:60], "[o] once", "[d] deny")
    assert (work / "build").exists()
    await terminal.type("o")
    await shows(terminal, "All done.")
    assert not (work / "build").exists()


async def answers(terminal: Terminal) -> None:
    await line(terminal, "ask me")
    await shows(terminal, "Which colours?", "1. red", "3. green")
    await line(terminal, "1,3")
    await shows(terminal, "Which name?")
    await line(terminal, "Ada")
    await shows(terminal, "All done.", times=2)


async def steers_and_stops(terminal: Terminal) -> None:
    await line(terminal, "/busy steer")
    await shows(terminal, "busy: steer")
    await line(terminal, "count")
    await shows(terminal, "Counting: one, two")
    await line(terminal, "only to three")
    await shows(terminal, "handed to the running turn")
    await terminal.key("C-c")
    # The steer had no boundary left to be delivered at: it is in the line again, to be sent or thrown away.
    await shows(terminal, "interrupted (user_interrupt)", "settled", "Not delivered: only to three")
    await until(terminal, lambda screen: input_line(screen) == "> only to three", "the steer")
    await terminal.key("C-c")


async def completes(terminal: Terminal) -> None:
    await terminal.type("/mod")
    await shows(terminal, "/model", "Show or switch the model")
    await terminal.key("C-c")


async def leaves(terminal: Terminal) -> None:
    await until(terminal, lambda screen: input_line(screen) == ">", "an empty line")
    await line(terminal, "/quit")


async def test_ctrl_c_at_rest_asks_for_another_one(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            await terminal.key("C-c")
            await shows(terminal, "Press Ctrl-C again to leave.")
            await terminal.key("C-c")
            assert await terminal.exit_code() == 0
            assert "takes this session up again" not in await terminal.screen()


async def test_ctrl_c_twice_during_a_turn_leaves_and_nothing_stays(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            await line(terminal, "count")
            await shows(terminal, "Counting: one, two")
            await terminal.key("C-c")
            await terminal.key("C-c")
            assert await terminal.exit_code() == 0
            assert terminal.echoes()
        assert (await provider.wait_closed(1)).closed_by == "client"
    await nobody_is_left(tmp_path)


async def test_keys_typed_before_an_approval_appeared_do_not_approve_it(tmp_path: Path) -> None:
    """Whoever is writing a line when the question comes has not answered it with the letters of that line."""
    (tmp_path / "build").mkdir()
    slow = Script(
        replies=[
            Reply.of({"wait_for": "asked"}, call("terminal", command=f"rm -rf {tmp_path}/build"), when=said("tidy")),
            Reply.of({"text": "All done."}, when={"last_role": "tool"}),
        ]
    )
    async with FakeProvider(slow) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            await line(terminal, "tidy")
            await provider.wait_for_request(1)
            await terminal.type("also remember to")
            await shows(terminal, "> also remember to")
            provider.release("asked")
            await shows(terminal, "[o] once")
            await terminal.type(" do")
            # A person stops, reads, and presses the key then: the pause is what the client goes by.
            await trio.sleep(QUIET * 1.5)
            assert "[o] once" in await terminal.screen()
            await terminal.type("d")
            # The draft is back, and the answer of the model that was denied is there.
            await shows(terminal, "All done.", "> also remember to")
            assert (tmp_path / "build").exists()


async def test_killing_the_client_ends_its_gateway_and_the_turn(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider) as terminal:
            assert isinstance(terminal, PtyTerminal)
            await shows(terminal, "ready")
            await line(terminal, "count")
            await shows(terminal, "Counting: one, two")
            os.kill(terminal.pid, signal.SIGKILL)
            assert (await provider.wait_closed(1)).closed_by == "client"
            await nobody_is_left(tmp_path)


async def test_when_the_gateway_dies_the_client_says_so_and_gives_the_terminal_back(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider) as terminal:
            await shows(terminal, "ready")
            (gateway,) = [pid for pid, words in processes_of(tmp_path / "home").items() if " gateway " in words]
            os.kill(gateway, signal.SIGKILL)
            assert await terminal.exit_code() == 1
            await shows(terminal, "Error: the gateway has ended")
            assert terminal.echoes()


async def test_a_dumb_terminal_gets_lines_and_no_escape_sequences(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        async with chat(pty_terminal, tmp_path, provider=provider, term="dumb") as terminal:
            await shows(terminal, "Hermes", "\n>")
            await line(terminal, "tidy up")
            screen = await shows(terminal, "May this run?", "[o] once")
            assert "\x1b" not in screen
            await line(terminal, "d")
            await shows(terminal, "All done.")
            await line(terminal, "count")
            await shows(terminal, "Counting")
            await terminal.key("C-c")
            await shows(terminal, "settled")
            await terminal.key("C-d")
            assert await terminal.exit_code() == 0


async def test_prompts_from_a_pipe_are_answered_one_after_the_other(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        done = await piped(tmp_path, provider, "first\ntidy up\nd\n/title Piped\nlast\n")
        assert done.returncode == 0, done.stderr
        said = done.stdout.decode()
        assert "last" in said.splitlines(), said
        order = ["first", "May this run?", "All done.", "Piped", "last"]
        positions = [said.rindex(text) if text == "last" else said.index(text) for text in order]
        assert positions == sorted(positions), said
        assert "\x1b" not in said
        assert [record.body["messages"][-1]["content"] for record in provider.requests if _is_user(record)] == [
            "first",
            "tidy up",
            "last",
        ]
    await nobody_is_left(tmp_path)


def _is_user(record: Any) -> bool:
    return bool(record.body["messages"][-1]["role"] == "user") and bool(record.body.get("stream"))


async def piped(tmp_path: Path, provider: FakeProvider, text: str, *arguments: str) -> Any:
    home = tmp_path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    command: Sequence[str] = [str(COMMAND), *arguments, "--base-url", provider.base_url, "--model", "fake-model"]
    with trio.fail_after(60):
        return await trio.run_process(
            command,
            stdin=text.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=tmp_path,
            env=clean_environment(home),
        )


async def test_a_running_server_is_used_with_serve_and_its_session_is_shared(tmp_path: Path) -> None:
    async with FakeProvider(script(tmp_path)) as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            environ = clean_environment(server.home) | {"API_SERVER_PORT": str(server.port)}
            async with pty_terminal([str(COMMAND), "--serve"], environ=environ, cwd=tmp_path) as terminal:
                await shows(terminal, "ready")
                await line(terminal, "count")
                await shows(terminal, "Counting: one, two")
                done = await trio.run_process(
                    [str(COMMAND), "tree", "--json"], env=environ, capture_stdout=True, cwd=tmp_path
                )
                turn = next(node for node in _nodes(json.loads(done.stdout)) if node["kind"] == "turn")
                await trio.run_process(
                    [str(COMMAND), "tree", "--cancel", turn["node_id"], "--reason", "enough"],
                    env=environ,
                    capture_stdout=True,
                    cwd=tmp_path,
                )
                await shows(terminal, "interrupted (node_cancel enough)")
                await terminal.key("C-d")
                assert await terminal.exit_code() == 0


@pytest.mark.parametrize("open_terminal", DRIVERS)
async def test_a_chat_with_a_server_comes_back_when_it_was_killed_and_started_again(
    open_terminal: Open, tmp_path: Path
) -> None:
    home, port = tmp_path / "home", free_port()
    async with FakeProvider(script(tmp_path)) as provider:
        serve = ("serve", "--port", str(port), "--base-url", provider.base_url, "--model", "fake-model")
        environ = clean_environment(home) | {"API_SERVER_PORT": str(port)}
        async with serving(home, port, *serve) as server:
            async with open_terminal([str(COMMAND), "--serve"], environ=environ, cwd=tmp_path) as terminal:
                await shows(terminal, "ready")
                await line(terminal, "good morning")
                await shows(terminal, "context", "ready")
                await line(terminal, "count")
                await shows(terminal, "Counting: one, two")
                server.process.kill()
                await server.process.wait()
                await shows(terminal, "Trying to connect again", "not connected")
                await line(terminal, "are you there")
                await shows(terminal, "Not sent: there is no connection.")
                async with serving(home, port, *serve):
                    await shows(terminal, "Connected again")
                    # What was not sent stands in the input line again.
                    await line(terminal, " now")
                    await shows(terminal, "are you there now", times=2)
                    await terminal.key("C-d")
                    assert await terminal.exit_code() == 0
    stored = [row["content"] for row in provider.requests[-1].body["messages"] if row["role"] == "user"]
    assert [text for text in ("good morning", "count", "are you there now") if any(text in row for row in stored)] == [
        "good morning",
        "count",
        "are you there now",
    ]


@asynccontextmanager
async def serving(home: Path, port: int, *words: str) -> AsyncIterator[ServerProcess]:
    async with server_process(home, *words) as server:
        with trio.fail_after(60):
            while await http_status(port, "/health") != 200:
                assert server.process.poll() is None, server.stderr
                await trio.sleep(0.05)
        yield server


def _nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(node for child in tree["children"] for node in _nodes(child))]
