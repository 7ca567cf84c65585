"""``hermes runs``, ``tree`` and ``doctor`` beside a running server, and ``hermes --tui`` with a client of ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess
from typing import Any

import pytest
import trio

from hermes.testing import FakeProvider, Reply, Script
from tests.support.server_process import COMMAND, HttpServer, clean_environment, http_server, server_process
from tests.support.terminal import pty_terminal, shows

pytestmark = pytest.mark.e2e

WITHIN = 60.0


async def hermes(server: HttpServer, *arguments: str) -> CompletedProcess[bytes]:
    environ = clean_environment(server.home) | {"API_SERVER_PORT": str(server.port)}
    with trio.fail_after(WITHIN):
        return await trio.run_process(
            [str(COMMAND), *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environ,
            stdin=DEVNULL,
        )


def silent() -> Script:
    return Script.of(Reply.of({"text": "Half an "}, {"wait_for": "never"}))


async def post_run(server: HttpServer) -> str:
    """Start a run as any HTTP client does; its id."""
    body = b'{"input": "talk"}'
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        await stream.send_all(head.encode() + body)
        answer = b"".join([chunk async for chunk in stream])
    run_id: str = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])["run_id"]
    return run_id


async def test_runs_are_listed_looked_at_and_stopped(tmp_path: Path) -> None:
    async with FakeProvider(silent()) as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            assert (await hermes(server, "runs", "list")).stdout == b""
            run_id = await post_run(server)
            await provider.wait_chunks(1, 1)
            assert (await hermes(server, "runs", "list")).stdout.startswith(f"{run_id}\trunning\t".encode())
            status = json.loads((await hermes(server, "runs", "status", run_id)).stdout)
            assert (status["run_id"], status["status"]) == (run_id, "running")
            stopped = await hermes(server, "runs", "stop", "run_other", run_id, "--reason", "enough")
            assert (stopped.returncode, stopped.stdout) == (1, f"{run_id}: stopping\n".encode())
            assert stopped.stderr == b"run_other: run not found (404)\n"
            assert (await provider.wait_closed(1)).closed_by == "client"
            status = json.loads((await hermes(server, "runs", "status", run_id)).stdout)
            assert (status["status"], status["reason"]) == ("cancelled", "enough")
            assert (await hermes(server, "runs", "list", "--json")).stdout == b"[]\n"
            missing = await hermes(server, "runs", "stop", "run_nope")
            assert (missing.returncode, missing.stdout) == (1, b"")


async def test_the_tree_is_watched_while_it_changes(tmp_path: Path) -> None:
    async with FakeProvider(silent()) as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            environ = {"API_SERVER_PORT": str(server.port)}
            arguments = ("tree", "--watch", "--json")
            async with server_process(server.home, *arguments, environ=environ, cwd=tmp_path) as watching:
                with trio.fail_after(WITHIN):
                    await watching.frame(lambda tree: "turn" not in kinds(tree))
                    await post_run(server)
                    tree = await watching.frame(lambda tree: "model_call" in kinds(tree))
                    turn = next(node for node in nodes(tree) if node["kind"] == "turn")
                    done = await hermes(server, "tree", "--cancel", turn["node_id"], "--reason", "enough")
                    assert done.stdout == f"{turn['node_id']}: cancelled\n".encode()
                    seen = len(watching.frames)
                    await watching.frame(lambda tree: "turn" not in kinds(tree), after=seen - 1)
            gone = await hermes(server, "tree", "--cancel", turn["node_id"])
            assert (gone.returncode, gone.stdout) == (1, b"")


async def test_what_ends_more_than_one_session_is_asked_about(tmp_path: Path) -> None:
    async with FakeProvider(silent()) as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            await post_run(server)
            await provider.wait_chunks(1, 1)
            tree = json.loads((await hermes(server, "tree", "--json")).stdout)
            ids = {node["kind"]: node["node_id"] for node in nodes(tree)}
            for kind, told in (("server", b"whole server"), ("surface", b"way in"), ("sessions", b"1 session would")):
                refused = await hermes(server, "tree", "--cancel", ids[kind])
                assert (refused.returncode, refused.stdout) == (2, b"")
                assert told in refused.stderr
                assert b"--yes" in refused.stderr
            environ = clean_environment(server.home) | {"API_SERVER_PORT": str(server.port)}
            command = [str(COMMAND), "tree", "--cancel", ids["server"]]
            async with pty_terminal(command, environ=environ, cwd=tmp_path) as terminal:
                await shows(terminal, "the whole server", "[y/N]")
                await terminal.type("n\r")
                assert await terminal.exit_code() == 130
            assert b" model_call " in (await hermes(server, "tree")).stdout
            nothing = await hermes(server, "tree", "--cancel", ids["mcp_servers"])
            assert nothing.stdout == f"{ids['mcp_servers']}: has nothing to cancel\n".encode()
            done = await hermes(server, "tree", "--cancel", ids["sessions"], "--yes")
            assert done.stdout == f"{ids['sessions']}: cancelled\n".encode()
            assert (await provider.wait_closed(1)).closed_by == "client"
            done = await hermes(server, "tree", "--cancel", ids["server"], "-y")
            assert done.stdout == f"{ids['server']}: cancelled\n".encode()
            with trio.fail_after(WITHIN):
                await server.process.wait()


async def test_a_server_of_another_home_is_named_as_what_it_probably_is(tmp_path: Path) -> None:
    async with http_server(tmp_path / "home") as server:
        for words in ("tree", "runs list"):
            done = await hermes(server, *words.split(), "--home", str(tmp_path / "other"))
            assert (done.returncode, done.stdout) == (1, b"")
            assert b"server of another home" in done.stderr


def nodes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(node for child in tree["children"] for node in nodes(child))]


def kinds(tree: dict[str, Any]) -> set[str]:
    return {node["kind"] for node in nodes(tree)}


async def test_without_a_server_the_commands_say_so(tmp_path: Path) -> None:
    async with http_server(tmp_path / "home") as server:
        pass
    for arguments in (("runs", "list"), ("tree",), ("-p", "x", "--serve")):
        done = await hermes(server, *arguments)
        assert (done.returncode, done.stdout) == (1, b""), arguments
        assert b"hermes serve" in done.stderr


async def test_the_doctor_knows_its_own_running_server(tmp_path: Path) -> None:
    async with FakeProvider() as provider:
        options = ("--base-url", provider.base_url, "--model", "fake-model")
        async with http_server(tmp_path / "home", *options) as server:
            done = await hermes(server, "doctor", "--json")
            found = {finding["topic"]: finding for finding in json.loads(done.stdout)}
            assert done.returncode == 0
            assert found["port"]["level"] == "ok"
            assert found["port"]["text"].startswith("a Hermes server (")
            assert found["server key"]["text"] == "from server.key"


INK = """
const { spawn } = require('node:child_process');
const gateway = spawn(process.env.HERMES_PYTHON, ['-m', 'tui_gateway.entry'], { cwd: process.env.HERMES_CWD });
let next = 0, rest = '', session = '';
const send = (method, params) => gateway.stdin.write(JSON.stringify(
  { jsonrpc: '2.0', id: `r${++next}`, method, params }) + '\\n');
gateway.stdout.on('data', (chunk) => {
  const lines = (rest + chunk).split('\\n');
  rest = lines.pop();
  for (const line of lines) {
    const frame = JSON.parse(line), event = frame.params || {}, payload = event.payload || {};
    if (event.type === 'gateway.ready') { send('config.get', { key: 'full' }); send('session.create', { cols: 80 }); }
    if (frame.result && frame.result.session_id) {
      session = frame.result.session_id;
      send('prompt.submit', { session_id: session, text: 'tidy' });
    }
    if (event.type === 'approval.request') {
      console.log('asked', payload.command);
      send('approval.respond', { session_id: session, choice: 'deny' });
    }
    if (event.type === 'message.complete') { console.log('ended', payload.text); gateway.stdin.end(); }
  }
});
gateway.on('exit', (code) => { console.log('gateway', code); process.exit(7); });
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
async def test_tui_starts_the_client_that_is_named_with_this_installation_behind_it(tmp_path: Path) -> None:
    dist = tmp_path / "ink" / "dist"
    dist.mkdir(parents=True)
    (dist / "entry.js").write_text(INK)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    command = {"name": "terminal", "arguments": {"command": f"rm -rf {tmp_path}/build"}}
    async with FakeProvider(Script.of(Reply.of({"tool_call": command}), Reply.of({"text": "Left."}))) as provider:
        (home / "config.yaml").write_text(
            f"model:\n  default: fake-model\n  provider: custom\n  base_url: {provider.base_url}\n"
        )
        environ = clean_environment(home) | {"HERMES_TUI_DIST": str(tmp_path / "ink")}
        async with pty_terminal([str(COMMAND), "--tui"], environ=environ, cwd=tmp_path) as terminal:
            await shows(terminal, f"asked rm -rf {tmp_path}/build"[:70], "ended Left.", "gateway 0")
            assert await terminal.exit_code() == 7


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
async def test_tui_takes_the_newest_session_up_with_and_without_a_running_server(tmp_path: Path) -> None:
    (tmp_path / "ink").mkdir()
    told = "console.log(`resume ${process.env.HERMES_TUI_RESUME} url ${Boolean(process.env.HERMES_TUI_GATEWAY_URL)}`)"
    (tmp_path / "ink" / "entry.js").write_text(told)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    environ = clean_environment(home) | {"HERMES_TUI_DIST": str(tmp_path / "ink")}

    async def tui(*words: str) -> CompletedProcess[bytes]:
        with trio.fail_after(60):
            return await trio.run_process(
                [str(COMMAND), "--tui", *words], env=environ, cwd=tmp_path, capture_stdout=True, capture_stderr=True
            )

    nothing = await tui("--resume", "last")
    assert nothing.stdout.decode() == "resume undefined url false\n"
    assert b"no session to resume" in nothing.stderr
    async with FakeProvider() as provider:
        prompt = ["-p", "hello", "--base-url", provider.base_url, "--model", "fake-model", "--json"]
        with trio.fail_after(60):
            asked = await trio.run_process([str(COMMAND), *prompt], env=environ, cwd=tmp_path, capture_stdout=True)
    newest = json.loads(asked.stdout.splitlines()[0])["session_id"]
    assert (await tui("--resume", "last")).stdout.decode() == f"resume {newest} url false\n"
    assert (await tui("--resume", "some-id")).stdout.decode() == "resume some-id url false\n"
    async with http_server(home) as server:
        environ["API_SERVER_PORT"] = str(server.port)
        assert (await tui("--resume", "--serve")).stdout.decode() == f"resume {newest} url true\n"


async def test_tui_without_a_client_is_the_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with FakeProvider() as provider:
        words = [str(COMMAND), "--tui", "--base-url", provider.base_url, "--model", "fake-model"]
        async with pty_terminal(words, environ=clean_environment(home), cwd=tmp_path) as terminal:
            await shows(terminal, "Hermes", "fake-model", "ready")
            await terminal.key("C-d")
            assert await terminal.exit_code() == 0
