"""How ``hermes acp`` starts: soon, and without what it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import COMMAND, clean_environment

pytestmark = pytest.mark.e2e
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
TRIES = 5
FACTOR = 2.5
MUST_NOT_LOAD = (
    "quart",
    "quart_trio",
    "hypercorn",
    "rich",
    "mcp",
    "httpx2",
    "trio_websocket",
    "asyncio",
    "prompt_toolkit",
)


def test_the_agent_loads_no_web_stack_and_no_client_library() -> None:
    program = (
        "import json, sys, hermes.app, hermes.start, hermes.protocols.acp.surface; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(done.stdout))
    assert [name for name in MUST_NOT_LOAD if name in loaded] == []


def test_the_first_answer_costs_little_more_than_the_libraries_it_is_built_on(tmp_path: Path) -> None:
    """Processor time of the whole process, so that a busy machine changes nothing; the best of several."""
    environ = clean_environment(tmp_path)
    bare = min(processor_time([sys.executable, "-c", "import trio, pydantic"], environ) for _ in range(TRIES))
    agent = min(processor_time([str(COMMAND), "acp"], environ, HELLO) for _ in range(TRIES))
    assert agent <= FACTOR * bare, f"{agent:.3f} s, importing trio and pydantic {bare:.3f} s"


def processor_time(command: list[str], environ: dict[str, str], sent: bytes = b"") -> float:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sent)
    process.stdin.flush()
    answer = process.stdout.readline() if sent else b""
    process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    assert process.returncode == 0
    assert not sent or json.loads(answer)["result"]["protocolVersion"] == 1
    return used.ru_utime + used.ru_stime
