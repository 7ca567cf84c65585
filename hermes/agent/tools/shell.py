"""terminal: run a shell command, in the foreground or beside the conversation.

Directory and exported variables of one command are there for the next one of the session. A cancelled call has already
ended its processes when ``cancelled`` is asked for the partial output.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import trio

from hermes.agent.command_views import views_of
from hermes.agent.ports import (
    BackgroundProcessInfo,
    ParallelClass,
    ProcessOutcome,
    ProcessRequest,
    ToolContext,
    ToolFlags,
    ToolOutput,
    ToolSpec,
)
from hermes.agent.redaction import redact
from hermes.agent.redaction_stream import RedactedStream
from hermes.agent.tools.approval_gate import Approval, approve_command
from hermes.agent.tools.base import BuiltinTool, absolute, as_json, failure, flag, is_text, number, parameters, text
from hermes.agent.tools.child_environment import apply_changes, changes, clean_environment
from hermes.agent.tools.client_terminal import run_in_client
from hermes.agent.tools.command_output import decode, exit_meaning, hint_for, truncate
from hermes.agent.tools.shell_script import ShellState, read_state, shell_argv
from hermes.agent.tools.spillover import write_spillover
from hermes.agent.tools.stored_secrets import stored_for
from hermes.agent.tools.sudo_password import ask_sudo_password, check_sudo_password, forget_wrong_password
from hermes.errors import HermesError
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_CALLS = "terminal_calls"
_REMOVED = "shell_removed"
_STARTED = "shell_started"
_KEEP_BYTES = 2_000_000
_MAX_STATE = 4_000_000
_LONGEST_GRACE = 10.0
"""A stop waits for the last process: no call may put it off for longer."""
_PREVIEW, _LOOKED_AT = 2000, 12_000
_PREVIEW_EVERY = 0.1
"""Seconds between two previews: making one costs more than taking a chunk of output."""
_HINTED = 4000
_AT_ONCE = 8000
_SEARCHED, _MOST_PATHS = 4000, 20
# A word with a slash in it that begins no option and is no address; or what `cd` is told.
_PATH_WORD = lazy_pattern(r"(?:(?<=\bcd )|(?<![^\s=\"'(<>]))(?!https?://)[\w.~+@%-]*/[\w./~+@%-]*|(?<=\bcd )[\w.+@%-]+")


_PARAMETERS = {
    "command": text("The command line for bash."),
    "background": flag("Start it beside the conversation and return its id."),
    "timeout": number("Seconds until the command is ended (at most 600 in the foreground).", minimum=1),
    "workdir": text("Directory for this command only."),
    "pty": flag("Give it a terminal, for programs that insist on one."),
    "notify": flag("With background: start a turn when it ends."),
    "kill_grace": {"type": "number", "description": "Seconds between the request to end and the kill (at most 10)."},
}


@dataclass(slots=True)
class _Output:
    """The output of one running call, bounded; what lies between head and tail is counted and dropped."""

    command: str
    limit_s: float = 0.0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, chunk: bytes) -> None:
        room = _KEEP_BYTES * 2 // 5 - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        self.tail += chunk
        limit = _KEEP_BYTES * 3 // 5
        if len(self.tail) > 2 * limit:
            self.dropped += len(self.tail) - limit
            del self.tail[:-limit]

    def text(self, most: int = 0) -> str:
        """All that was kept; or about ``most`` bytes of its beginning and as many of its end."""
        head, tail, dropped = bytes(self.head), bytes(self.tail), self.dropped
        if most and len(head) + len(tail) > 2 * most:
            whole = head + tail
            head, tail, dropped = whole[:most], whole[-most:], dropped + len(whole) - 2 * most
        if not dropped:
            return decode(head + tail)
        # Whole lines, so that a secret at the cut is either there as a whole, and masked, or not at all.
        before = head.rfind(b"\n", -_LOOKED_AT) + 1 or len(head)
        behind = tail.find(b"\n", 0, _LOOKED_AT) + 1
        dropped += len(head) - before + behind
        return f"{decode(head[:before])}\n[... {dropped} bytes were not kept ...]\n{decode(tail[behind:])}"

    def both(self, redacts: bool) -> tuple[str, str]:
        """(the text, the text as it may be shown); takes a while for a long one."""
        whole = self.text()
        return whole, redact(whole) if redacts else whole


class Terminal(BuiltinTool):
    spec = ToolSpec(
        "terminal",
        "Run a shell command. The working directory and exported variables persist between calls. Standard input is "
        "empty: pass answers as arguments. Prefer read_file, search_files and patch for files. Set background for "
        "servers and other processes that do not end, then process_manage.",
        parameters(_PARAMETERS, "command"),
        accepts=parameters(_PARAMETERS | {"notify": {"type": ["boolean", "array"]}}, "command"),
    )
    flags = ToolFlags(ParallelClass.BARRIER, interactive=True, result_limit=None, toolset="shell", kind="execute")

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """What looks like a path in the command, for hints only: a command is a barrier, whatever it touches."""
        workdir = arguments.get("workdir")
        named = _PATH_WORD.findall(str(arguments.get("command", ""))[:_SEARCHED])[:_MOST_PATHS]
        return [workdir, *named] if isinstance(workdir, str) and workdir else named

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        command = str(arguments["command"])
        if not command.strip():
            raise failure("the command is empty")
        if "\0" in command:
            raise failure("a command cannot contain a NUL character")
        if not is_text(command, errors="surrogateescape"):
            raise failure("the command holds half a character (a lone surrogate)")
        directory, moved = self._directory(ctx, arguments.get("workdir"))
        approval = await approve_command(ctx, self.services, command, directory)
        asked = _seconds(arguments.get("timeout"), ctx.settings.terminal.timeout)
        too_long = asked > ctx.settings.terminal.max_foreground_timeout
        if arguments.get("background") or too_long:
            return await self._start(ctx, arguments, command, directory, notify=too_long, note=moved)
        with_sudo = await ask_sudo_password(ctx, self.services, command, self._environment(ctx))
        output = _Output(command, asked)
        ctx.memory.extras.setdefault(_CALLS, {})[ctx.call_id] = output
        outcome, state = await self._run(ctx, arguments, output, directory, asked, with_sudo)
        del ctx.memory.extras[_CALLS][ctx.call_id]
        if outcome.moved is not None:
            return await self._moved(ctx, output, outcome.moved)
        cwd = None if arguments.get("workdir") else self._keep(ctx, state)
        note = _with_note_on_terminal(moved, arguments, with_sudo)
        return await self._result(ctx, output, outcome, approval, cwd=cwd, note=note, pty=bool(arguments.get("pty")))

    def cancelled(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        """The result of an interrupted command: its partial output and exit code 130."""
        output: _Output | None = ctx.memory.extras.get(_CALLS, {}).pop(ctx.call_id, None)
        if output is None:
            body = {"output": "", "exit_code": -1, "error": "The call was cancelled before the command started."}
            return ToolOutput(as_json(body), is_error=True, status="error")
        # The stop waits for this: only what will be shown is looked through.
        limit = int(ctx.settings.tool_output.max_bytes)
        shown = truncate(redact(output.text(limit)), limit).text
        error = "[The command was interrupted; its processes were ended.]"
        body = {"output": shown, "exit_code": 130, "error": error, "exit_code_meaning": "interrupted"}
        return ToolOutput(as_json(body), is_error=True, status="error", details=_details(output.command, None, 130))

    async def _moved(self, ctx: ToolContext, output: _Output, info: BackgroundProcessInfo) -> ToolOutput:
        """The result of a command that the user's words have moved to the background."""
        _, shown = await self._read(output)
        body = {
            "output": truncate(shown, int(ctx.settings.tool_output.max_bytes)).text,
            "status": "moved_to_background",
            "note": "The user has sent a message, so the command goes on in the background. Its end will be announced; "
            "look after it with process_manage.",
            "session_id": info.process_id,
            "pid": info.pid,
            "exit_code": 0,
            "notify_on_complete": True,
        }
        summary = f"moved to the background as {info.process_id}"
        return ToolOutput(as_json(body), summary=summary, details=_details(output.command, info.cwd, 0))

    # --- running -----------------------------------------------------------------------------------------------------

    async def _run(
        self,
        ctx: ToolContext,
        arguments: Mapping[str, Any],
        output: _Output,
        directory: str,
        timeout: float,
        with_sudo: bool,
    ) -> tuple[ProcessOutcome, ShellState | None]:
        keeps = bool(ctx.settings.terminal.persistent_shell)
        state_file = _state_file(ctx.home) if keeps else None
        init_files = () if ctx.memory.extras.get(_STARTED) else tuple(ctx.settings.terminal.shell_init_files)
        grace = arguments.get("kill_grace")
        request = ProcessRequest(
            argv=shell_argv(
                self.services.shell, output.command, state_file, init_files=init_files, with_sudo=with_sudo
            ),
            cwd=directory,
            env=self._environment(ctx),
            timeout=timeout,
            kill_grace=min(max(0.0, float(grace)), _LONGEST_GRACE) if grace is not None else None,
            stdin=f"{ctx.memory.sudo_password}\n".encode() if with_sudo else None,
            pty=bool(arguments.get("pty")) and not with_sudo,
            movable_as=redact(output.command),
            scratch=state_file,
        )

        shown_at = -math.inf

        def on_output(chunk: bytes) -> None:
            nonlocal shown_at
            output.add(chunk)
            if (now := trio.current_time()) - shown_at < _PREVIEW_EVERY:
                return
            shown_at = now
            newest = bytes(output.tail[-_LOOKED_AT:] or output.head[-_LOOKED_AT:])
            # What may be half a secret at the end is held back; at the beginning it is not shown.
            ctx.progress(RedactedStream(redact).feed(decode(newest))[-_PREVIEW:])

        try:
            outcome = await self._begin(ctx, request, on_output)
        except (OSError, HermesError) as error:
            del ctx.memory.extras[_CALLS][ctx.call_id]
            raise failure(str(error), exit_code=-1, output="") from None
        finally:
            if state_file is not None:
                state = _take_state(state_file)
        ctx.memory.extras[_STARTED] = True
        if not (output.head or output.tail) and outcome.output:
            output.add(outcome.output)
        return outcome, state if keeps else None

    async def _begin(
        self, ctx: ToolContext, request: ProcessRequest, on_output: Callable[[bytes], None]
    ) -> ProcessOutcome:
        """In a terminal of the client if it has one for this command, else in a process of ours."""
        if request.stdin is None and not request.pty:
            script = Path(_state_file(ctx.home)).with_suffix(".sh")
            outcome = await run_in_client(ctx, replace(request, max_output_bytes=_KEEP_BYTES), on_output, script)
            if outcome is not None:
                return outcome
        return await ctx.run_process(request, on_output)

    def _environment(self, ctx: ToolContext) -> dict[str, str]:
        return apply_changes(self._base(ctx), ctx.memory.env, ctx.memory.extras.get(_REMOVED, ()))

    def _base(self, ctx: ToolContext) -> dict[str, str]:
        passthrough = ctx.settings.terminal.env_passthrough
        clean = clean_environment(
            self.services.environment, secret_names=self.services.secret_names, passthrough=passthrough
        )
        return {**clean, **stored_for(self.services, ctx.memory, passthrough)}

    def _keep(self, ctx: ToolContext, state: ShellState | None) -> str | None:
        """Remember where the shell ended; returns the directory if it changed."""
        if state is None:
            return None
        if state.environment is not None:
            base = self._base(ctx)
            # Names that no shell variable can have are not recorded; they are still there.
            odd = {name: value for name, value in base.items() if not name.isidentifier()}
            ctx.memory.env, removed = changes(base, odd | state.environment)
            ctx.memory.extras[_REMOVED] = removed
        if state.cwd == ctx.memory.cwd or os.path.realpath(ctx.memory.cwd) == state.cwd:
            return None
        ctx.memory.cwd = state.cwd
        return state.cwd

    def _directory(self, ctx: ToolContext, workdir: object) -> tuple[str, str | None]:
        """(where to run, a note if the directory is gone and the nearest parent stands in)."""
        wanted = absolute(ctx, workdir) if isinstance(workdir, str) and workdir else Path(ctx.memory.cwd)
        if workdir and not os.path.isdir(wanted):
            raise failure(f"workdir {wanted} is not a directory")
        found = next((path for path in (wanted, *wanted.parents) if path.is_dir()), Path("/"))
        if found == wanted:
            return str(wanted), None
        ctx.memory.cwd = str(found)
        return str(found), f"the working directory {wanted} is gone; running in {found}"

    async def _start(
        self,
        ctx: ToolContext,
        arguments: Mapping[str, Any],
        command: str,
        directory: str,
        *,
        notify: bool,
        note: str | None,
    ) -> ToolOutput:
        wants_notice = notify or bool(arguments.get("notify"))
        environment = self._environment(ctx)
        with_sudo = await ask_sudo_password(ctx, self.services, command, environment)
        try:
            if with_sudo and (objection := await check_sudo_password(ctx, environment)):
                raise failure(objection, exit_code=1, output="")
            request = ProcessRequest(
                argv=shell_argv(self.services.shell, command, None, with_sudo=with_sudo, keeps_input=True),
                cwd=directory,
                env=environment,
                stdin=f"{ctx.memory.sudo_password}\n".encode() if with_sudo else None,
                # A terminal would show the password.
                pty=bool(arguments.get("pty")) and not with_sudo,
            )
            info = await ctx.processes.start(request, command=redact(command), notify=wants_notice)
        except (OSError, HermesError) as error:
            raise failure(str(error), exit_code=-1, output="") from None
        said = "The timeout is above the limit for the foreground, so it runs in the background. " if notify else ""
        body: dict[str, Any] = {
            "output": f"{said}Background process started; look after it with process_manage.",
            "session_id": info.process_id,
            "pid": info.pid,
            "exit_code": 0,
            "notify_on_complete": wants_notice,
        }
        patterns = "output is not watched for patterns; the end is announced"
        notes = (patterns if isinstance(arguments.get("notify"), list) else None, note)
        if note := _with_note_on_terminal("; ".join(filter(None, notes)), arguments, with_sudo):
            body["note"] = note
        return ToolOutput(as_json(body), summary=f"started {info.process_id}", details=_details(command, directory, 0))

    # --- the result --------------------------------------------------------------------------------------------------

    async def _read(self, output: _Output) -> tuple[str, str]:
        """(the text, the text as it may be shown)."""
        if len(output.head) + len(output.tail) <= _AT_ONCE:
            return output.both(self.services.redact)
        return await trio.to_thread.run_sync(output.both, self.services.redact)

    async def _result(
        self,
        ctx: ToolContext,
        output: _Output,
        outcome: ProcessOutcome,
        approval: Approval,
        *,
        cwd: str | None,
        note: str | None,
        pty: bool,
    ) -> ToolOutput:
        code = 124 if outcome.timed_out else outcome.exit_code
        whole, shown = await self._read(output)
        limit = int(ctx.settings.tool_output.max_bytes)
        where = None
        if len(shown) > limit:
            where = await trio.to_thread.run_sync(_spill, ctx.home, ctx.call_id, shown, ctx.now())
        error = f"[The command ran into its time limit of {output.limit_s:g} s and was ended.]"
        body: dict[str, Any] = {
            "output": truncate(shown, limit, where=where).text,
            "exit_code": code if code is not None else -1,
            "error": error if outcome.timed_out else None,
        }
        views = views_of(output.command[:_HINTED])
        last = next((view for view in reversed(views) if view.command.words), None)
        if meaning := exit_meaning(last.name if last else "", code):
            body["exit_code_meaning"] = meaning
        if cwd is not None:
            body["cwd"] = cwd
        if notes := [item for item in (note, approval.note) if item]:
            body["note"] = "; ".join(notes)
        if last is not None and (hint := _hint(output.command[:_HINTED], pty=pty)):
            body["hint"] = hint
        forget_wrong_password(ctx, whole)
        summary = f"exit code {body['exit_code']}"
        details = _details(output.command, ctx.memory.cwd, code)
        return ToolOutput(
            as_json(body), is_error=code != 0, summary=summary, details=details, status="ok" if code == 0 else "error"
        )


def _seconds(asked: Any, default: float) -> float:
    """The limit of a command; what is no time at all is the default."""
    return float(min(asked, 10**9)) if asked and asked > 0 else float(default)


def _details(command: str, cwd: str | None, code: int | None) -> dict[str, Any]:
    return {"command": redact(command)[:4000], "cwd": cwd, "exit_code": code}


def _with_note_on_terminal(note: str | None, arguments: Mapping[str, Any], with_sudo: bool) -> str | None:
    if not (with_sudo and arguments.get("pty")):
        return note
    lost = "the command ran without a terminal: sudo reads the password from its input"
    return f"{note}; {lost}" if note else lost


def _hint(command: str, *, pty: bool) -> str | None:
    views = views_of(command)
    if len(views) != 1 or not views[0].command.words:
        trailing = bool(views) and any(view.command.background for view in views if not view.via)
        return hint_for("", (), pipeline=True, background=trailing, pty=pty)
    view = views[0]
    return hint_for(view.name, view.args, pipeline=False, background=view.command.background, pty=pty)


def _spill(home: Path, name: str, text: str, now: float) -> str | None:
    return write_spillover(home, name, text, now=now)


def _state_file(home: Path) -> str:
    """A path of its own; the directory is there but the first time, so this waits for no disk."""
    folder = home / "cache" / "shell"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(folder / f"{uuid.uuid4().hex}.state")


def _take_state(path: str) -> ShellState | None:
    """Read the side file and remove it. A small local file: read at once, so that it is gone also after a cancel."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(_MAX_STATE)
    os.unlink(path)
    return read_state(raw)
