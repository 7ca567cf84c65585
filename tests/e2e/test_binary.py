"""The one-file build: it serves every surface without any Python beside it, leaks nothing, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.support.binary import binary, can_build
from tests.support.server_process import (
    COMMAND,
    ServerProcess,
    clean_environment,
    http_server,
    http_status,
    processes_of,
    server_process,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.binary,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not can_build(), reason="PyInstaller is not installed: pip install pyinstaller"),
]

# Everything a command of these tests may need; no python among it.
PROGRAMS = ("env", "grep", "sh", "bash", "sleep", "echo")
LEAKED = "run: env | grep -E '^(LD_LIBRARY_PATH|_PYI_|_MEI)' || echo none of them"
WITHIN = 120


@pytest.fixture(scope="session")
def command() -> Path:
    return binary()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a machine without Python, where the build unpacks into a folder that can be looked at."""
    programs, unpacked = tmp_path / "programs", tmp_path / "unpacked"
    programs.mkdir()
    unpacked.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    yield {"PATH": str(programs), "TMPDIR": str(unpacked), "PYTHONPATH": "", "VIRTUAL_ENV": ""}


async def turn(server: ServerProcess, text: str) -> str:
    """The answer to one prompt."""
    session = await server.call("session.create", {})
    start = len(server.frames)
    await server.call("prompt.submit", {"session_id": session["session_id"], "text": text})
    complete = await server.event("message.complete", after=start)
    assert complete["params"]["payload"]["status"] == "complete", complete
    return str(complete["params"]["payload"]["text"])


async def gone(home: Path) -> bool:
    """No process of this home is left; one that was told to end has a moment."""
    with trio.move_on_after(10):
        while processes_of(home):
            await trio.sleep(0.02)
    return processes_of(home) == {}


async def test_serve_answers_with_its_pages_and_ends_without_a_trace(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with trio.fail_after(WITHIN):
        async with http_server(tmp_path / "home", environ=bare, command=command) as server:
            for path in ("/", "/docs", "/docs/swagger-ui-bundle.js", "/openapi.json"):
                assert (path, await http_status(server.port, path)) == (path, 200)
            assert os.listdir(bare["TMPDIR"]) != []
            assert await server.stop() == 0
            assert await gone(server.home)
            assert os.listdir(bare["TMPDIR"]) == []


async def test_a_gateway_turn_runs_a_tool_that_sees_nothing_of_the_build(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with trio.fail_after(WITHIN):
        async with server_process(tmp_path / "home", "gateway", environ=bare, command=command) as server:
            await server.event("gateway.ready")
            assert "none of them" in await turn(server, LEAKED)


async def test_the_library_path_of_the_user_reaches_the_tools_as_it_was(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with trio.fail_after(WITHIN):
        mine = bare | {"LD_LIBRARY_PATH": "/nowhere/mine"}
        async with server_process(tmp_path / "home", "gateway", environ=mine, command=command) as server:
            await server.event("gateway.ready")
            answer = await turn(server, LEAKED)
    assert "LD_LIBRARY_PATH=/nowhere/mine\n" in answer + "\n"


async def test_an_mcp_server_sees_nothing_of_the_build(command: Path, bare: dict[str, str], tmp_path: Path) -> None:
    home, seen = tmp_path / "home", tmp_path / "seen"
    home.mkdir()
    server_line = f"env > {seen}.part && mv {seen}.part {seen}; sleep 60"
    text = "mcp_servers:\n  probe:\n    command: /bin/sh\n    args: ['-c', '" + server_line + "']\n"
    (home / "config.yaml").write_text(text)
    with trio.fail_after(WITHIN):
        environ = bare | {"PATH": f"{bare['PATH']}:/bin"}
        async with server_process(home, "gateway", environ=environ, command=command) as server:
            await server.event("gateway.ready")
            await server.call("session.create", {})
            await server.call("prompt.submit", {"session_id": await session_of(server), "text": "Hello"})
            while not seen.exists():
                await trio.sleep(0.02)
            assert await server.stop() == 0
            assert await gone(home)
    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert [name for name in names if name.startswith(("LD_LIBRARY_PATH", "_PYI_", "_MEI"))] == []


async def session_of(server: ServerProcess) -> str:
    session = await server.call("session.create", {})
    return str(session["session_id"])


async def test_acp_answers_initialize(command: Path, bare: dict[str, str], tmp_path: Path) -> None:
    with trio.fail_after(WITHIN):
        async with server_process(tmp_path / "home", "acp", environ=bare, command=command) as server:
            result = await server.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            assert result["protocolVersion"] == 1
            await server.close_input()
            assert await server.exit_code() == 0
            assert await gone(server.home)


def run(command: Path, bare: dict[str, str], home: Path, *arguments: str, given: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [str(command), *arguments],
        env=clean_environment(home) | bare,
        input=given,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )
    assert done.returncode == 0, done.stderr
    return done.returncode, done.stdout


def test_the_chat_starts_its_own_server_from_the_same_file(command: Path, bare: dict[str, str], tmp_path: Path) -> None:
    assert "You wrote: Hello" in run(command, bare, tmp_path / "home", "-p", "Hello")[1]
    assert processes_of(tmp_path / "home") == {}


@pytest.mark.parametrize("arguments", (("--version",), ("acp", "--check"), ("setup", "--help"), ("doctor",)))
def test_a_command_of_the_command_line_works(
    arguments: tuple[str, ...], command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    assert run(command, bare, tmp_path / "home", *arguments)[1] != ""


def test_the_child_of_a_plugin_is_the_file_itself(command: Path, bare: dict[str, str], tmp_path: Path) -> None:
    request = json.dumps({"function": "builtins:print", "arguments": {}}) + "\n"
    said = run(command, bare, tmp_path / "home", "-m", "hermes.nurseries.plugin_child", given=request)[1]
    assert json.loads(said) == {"result": None}


async def test_a_ctrl_c_that_reaches_both_processes_ends_the_server_in_order(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with trio.fail_after(WITHIN):
        async with server_process(tmp_path / "home", "gateway", environ=bare, command=command) as server:
            await server.event("gateway.ready")
            os.killpg(server.pid, signal.SIGINT)
            assert await server.exit_code() == 0
            assert await gone(server.home)


async def test_a_launcher_that_is_killed_takes_the_server_along(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    with trio.fail_after(WITHIN):
        async with server_process(tmp_path / "home", "serve", "--port", "0", environ=bare, command=command) as server:
            await server.wait_until(lambda: bool(server.stray), "the address")
            assert len(processes_of(server.home)) == 2
            server.process.kill()
            await server.exit_code()
            assert await gone(server.home)


async def work_to_first_answer(home: Path, environ: dict[str, str], command: Path) -> float:
    """Seconds of processor time that all processes have used when the first words of the first answer are there.

    Not by the clock, because what else the machine does would count too; by the clock the bound is a factor of two,
    and ``bench/bench_binary.py`` holds it.
    """
    async with server_process(home, "gateway", environ=environ, command=command) as server:
        session = await server.call("session.create", {})
        await server.call("prompt.submit", {"session_id": session["session_id"], "text": "Hello"})
        await server.event("message.delta")
        return sum(map(processor_seconds, processes_of(home)))


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_unpacking_does_not_become_most_of_the_work_of_a_start(
    command: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    ours, installed = [], []
    with trio.fail_after(WITHIN):
        for number in range(3):
            start = partial(work_to_first_answer, tmp_path / f"home {number}")
            installed.append(await start({}, COMMAND))
            ours.append(await start(bare, command))
    assert min(ours) <= 3 * min(installed), (ours, installed)
