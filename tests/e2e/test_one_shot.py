"""``hermes -p`` as a script sees it: standard output, exit codes, JSON lines, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from hermes.testing.seed import seed
from tests.support.server_process import COMMAND, clean_environment, http_server, processes_of
from tests.support.terminal import pty_terminal, shows

pytestmark = pytest.mark.e2e

WITHIN = 60.0


def command(provider: FakeProvider, *arguments: str) -> list[str]:
    return [str(COMMAND), *arguments, "--base-url", provider.base_url, "--model", "fake-model"]


async def ask(
    tmp_path: Path, provider: FakeProvider, *arguments: str, stdin: bytes | None = None
) -> CompletedProcess[bytes]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    given: dict[str, Any] = {"stdin": stdin if stdin is not None else subprocess.DEVNULL}
    with trio.fail_after(WITHIN):
        done = await trio.run_process(
            command(provider, *arguments),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=tmp_path,
            env=clean_environment(home),
            **given,
        )
    await nobody_is_left(tmp_path)
    return done


async def nobody_is_left(tmp_path: Path) -> None:
    with trio.fail_after(10):
        while processes_of(tmp_path / "home"):
            await trio.sleep(0.05)


def dangerous(path: Path) -> Script:
    return Script.of(
        Reply.of({"text": "Tidying."}, {"tool_call": {"name": "terminal", "arguments": {"command": f"rm -rf {path}"}}}),
        Reply.of({"text": "That is all."}),
    )


def silent() -> Script:
    return Script.of(Reply.of({"text": "Half an "}, {"wait_for": "never"}))


async def test_the_answer_alone_is_on_standard_output(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "Forty-two."}))) as provider:
        done = await ask(tmp_path, provider, "-p", "what is the answer?")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Forty-two.\n", b"")


async def test_what_is_piped_in_stands_behind_the_prompt(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "Read."}))) as provider:
        done = await ask(tmp_path, provider, "-p", "sum this up:", stdin=b"one\ntwo\n")
        assert done.returncode == 0
        assert provider.requests[0].body["messages"][-1]["content"] == "sum this up:\n\none\ntwo"


async def test_a_prompt_may_come_from_standard_input_alone_and_no_prompt_is_a_usage_error(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "Read."}))) as provider:
        assert (await ask(tmp_path, provider, "-p", stdin=b"only this")).stdout == b"Read.\n"
        assert (await ask(tmp_path, provider, "-p", stdin=b"")).returncode == 2
        assert (await ask(tmp_path, provider, "--json")).returncode == 2


async def test_a_denied_approval_exits_3_and_yes_lets_it_run(tmp_path: Path) -> None:
    victim = tmp_path / "build"
    victim.mkdir()
    async with FakeProvider(dangerous(victim)) as provider:
        done = await ask(tmp_path, provider, "-p", "tidy")
        assert (done.returncode, done.stdout) == (3, b"That is all.\n")
        assert b"--yes" in done.stderr
        assert victim.exists()
        provider.replace_script(dangerous(victim))
        done = await ask(tmp_path, provider, "-p", "tidy", "--yes")
        assert (done.returncode, done.stdout) == (0, b"That is all.\n")
        assert not victim.exists()


async def test_a_question_that_nobody_can_answer_does_not_hold_the_turn(tmp_path: Path) -> None:
    question = {"name": "clarify", "arguments": {"questions": [{"question": "Which?", "choices": ["a", "b"]}]}}
    script = Script.of(Reply.of({"tool_call": question}), Reply.of({"text": "I took a."}))
    async with FakeProvider(script) as provider:
        done = await ask(tmp_path, provider, "-p", "choose")
    assert (done.returncode, done.stdout) == (0, b"I took a.\n")


async def test_the_deadline_exits_124_with_what_there_is(tmp_path: Path) -> None:
    async with FakeProvider(silent()) as provider:
        done = await ask(tmp_path, provider, "-p", "talk", "--deadline", "1")
        assert (done.returncode, done.stdout) == (124, b"Half an \n")
        assert (await provider.wait_closed(1)).closed_by == "client"


async def test_a_provider_that_refuses_exits_1_and_says_why_on_standard_error(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of(faults={"status": 401}))) as provider:
        done = await ask(tmp_path, provider, "-p", "talk")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"hermes: ")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_stops_the_turn_and_is_told_by_the_exit_code(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    async with FakeProvider(silent()) as provider, running(tmp_path, provider, "-p", "talk") as process:
        await provider.wait_chunks(1, 1)
        process.send_signal(number)
        with trio.fail_after(WITHIN):
            assert await process.wait() == code
            assert (await provider.wait_closed(1)).closed_by == "client"
        await nobody_is_left(tmp_path)


async def test_killed_at_once_it_leaves_no_gateway_no_tool_and_no_model_call(tmp_path: Path) -> None:
    sleeper = {"name": "terminal", "arguments": {"command": "sleep 300"}}
    async with FakeProvider(Script.of(Reply.of({"tool_call": sleeper}))) as provider:
        async with running(tmp_path, provider, "-p", "wait") as process:
            with trio.fail_after(WITHIN):
                while not any("sleep 300" in line for line in processes_of(tmp_path / "home").values()):
                    await trio.sleep(0.05)
            process.kill()
            await process.wait()
            await nobody_is_left(tmp_path)


def running(tmp_path: Path, provider: FakeProvider, *arguments: str) -> Any:
    return _running(tmp_path, command(provider, *arguments))


class _running:
    """The command as a child whose ends are dropped."""

    def __init__(self, tmp_path: Path, words: Sequence[str]) -> None:
        self._tmp_path = tmp_path
        self._words = words

    async def __aenter__(self) -> trio.Process:
        home = self._tmp_path / "home"
        home.mkdir(mode=0o700, exist_ok=True)
        self._process = await trio.lowlevel.open_process(
            list(self._words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._tmp_path,
            env=clean_environment(home),
        )
        return self._process

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()


async def test_json_lines_begin_with_the_session_and_end_with_the_result(tmp_path: Path) -> None:
    async with FakeProvider(dangerous(tmp_path / "build")) as provider:
        done = await ask(tmp_path, provider, "-p", "tidy", "--json")
        lines = [json.loads(text) for text in done.stdout.decode().splitlines()]
        kinds = [entry["type"] for entry in lines]
        assert (done.returncode, done.stderr) == (3, b"")
        assert (kinds[0], kinds[-1]) == ("session", "result")
        assert [kind for kind in kinds if kind in ("tool.start", "question", "tool.complete", "message.complete")] == [
            "tool.start",
            "question",
            "tool.complete",
            "message.complete",
        ]
        result = lines[-1]
        assert {name: result[name] for name in ("status", "exit_code", "text", "error")} == {
            "status": "complete",
            "exit_code": 3,
            "text": "That is all.",
            "error": None,
        }
        assert result["session_id"] == lines[0]["session_id"]
        assert result["usage"]["calls"] == 2


async def test_the_next_prompt_takes_the_session_up(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "One."}), Reply.of({"text": "Two."}))) as provider:
        assert (await ask(tmp_path, provider, "-p", "first")).stdout == b"One.\n"
        assert (await ask(tmp_path, provider, "-p", "second", "--resume", "last")).stdout == b"Two.\n"
        said = [message["content"] for message in provider.requests[1].body["messages"] if message["role"] == "user"]
        assert said == ["first", "second"]
        missing = await ask(tmp_path, provider, "-p", "third", "--resume", "no such session")
        assert (missing.returncode, missing.stdout) == (1, b"")


async def test_a_running_server_can_do_the_work(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "From the server."}))) as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            environ = clean_environment(server.home) | {"API_SERVER_PORT": str(server.port)}
            with trio.fail_after(WITHIN):
                done = await trio.run_process(
                    [str(COMMAND), "-p", "hello", "--serve"], capture_stdout=True, env=environ, stdin=subprocess.DEVNULL
                )
            assert done.stdout == b"From the server.\n"


async def test_a_reader_that_leaves_early_does_not_change_the_outcome(tmp_path: Path) -> None:
    async with FakeProvider(Script.of(Reply.of({"text": "Nobody reads this."}))) as provider:
        read_end, write_end = os.pipe()
        os.close(read_end)
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        with trio.fail_after(WITHIN):
            process = await trio.lowlevel.open_process(
                command(provider, "-p", "hello", "--json"),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.DEVNULL,
                env=clean_environment(home),
            )
            os.close(write_end)
            assert await process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", (("-p", "hello"), ("-p", "hello", "--json")), ids=("text", "json"))
async def test_an_answer_that_cannot_be_written_is_a_failure_in_words(arguments: Sequence[str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with FakeProvider(Script.of(Reply.of({"text": "No room for this."}))) as provider:
        with trio.fail_after(WITHIN), Path("/dev/full").open("wb") as full:
            done = await trio.run_process(
                command(provider, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=full,
                capture_stderr=True,
                check=False,
                env=clean_environment(home),
            )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "hermes: not everything could be written: No space left on device"
    await nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    "arguments", ("-p hello", "sessions list", "doctor --offline", "version", "tree", "--resume x")
)
async def test_a_command_that_is_started_without_streams_ends_as_with_them(arguments: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    words = [str(COMMAND), *arguments.split()]
    with trio.fail_after(WITHIN):
        ends = []
        for closed in ("</dev/null >/dev/null 2>/dev/null", "<&- >&- 2>&-"):
            shell = ["sh", "-c", f'"$@" {closed}', "sh", *words]
            ends.append((await trio.run_process(shell, check=False, env=clean_environment(home))).returncode)
        without_output = ["sh", "-c", '"$@" >&- </dev/null', "sh", *words]
        told = await trio.run_process(without_output, check=False, capture_stderr=True, env=clean_environment(home))
    assert ends[0] == ends[1] == told.returncode
    assert b"Traceback" not in told.stderr


async def test_a_person_who_waits_for_a_compression_is_told_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    key = await seed(home, 4_000)
    arguments = [str(COMMAND), "-p", "hello", "--resume", key]
    async with pty_terminal(arguments, environ=clean_environment(home), cwd=tmp_path) as terminal:
        await shows(terminal, "hermes: compressing the conversation", "You wrote: hello")
        assert await terminal.exit_code() == 0
    # A script's standard error is for errors.
    other = await seed(home, 4_000)
    with trio.fail_after(WITHIN):
        done = await trio.run_process(
            [str(COMMAND), "-p", "hello", "--resume", other],
            capture_stdout=True,
            capture_stderr=True,
            env=clean_environment(home),
            cwd=tmp_path,
        )
    assert (b"You wrote: hello" in done.stdout, done.stderr) == (True, b"")
