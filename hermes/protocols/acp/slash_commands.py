"""Slash commands that arrive as prompts, answered without a model call and where possible without network.

A command is recognised when the whole prompt is text that begins with its name; any other ``/word`` goes to the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from hermes import __version__
from hermes.errors import HermesError
from hermes.nurseries import command_runner, model_choice, session_compression, session_options
from hermes.nurseries.session import Session
from hermes.nurseries.session_ready import list_tools
from hermes.protocols.acp import offers
from hermes.protocols.acp.content import text_block
from hermes.protocols.acp.context import AcpContext
from hermes.protocols.acp.prompt_end import END_TURN
from hermes.protocols.acp.schemas import SessionPromptResult
from hermes.protocols.acp.updates import MESSAGE, message_id
from hermes.protocols.rpc.method_table import Awaiting
from hermes.records import dataclass

NAMES: Final = frozenset((*(name for name, _, _ in offers.COMMANDS), *offers.SHARED_COMMANDS))
BUSY: Final = "The session is busy: a turn is running. Cancel it, or wait until it has ended."

Answer = str | SessionPromptResult | Awaiting[SessionPromptResult]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    name: str
    rest: str


def slash_command(text: str | None) -> SlashCommand | None:
    """The command a prompt is, or None."""
    if text is None or not text.lstrip().startswith("/"):
        return None
    word, _, rest = text.strip()[1:].partition(" ")
    word, newline, more = word.partition("\n")
    name = word.lower()
    return SlashCommand(name, (more + " " + rest if newline else rest).strip()) if name in NAMES else None


def run_command(ctx: AcpContext, session: Session, command: SlashCommand) -> Answer:
    """The answer to the prompt; a string is a prompt to be run in its place. Synchronous but for what must wait."""
    match command.name:
        case "model" if command.rest:
            return _waiting(ctx, session, lambda: _switch(session, command.rest))
        case "reset":
            return _waiting(ctx, session, lambda: _reset(session))
        case "compress":
            return _waiting(ctx, session, lambda: _compress(session, command.rest))
        case "queue" if command.rest:
            return command.rest
        case "steer" if command.rest:
            return _say(ctx, session, STEERED) if session.steer(command.rest) else command.rest
        case "steer" | "queue":
            return _say(ctx, session, f"Write what to do behind the command: /{command.name} TEXT")
        case "model":
            info = session.info()
            return _say(ctx, session, f"Model: {info.model or 'none yet'}\nProvider: {info.provider or 'none yet'}")
        case "tools":
            return _say(ctx, session, _tools(session))
        case "context":
            return _say(ctx, session, _context(session))
        case "version":
            return _say(ctx, session, f"Hermes {__version__}")
        case "help":
            return _say(ctx, session, _help())
        case _:
            return Awaiting(lambda: _shared(ctx, session, command))


STEERED: Final = "The running turn will read this at its next step."


def _say(ctx: AcpContext, session: Session, text: str) -> SessionPromptResult:
    message = message_id(session.key, "command", session.services.ids("command"))
    ctx.update(session, {"sessionUpdate": MESSAGE, "messageId": message, "content": text_block(text)})
    ctx.tell_usage(session)
    return END_TURN


def _waiting(ctx: AcpContext, session: Session, work: Callable[[], Awaitable[str]]) -> Answer:
    if session.slot.taken:
        return _say(ctx, session, BUSY)

    return Awaiting(lambda: _say_result(ctx, session, work))


async def _say_result(ctx: AcpContext, session: Session, work: Callable[[], Awaitable[str]]) -> SessionPromptResult:
    try:
        text = await work()
    except HermesError as error:
        text = error.message
    return _say(ctx, session, text)


async def _shared(ctx: AcpContext, session: Session, command: SlashCommand) -> SessionPromptResult:
    async def run() -> str:
        result = await command_runner.run_command(ctx.tree, session, command.name, command.rest)
        return result.output or result.notice or result.message or "Done."

    return await _say_result(ctx, session, run)


async def _switch(session: Session, line: str) -> str:
    """For this session only, unless the line itself says otherwise."""
    own = any(flag in line.split() for flag in ("--global", "--session", "--once"))
    switched = await model_choice.switch(session, line if own else f"{line} --session", confirmed=True)
    warning = f"\n{switched.warning}" if switched.warning else ""
    return f"Model: {switched.model}\nProvider: {switched.provider}{warning}"


async def _reset(session: Session) -> str:
    removed = await session_options.empty(session)
    return "The conversation starts anew." if removed else "There was nothing to forget."


async def _compress(session: Session, topic: str) -> str:
    result = await session_compression.compress(session, topic or None)
    summary = result.summary
    lines = (summary.headline, summary.token_line, summary.note, result.message)
    return "\n".join(line for line in dict.fromkeys(lines) if line)


def _tools(session: Session) -> str:
    list_tools(session)
    toolsets = session.info().tools
    lines = [f"- {toolset}: {', '.join(sorted(names))}" for toolset, names in sorted(toolsets.items())]
    return "\n".join(["Tools of this session:", *lines]) if lines else "This session has no tools."


def _context(session: Session) -> str:
    info = session.info()
    used, size = info.context_used, info.context_max
    share = f" ({100 * used // size} %)" if used and size else ""
    return (
        f"Context: {used if used is not None else 0} of {size or 'an unknown number of'} tokens{share}\n"
        f"Messages: {info.message_count}\nDirectory: {info.cwd}"
    )


def _help() -> str:
    rows = [f"- /{name}{f' {hint}' if hint else ''}: {text}" for name, text, hint in offers.command_rows()]
    return "\n".join(["Commands:", *rows])
