"""How MCP servers are described: in the configuration (``mcp_servers``) and by an ACP client. Pure.

A description that cannot work is not an exception: it becomes a server with a ``problem``, which is shown in the
status, so that one wrong line takes no other server away.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Literal

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

Transport = Literal["stdio", "http", "sse"]

CALL_TIMEOUT = 120.0
CONNECT_TIMEOUT = 30.0

# What a tool server may need to run at all. Everything else has to be named in its `env`.
_INHERITED = lazy_pattern(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|XDG_[A-Z_]+|LD_LIBRARY_PATH"
)


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """One server. ``include`` None means all tools; both lists may hold patterns such as ``read_*``."""

    name: str
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    enabled: bool = True
    timeout: float = CALL_TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    parallel: bool = False
    problem: str = ""

    def offers(self, tool: str) -> bool:
        """Whether the configuration lets this tool (by the server's own name for it) be used."""
        if any(fnmatchcase(tool, pattern) for pattern in self.exclude):
            return False
        return self.include is None or any(fnmatchcase(tool, pattern) for pattern in self.include)

    def summary(self) -> dict[str, Any]:
        """The row of ``mcp.servers.list``: values of the environment and headers stay out."""
        row: dict[str, Any] = {
            "name": self.name,
            "transport": self.transport,
            "args": list(self.args),
            "env": sorted(self.env),
            "enabled": self.enabled,
            "tools": None if self.include is None else list(self.include),
            "source": "config",
        }
        if self.transport == "stdio":
            row["command"] = self.command
        else:
            row["url"] = self.url.split("?")[0]
        return row


def configured_servers(settings: Mapping[str, Mapping[str, Any]]) -> tuple[McpServerConfig, ...]:
    """The servers of the ``mcp_servers`` setting, in its order."""
    return tuple(_configured(str(name), raw) for name, raw in settings.items())


def client_servers(items: Sequence[Mapping[str, Any]]) -> tuple[McpServerConfig, ...]:
    """The ``mcpServers`` of an ACP request; an entry without a name is nothing."""
    found: dict[str, McpServerConfig] = {}
    for item in items:
        name = item.get("name") if isinstance(item, Mapping) else None
        if isinstance(name, str) and name.strip():
            found[name] = _configured(name, {**item, **{key: _pairs(item.get(key)) for key in ("env", "headers")}})
    return tuple(found.values())


def revision(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """A short name of this state of the setting: it changes when the setting does (``mcp_rev``)."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def server_environment(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a stdio server: the few inherited variables, then its own."""
    kept = {name: value for name, value in base.items() if _INHERITED.fullmatch(name)}
    return {**kept, **own}


def _configured(name: str, raw: Mapping[str, Any]) -> McpServerConfig:
    try:
        return _read(name, raw)
    except _Wrong as wrong:
        return McpServerConfig(name, problem=str(wrong))


class _Wrong(Exception):
    """What is wrong with a description, in a sentence."""


def _read(name: str, raw: Mapping[str, Any]) -> McpServerConfig:
    if not isinstance(raw, Mapping):
        raise _Wrong("must be a mapping with `command` or `url`")
    command, url = _text(raw, "command"), _text(raw, "url")
    if bool(command) == bool(url):
        raise _Wrong("needs either `command` or `url`")
    kind = _text(raw, "type") or _text(raw, "transport")
    transport: Transport = "stdio" if command else "http"
    if kind == "sse" and url:
        transport = "sse"
    elif kind not in ("", transport, "streamable-http", "streamable_http"):
        raise _Wrong(f"`type: {kind}` does not fit; known are stdio, http and sse")
    if url and not url.startswith(("http://", "https://")):
        raise _Wrong("`url` must begin with http:// or https://")
    tools = raw.get("tools") or {}
    if not isinstance(tools, Mapping):
        raise _Wrong("`tools` must be a mapping with `include` or `exclude`")
    return McpServerConfig(
        name,
        transport,
        command=command,
        args=_words(raw.get("args"), "args") or (),
        env=_strings(raw, "env"),
        cwd=_text(raw, "cwd") or None,
        url=url,
        headers=_strings(raw, "headers"),
        enabled=_switch(raw, "enabled", default=True),
        timeout=_seconds(raw, "timeout", CALL_TIMEOUT),
        connect_timeout=_seconds(raw, "connect_timeout", CONNECT_TIMEOUT),
        include=_words(tools.get("include"), "tools.include"),
        exclude=_words(tools.get("exclude"), "tools.exclude") or (),
        parallel=_switch(raw, "supports_parallel_tool_calls", default=False),
    )


def _pairs(items: Any) -> Any:
    """``[{name, value}]``, as ACP writes it, as a mapping; anything else as it is."""
    if not isinstance(items, list):
        return items
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items):
        return "?"
    return {item["name"]: str(item.get("value", "")) for item in items}


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Wrong(f"`{key}` must be a text")
    return value.strip()


def _strings(raw: Mapping[str, Any], key: str) -> dict[str, str]:
    value = raw.get(key) or {}
    if not isinstance(value, Mapping):
        raise _Wrong(f"`{key}` must be a mapping")
    return {str(name): str(text) for name, text in value.items()}


def _words(value: Any, key: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _Wrong(f"`{key}` must be a list")
    return tuple(str(one) for one in value)


def _switch(raw: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = raw.get(key, default)
    if isinstance(value, str):
        return value.strip().lower() in ("1", "true", "yes", "on")
    return bool(value)


def _seconds(raw: Mapping[str, Any], key: str, default: float) -> float:
    value = raw.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _Wrong(f"`{key}` must be a number of seconds above 0")
    return float(value)
