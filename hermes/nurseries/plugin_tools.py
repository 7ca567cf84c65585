"""Tools of third parties as tools of ours: checked, completed, and run where they belong.

A plugin is an object with ``spec`` and, if it likes, ``flags``, ``timeout``, ``preview`` and ``paths``; and with one
of: ``run(ctx, arguments)``, written for Trio, in the tree itself; ``asyncio_run(ctx, arguments)``, in a private event
loop; ``process = "module:function"``, in a child process. What is wrong with one plugin costs that plugin only.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import trio

from hermes.agent.ports import Tool, ToolContext, ToolFailure, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tool_display import tool_preview
from hermes.agent.tools.base import beyond_the_plugin, ends_only_the_plugin
from hermes.nurseries.asyncio_island import PluginBroken, run_asyncio_tool
from hermes.nurseries.plugin_process import PluginHost, ProcessCall, run_in_process
from hermes.patterns import lazy_pattern

log = logging.getLogger(__name__)

TIME_LIMIT = 600.0
"""Seconds of a call of a plugin that names no limit and waits for no person: what hangs, ends by itself."""

_NAME = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")

T = TypeVar("T")
Run = Callable[[ToolContext, Mapping[str, Any]], Awaitable[Any]]


class PluginTool:
    """One plugin. Implements ``ports.Tool``."""

    def __init__(self, plugin: Any, run: Run, *, untrusted: bool) -> None:
        self.spec = _spec_of(plugin)
        self.flags = _flags_of(plugin, untrusted=untrusted)
        self._plugin = plugin
        self._run = run
        self._timeout = _timeout_of(plugin, math.inf if self.flags.interactive else TIME_LIMIT)

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput | str:
        try:
            with trio.move_on_after(self._timeout):
                return _output(await self._run(ctx, arguments))
        except PluginBroken as broken:
            raise _failure(f"the tool {self.spec.name} {broken}") from broken
        except BaseException as error:
            # What foreign code raises to end its own process must not end ours.
            ours = beyond_the_plugin(error)
            if isinstance(error, Exception) or ours is error:
                raise
            log.warning("the tool %s raised what is no Exception", self.spec.name, exc_info=error)
            if ours is not None:
                raise ours from error  # noqa: ASYNC104 (a cancel is among what is ours)
            raise _failure(f"the tool {self.spec.name} failed: {type(error).__name__}") from error  # noqa: ASYNC104
        raise _failure(f"the tool {self.spec.name} gave no answer within {self._timeout:g} s")

    def preview(self, arguments: Mapping[str, Any]) -> str:
        own = self._asked("preview", str, arguments)
        return tool_preview(self.spec.name, arguments) if own is None else own

    def paths(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        return self._asked("paths", lambda paths: tuple(map(str, paths)), arguments) or ()

    def _asked(self, what: str, read: Callable[[Any], T], arguments: Mapping[str, Any]) -> T | None:
        """What the plugin itself says of a call; None when it says nothing or fails."""
        own = getattr(self._plugin, what, None)
        try:
            return None if own is None else _answer(own, read, arguments)
        except _Failed as failed:
            log.warning("`%s` of the tool %s failed", what, self.spec.name, exc_info=failed.__cause__)
            return None


class _Failed(Exception):
    """Foreign code raised something, its cause, that is its own affair."""


def _answer(own: Callable[[Mapping[str, Any]], Any], read: Callable[[Any], T], arguments: Mapping[str, Any]) -> T:
    try:
        return read(own(arguments))
    except BaseException as error:
        if not ends_only_the_plugin(error):
            raise
        raise _Failed from error  # noqa: ASYNC104 (a cancel was raised again above)


def adapt_plugins(plugins: Iterable[object], host: PluginHost) -> tuple[Tool, ...]:
    """The plugins as tools, in their order; one that is not what it has to be is reported and left out."""
    tools: dict[str, Tool] = {}
    for plugin in plugins:
        try:
            tool = adapt(plugin, host)
        except (TypeError, ValueError, AttributeError) as error:
            log.warning("the plugin %s cannot be used: %s", type(plugin).__name__, error)
            continue
        if tool.spec.name in tools:
            log.warning("two plugins offer %s; the later one is left out", tool.spec.name)
        tools.setdefault(tool.spec.name, tool)
    return tuple(tools.values())


def adapt(plugin: Any, host: PluginHost) -> Tool:
    """One plugin as a tool. Raises ``TypeError`` or ``ValueError`` with what is wrong."""
    ways = [way for way in ("run", "asyncio_run", "process") if getattr(plugin, way, None) is not None]
    if len(ways) != 1:
        raise TypeError("a tool needs exactly one of `run`, `asyncio_run` and `process`")
    match ways[0]:
        case "run":
            return PluginTool(plugin, plugin.run, untrusted=False)
        case "asyncio_run":
            return PluginTool(plugin, _in_loop(plugin), untrusted=False)
        case _:
            return PluginTool(plugin, _in_process(plugin, host), untrusted=True)


def _in_loop(plugin: Any) -> Run:
    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
        patience = ctx.settings.limits.kill_grace
        return await run_asyncio_tool(plugin.asyncio_run, ctx, arguments, patience=patience, name=plugin.spec.name)

    return run


def _in_process(plugin: Any, host: PluginHost) -> Run:
    function = plugin.process
    if not isinstance(function, str) or not re.fullmatch(r"[\w.]+:[\w.]+", function):
        raise ValueError("`process` must be a text of the form module:function")

    async def run(ctx: ToolContext, arguments: Mapping[str, Any]) -> Any:
        call = ProcessCall(function, arguments, ctx.memory.cwd, ctx.session_key, ctx.turn_id)
        return await run_in_process(host, call, ctx.progress)

    return run


def _spec_of(plugin: Any) -> ToolSpec:
    spec = plugin.spec
    if not isinstance(spec, ToolSpec):
        raise TypeError("`spec` must be a ToolSpec")
    if not _NAME.fullmatch(spec.name):
        raise ValueError(f"{spec.name!r} is no name of a tool: 1 to 64 letters, digits, _ and -")
    if not isinstance(spec.parameters, Mapping) or spec.parameters.get("type") != "object":
        raise ValueError("`spec.parameters` must be the JSON schema of an object")
    return spec


def _flags_of(plugin: Any, *, untrusted: bool) -> ToolFlags:
    flags = getattr(plugin, "flags", None)
    if flags is None:
        return ToolFlags(toolset="plugins", untrusted_output=untrusted)
    if not isinstance(flags, ToolFlags):
        raise TypeError("`flags` must be ToolFlags")
    return flags


def _timeout_of(plugin: Any, default: float) -> float:
    timeout = getattr(plugin, "timeout", None)
    if timeout is None:
        return default
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError("`timeout` must be a number of seconds above 0")
    return float(timeout)


def _output(value: Any) -> ToolOutput | str:
    if isinstance(value, ToolOutput | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _failure(message: str) -> ToolFailure:
    return ToolFailure(json.dumps({"error": message}, ensure_ascii=False))
