"""What all built-in tools have in common: their shape, JSON results, readable failures."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from hermes.agent.ports import ToolContext, ToolFailure, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tool_display import tool_preview
from hermes.agent.tools.services import ToolServices


class BuiltinTool(ABC):
    """Base of the built-in tools: ``spec`` and ``flags`` are class attributes, ``run`` is the tool's own.

    Two optional attributes mean something to the tree and the registry: ``cancelled(ctx, arguments)`` gives the result
    text of a call that was cancelled while it ran; ``answered_by`` names the kind of client question without which the
    tool is not offered.
    """

    spec: ToolSpec
    flags: ToolFlags
    answered_by: str | None = None

    def __init__(self, services: ToolServices) -> None:
        self.services = services

    @abstractmethod
    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str: ...

    def preview(self, arguments: Mapping[str, Any]) -> str:
        return tool_preview(self.spec.name, arguments)

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return ()


def parameters(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """The JSON schema of an object with these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def number(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, **more}


def flag(description: str, *, default: bool = False) -> dict[str, Any]:
    return {"type": "boolean", "description": description, "default": default}


def choice(description: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "description": description, **more}


def as_json(value: Any) -> str:
    """Compact JSON that keeps every character as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def result(value: Mapping[str, Any], **more: Any) -> ToolOutput:
    """A JSON result; a top-level ``error`` makes it a failure."""
    failed = bool(value.get("error"))
    status = more.pop("status", "error" if failed else "ok")
    return ToolOutput(as_json(value), is_error=failed, status=status, **more)


def failure(message: str, **more: Any) -> ToolFailure:
    """A failure for the model to read, as a JSON object with ``error``."""
    return ToolFailure(as_json({"error": message, **more}))


def blocked(message: str, **more: Any) -> ToolFailure:
    """A refusal: by a rule or by a person."""
    return ToolFailure(as_json({"error": message, "status": "blocked", **more}), status="blocked")


def is_text(value: str, *, errors: str = "strict") -> bool:
    """False if it cannot be written down as UTF-8; ``surrogateescape`` also takes names of files that are no text."""
    try:
        value.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def absolute(ctx: ToolContext, path: str) -> Path:
    """A path as the model wrote it, made absolute in the session's directory; ``~`` is the user's home."""
    if "\0" in path:
        raise failure("a path cannot contain a NUL character")
    if not is_text(path, errors="surrogateescape"):
        raise failure("the path holds half a character (a lone surrogate)")
    plain = Path(path)
    if path.startswith("~"):
        # A user that does not exist has no home: then it is a name like any other.
        with contextlib.suppress(RuntimeError):
            plain = plain.expanduser()
    return plain if plain.is_absolute() else Path(ctx.memory.cwd) / plain


def ends_only_the_plugin(error: BaseException) -> bool:
    """Whether this, raised by foreign code, is that code's own affair alone."""
    return beyond_the_plugin(error) is None


def beyond_the_plugin(error: BaseException) -> BaseException | None:
    """What of this, raised by foreign code, is not that code's own affair: a cancel, an interrupt from the keyboard,
    the end of a generator. None if nothing is."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(_is_ours)
    return error if _is_ours(error) else None


def _is_ours(error: BaseException) -> bool:
    if isinstance(error, KeyboardInterrupt):
        return raised_by_a_signal(error)
    return isinstance(error, trio.Cancelled | GeneratorExit)


def raised_by_a_signal(error: KeyboardInterrupt) -> bool:
    """Whether somebody has pressed Ctrl-C: it was raised by the handler of that signal, or by Trio, which keeps it for
    the next checkpoint of the main task; and not by code that calls itself interrupted."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # Written in C, it leaves no frame; but signals are handled in the main thread alone.
        return threading.current_thread() is threading.main_thread()
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return False
    frame = at.tb_frame
    return frame.f_code is getattr(handler, "__code__", None) or frame.f_globals["__name__"].startswith("trio._core.")
