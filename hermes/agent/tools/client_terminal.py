"""A command in a terminal of the client, where the user watches it, instead of in a process of ours.

Same shell, same environment, same side file for what persists between calls: the wrapper is handed over as a small
script, so that no variable shows in a list of processes. Used only for plain foreground commands, and only where the
attached client offers terminals; if it cannot make one, the caller runs the command itself. A command that was begun
here is never begun a second time.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from hermes.agent.ports import ProcessOutcome, ProcessRequest, ToolContext

TERMINALS: Final = "client_terminals"
"""Key in the session's memory: call id → id of the terminal that shows it."""
_REMEMBERED = 64
_CLEAN_UP_WITHIN = 0.3
"""Seconds that each step of the clean-up of a stopped command may take: the client is asked, not waited for."""
_CUT = b"[the beginning of the output was not kept]\n"
_NO_OUTPUT = b"[the client did not tell what the command printed]\n"
_NO_END = b"[the client did not tell how the command ended]\n"


async def run_in_client(
    ctx: ToolContext, request: ProcessRequest, on_output: Callable[[bytes], None], script: Path
) -> ProcessOutcome | None:
    """Run the request in a terminal of the client. None if there is none: then nothing was run.

    ``script``: a path of its own for the wrapper, removed again."""
    _write_script(script, request)
    try:
        params = {
            "command": request.argv[0],
            "args": [str(script)],
            "cwd": request.cwd,
            "outputByteLimit": request.max_output_bytes,
        }
        created = await ctx.client_tool("terminal/create", params)
        terminal = None if created is None else created.get("terminalId")
        if not isinstance(terminal, str) or not terminal:
            return None
        _show(ctx, terminal)
        return await _wait(ctx, terminal, request.timeout, on_output)
    finally:
        script.unlink(missing_ok=True)


async def _wait(
    ctx: ToolContext, terminal: str, timeout: float | None, on_output: Callable[[bytes], None]
) -> ProcessOutcome:
    began, named = trio.current_time(), {"terminalId": terminal}
    status: Mapping[str, Any] | None = None
    running, stopped = True, True
    try:
        with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
            status = await ctx.client_tool("terminal/wait_for_exit", named)
            running = status is None
        if running:
            await _kill(ctx, named)
        # Nobody has stopped the call: what the command printed is its result, and worth the client's usual time.
        output = await ctx.client_tool("terminal/output", named)
        stopped = False
    finally:
        if stopped:
            if running:
                await _kill(ctx, named)  # noqa: ASYNC102 (shielded and bounded inside)
            output = None
            with trio.move_on_after(_CLEAN_UP_WITHIN, shield=True):
                output = await ctx.client_tool("terminal/output", named)
        with trio.move_on_after(_CLEAN_UP_WITHIN, shield=True):
            await ctx.client_tool("terminal/release", named)
        _take_output(output, on_output)
    code = _exit_code(status)
    if code is None and not limit.cancelled_caught:
        on_output(_NO_END)
    duration = trio.current_time() - began
    return ProcessOutcome(code, b"", timed_out=limit.cancelled_caught, duration_s=duration)


async def _kill(ctx: ToolContext, named: Mapping[str, Any]) -> None:
    with trio.move_on_after(_CLEAN_UP_WITHIN, shield=True):
        await ctx.client_tool("terminal/kill", named)


def _show(ctx: ToolContext, terminal: str) -> None:
    shown: dict[str, str] = ctx.memory.extras.setdefault(TERMINALS, {})
    shown[ctx.call_id] = terminal
    while len(shown) > _REMEMBERED:
        del shown[next(iter(shown))]
    ctx.progress("running in a terminal of the client")


def _take_output(answer: Mapping[str, Any] | None, on_output: Callable[[bytes], None]) -> None:
    output = None if answer is None else answer.get("output")
    if answer is None or not isinstance(output, str):
        # Nothing printed and nothing told are not the same.
        on_output(_NO_OUTPUT)
    elif output:
        cut = _CUT if answer.get("truncated") is True else b""
        on_output(cut + output.replace("\r\n", "\n").encode("utf-8", "replace"))


def _exit_code(status: Mapping[str, Any] | None) -> int | None:
    """As a shell says it; None where the client does not know."""
    if status is None:
        return None
    code, name = status.get("exitCode"), status.get("signal")
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    if isinstance(name, str):
        number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
        return 128 + int(number) if isinstance(number, signal.Signals) else None
    return None


def _write_script(path: Path, request: ProcessRequest) -> None:
    """The whole environment is set anew: a terminal of the client begins with the client's own."""
    assignments = [f"{name}={value}" for name, value in request.env.items()]
    line = shlex.join(["exec", "env", "-i", *assignments, *request.argv])
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(line + "\n"))
