"""The server's side of a plugin function in a process of its own: started, spoken to and ended by the supervisor.

For code that nobody here vouches for: it may block, swallow its cancellation or crash; the process is ended with the
call, with everything that it started.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import trio

from hermes.nurseries.asyncio_island import PluginBroken
from hermes.nurseries.mcp_bridge import CHUNK, Lines, LineTooLong, Pace
from hermes.nurseries.piped_process import PipedProcess, open_piped
from hermes.nurseries.process_spec import ProcessSpec, SpawnFailed
from hermes.nurseries.processes import ProcessSupervisor
from hermes.records import dataclass

log = logging.getLogger(__name__)

EXIT_SEEN_WITHIN = 1.0
# -P: the directory in which the tool works must not offer modules to the child. A one-file build knows no such option,
# and imports from nowhere but itself.
SAFE_PATH = () if getattr(sys, "frozen", False) else ("-P",)
CHILD = (sys.executable, *SAFE_PATH, "-m", "hermes.nurseries.plugin_child")


@dataclass(frozen=True, slots=True)
class PluginHost:
    """Where plugins run. ``environment()`` is the server's own, secrets already taken out; ``child`` is the command
    that runs ``plugin_child`` (a one-file build has its own)."""

    supervisor: ProcessSupervisor
    environment: Callable[[], Mapping[str, str]]
    child: tuple[str, ...] = CHILD


@dataclass(frozen=True, slots=True)
class ProcessCall:
    """One call: ``function`` is ``module:name``; ``session_id`` and ``turn_id`` are whose work it is."""

    function: str
    arguments: Mapping[str, Any]
    cwd: str
    session_id: str = ""
    turn_id: str = ""


async def run_in_process(host: PluginHost, call: ProcessCall, on_progress: Callable[[str], None]) -> Any:
    """What the function returns, as JSON data. Raises ``PluginBroken``. On a cancel the process is ended at once."""
    request = json.dumps({"function": call.function, "arguments": dict(call.arguments)}).encode() + b"\n"
    spec = ProcessSpec(
        host.child,
        host.environment(),
        cwd=call.cwd,
        session_id=call.session_id,
        turn_id=call.turn_id,
        name=f"plugin {call.function}",
    )
    try:
        async with open_piped(host.supervisor, spec) as child:
            try:
                await child.stdin.send_all(request)
                return await _answer(child, on_progress)
            except (trio.BrokenResourceError, LineTooLong) as error:
                raise PluginBroken(await _end_of(child) or f"broke the conversation off: {error}") from error
    except SpawnFailed as error:
        raise PluginBroken(error.reason) from error


async def _answer(child: PipedProcess, on_progress: Callable[[str], None]) -> Any:
    lines, pace = Lines(), Pace()
    while chunk := await child.stdout.receive_some(CHUNK):
        for line in lines.feed(chunk):
            message = _message(line)
            if "result" in message:
                return message["result"]
            if "progress" in message:
                on_progress(str(message["progress"]))
            # A flood of lines must not keep everybody else waiting.
            await pace.step()
    raise PluginBroken(await _end_of(child) or "gave no result")


def _message(line: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        log.debug("a plugin wrote a line that is no message: %.200r", line[:200])
        return {}
    return message


async def _end_of(child: PipedProcess) -> str:
    with trio.move_on_after(EXIT_SEEN_WITHIN):
        code = await child.wait()
        await trio.sleep(0.05)  # its last words on stderr
        last = child.stderr_tail.strip().rpartition("\n")[2]
        return f"ended with exit code {code}" + (f": {last[:400]}" if last else "")
    return ""
