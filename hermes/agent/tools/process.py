"""process_manage: look after the background processes of this session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from hermes.agent.ports import BackgroundProcessInfo, ParallelClass, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, choice, failure, is_text, number, parameters, result, text
from hermes.agent.tools.command_output import decode
from hermes.errors import HermesError, ProcessNotFound

_ACTIONS = ("list", "poll", "log", "wait", "kill", "write", "submit", "close")
_PREVIEW = 1000
_MAX_LOG = 50_000
_AT_ONCE = 8000


class ProcessManage(BuiltinTool):
    spec = ToolSpec(
        "process_manage",
        "Look after background processes that terminal started: list them, poll for new output, read the log, wait for "
        "the end, kill, write to their input (submit adds a newline, close ends the input).",
        parameters(
            {
                "action": choice("What to do.", *_ACTIONS),
                "session_id": text("The process id (proc_…); a unique beginning of it is enough."),
                "data": text("For write and submit: the text."),
                "timeout": number("For wait: seconds.", minimum=0),
                "offset": number("For log: first line, from 1."),
                "limit": number("For log: number of lines (default: the last 200).", minimum=1),
            },
            "action",
        ),
    )
    flags = ToolFlags(ParallelClass.BARRIER, toolset="shell", kind="execute")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        action = arguments["action"]
        if action == "list":
            infos = ctx.processes.list()
            for info in infos:
                _told(ctx, info)
            return result({"processes": [self._entry(ctx, info) for info in infos]})
        if action not in _ACTIONS:
            raise failure(f"unknown action {action!r}; use one of {', '.join(_ACTIONS)}")
        wanted = str(arguments.get("session_id") or "")
        process_id = self._find(ctx, wanted)
        if process_id is None:
            return result({"status": "not_found", "error": f"no process {wanted!r} in this session"})
        try:
            return await self._act(ctx, str(action), process_id, arguments)
        except ProcessNotFound:
            return result({"status": "not_found", "error": f"no process {wanted!r} in this session"})
        except (HermesError, OSError) as error:
            raise failure(str(error), session_id=process_id) from None

    async def _act(self, ctx: ToolContext, action: str, process_id: str, arguments: Mapping[str, Any]) -> ToolOutput:
        processes = ctx.processes
        match action:
            case "poll":
                info = processes.get(process_id)
                _told(ctx, info)
                return result(self._state(info, await self._cleaned(processes.read_new(process_id))))
            case "log":
                return result(_log(process_id, await self._cleaned(processes.log(process_id)), arguments))
            case "wait":
                most = float(ctx.settings.terminal.max_foreground_timeout)
                within = min(max(0.0, _number(arguments.get("timeout"), ctx.settings.terminal.timeout)), most)
                info = await processes.wait(process_id, within)
                _told(ctx, info)
                status = "timeout" if info.status == "running" else "exited"
                return result(
                    {**self._state(info, await self._cleaned(processes.read_new(process_id))), "status": status}
                )
            case "kill":
                was_running = processes.get(process_id).status == "running"
                info = await processes.kill(process_id)
                _told(ctx, info)
                status = "killed" if was_running else "already_exited"
                return result(
                    {**self._state(info, await self._cleaned(processes.read_new(process_id))), "status": status}
                )
            case "close":
                await processes.close_stdin(process_id)
            case _:
                data = str(arguments.get("data") or "") + ("\n" if action == "submit" else "")
                if not is_text(data):
                    raise failure("the data holds half a character (a lone surrogate)")
                await processes.write(process_id, data.encode())
        return result({"session_id": process_id, "status": "ok"})

    def cancelled(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        """A wait that was interrupted; the process itself runs on."""
        process_id = self._find(ctx, str(arguments.get("session_id") or ""))
        return result({"session_id": process_id, "status": "interrupted", "note": "the process itself was not touched"})

    def _find(self, ctx: ToolContext, wanted: str) -> str | None:
        known = [info.process_id for info in ctx.processes.list()]
        if wanted in known:
            return wanted
        close = [process_id for process_id in known if wanted and process_id.startswith((wanted, f"proc_{wanted}"))]
        return close[0] if len(close) == 1 else None

    def _clean(self, output: str) -> str:
        shown = decode(output.encode("utf-8", "replace"))
        return redact(shown) if self.services.redact else shown

    async def _cleaned(self, output: str) -> str:
        """The same for what may be long: that takes a while."""
        if len(output) <= _AT_ONCE:
            return self._clean(output)
        return await trio.to_thread.run_sync(self._clean, output)

    def _entry(self, ctx: ToolContext, info: BackgroundProcessInfo) -> dict[str, Any]:
        end = info.ended_at if info.ended_at is not None else ctx.now()
        return {
            "session_id": info.process_id,
            "command": redact(info.command)[:500],
            "cwd": info.cwd,
            "pid": info.pid,
            "uptime_seconds": round(max(0.0, end - info.started_at), 1),
            "status": info.status,
            "exit_code": info.exit_code,
            "output_preview": self._clean(info.output_preview)[-200:],
        }

    def _state(self, info: BackgroundProcessInfo, new: str) -> dict[str, Any]:
        state: dict[str, Any] = {
            "session_id": info.process_id,
            "status": info.status,
            "output": new[-_MAX_LOG:],
            "output_preview": self._clean(info.output_preview)[-_PREVIEW:],
        }
        if info.exit_code is not None:
            state["exit_code"] = info.exit_code
        if len(new) > _MAX_LOG:
            state["left_out"] = len(new) - _MAX_LOG
        return state


def _log(process_id: str, output: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    lines = output.splitlines()
    limit = max(1, int(arguments.get("limit") or 200))
    offset = arguments.get("offset")
    start = max(0, len(lines) - limit) if not offset else max(0, int(offset) - 1)
    shown = "\n".join(lines[start : start + limit])
    body: dict[str, Any] = {
        "session_id": process_id,
        "output": shown[-_MAX_LOG:],
        "first_line": start + 1,
        "total_lines": len(lines),
    }
    if len(shown) > _MAX_LOG:
        body["left_out"] = len(shown) - _MAX_LOG
        body["first_line"] += shown[:-_MAX_LOG].count("\n")
    return body


def _number(value: Any, default: float) -> float:
    # Not `or`: not waiting at all can be meant.
    return float(default if value is None else min(value, 10**9))


def _told(ctx: ToolContext, info: BackgroundProcessInfo) -> None:
    """The model reads of this end here: it needs no turn of its own any more."""
    if info.status != "running":
        ctx.processes.told(info.process_id)
