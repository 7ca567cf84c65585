"""Parameters and results of the methods we serve, named after them.

Our own models, built on first use: the official packages cost more to import than the whole start-up may take; the
tests check every frame against the official schema. Keys that we do not know are ignored, members that are optional and
malformed count as absent (ACP, "what absence means").
"""

from __future__ import annotations

import ntpath
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pydantic import AfterValidator, Field, StrictInt, StrictStr
from pydantic.alias_generators import to_camel

from hermes.protocols.rpc.method_table import Params, Result
from hermes.records import dataclass

MAX_PATH: Final = 4 * 1024 - 1
MAX_NAME: Final = 255
"""Bytes; what is longer is no path of a file system, and every look at it fails in its own way."""


class AcpParams(Params, alias_generator=to_camel):
    """Base of parameter models."""


class AcpResult(Result, alias_generator=to_camel):
    """Base of results."""


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        drive, _ = ntpath.splitdrive(path)
        where = "a Windows path means nothing to this server" if drive else "it must be absolute"
        raise ValueError(where)
    if "\0" in path:
        raise ValueError("it cannot contain a NUL character")
    if len(os.fsencode(path)) > MAX_PATH or any(len(os.fsencode(name)) > MAX_NAME for name in path.split(os.sep)):
        raise ValueError("it is longer than a path can be")
    return path


def _native(path: str) -> str:
    return windows_to_mount(path) if in_wsl() else path


def in_wsl() -> bool:
    """True under the Windows subsystem for Linux, where an editor outside names paths in its own way."""
    return hasattr(os, "uname") and "microsoft" in os.uname().release.lower()


def windows_to_mount(path: str) -> str:
    r"""``C:\work\a`` as ``/mnt/c/work/a``; any other path as it is."""
    drive, rest = ntpath.splitdrive(path)
    if len(drive) != 2 or drive[1] != ":":
        return path
    return f"/mnt/{drive[0].lower()}{rest.replace(chr(92), '/')}"


AbsolutePath = Annotated[StrictStr, AfterValidator(_native), AfterValidator(_absolute)]


# --- handshake -------------------------------------------------------------------------------------------------------


class InitializeParams(AcpParams):
    protocol_version: StrictInt = Field(ge=0, le=65535)
    client_capabilities: Any = None
    client_info: Any = None


class AuthenticateParams(AcpParams):
    method_id: StrictStr


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """What the client said it can do; everything else it cannot."""

    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    auth_terminal: bool = False
    boolean_options: bool = False
    notices: bool = False
    compaction: bool = False
    forms: bool = False

    @classmethod
    def read(cls, raw: object) -> ClientCapabilities:
        """From the wire; a member of the wrong type counts as absent."""
        whole = _object(raw)
        files, session, auth = _object(whole.get("fs")), _object(whole.get("session")), _object(whole.get("auth"))
        options, elicitation = _object(session.get("configOptions")), _object(whole.get("elicitation"))
        return cls(
            read_text_file=files.get("readTextFile") is True,
            write_text_file=files.get("writeTextFile") is True,
            terminal=whole.get("terminal") is True,
            auth_terminal=auth.get("terminal") is True,
            boolean_options=isinstance(options.get("boolean"), Mapping),
            notices=isinstance(session.get("notices"), Mapping),
            compaction=isinstance(session.get("compaction"), Mapping),
            forms=isinstance(elicitation.get("form"), Mapping),
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- sessions --------------------------------------------------------------------------------------------------------


class SessionNewParams(AcpParams):
    cwd: AbsolutePath
    mcp_servers: Any = None


class SessionLoadParams(AcpParams):
    session_id: StrictStr
    cwd: AbsolutePath
    mcp_servers: Any = None


SessionResumeParams = SessionLoadParams
SessionForkParams = SessionLoadParams


class SessionIdParams(AcpParams):
    session_id: StrictStr


class SessionListParams(AcpParams):
    cwd: AbsolutePath | None = None
    cursor: StrictStr | None = None


class SessionPromptParams(AcpParams):
    session_id: StrictStr
    prompt: list[dict[str, Any]]
    meta: Any = Field(default=None, alias="_meta")


class SessionSetModeParams(AcpParams):
    session_id: StrictStr
    mode_id: StrictStr


class SessionSetModelParams(AcpParams):
    session_id: StrictStr
    model_id: StrictStr


class SessionSetConfigOptionParams(AcpParams):
    session_id: StrictStr
    config_id: StrictStr
    value: Any


def mcp_servers(raw: object) -> tuple[dict[str, Any], ...]:
    """The MCP servers the client wants for a session, as it wrote them; entries that name nothing are left out."""
    if not isinstance(raw, list):
        return ()
    return tuple(
        dict(server)
        for server in raw
        if isinstance(server, Mapping)
        and isinstance(server.get("name"), str)
        and isinstance(server.get("url" if server.get("type") in ("http", "sse") else "command"), str)
    )


# --- results ---------------------------------------------------------------------------------------------------------


# Every turn ends with one: written as it is sent, because a model costs as much as a line of the turn's log.


class PromptUsage(TypedDict):
    totalTokens: int
    inputTokens: int
    outputTokens: int
    thoughtTokens: NotRequired[int]
    cachedReadTokens: NotRequired[int]
    cachedWriteTokens: NotRequired[int]


class SessionPromptResult(TypedDict):
    stopReason: str
    usage: NotRequired[PromptUsage]
    _meta: NotRequired[dict[str, Any]]


class SessionListEntry(AcpResult):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class SessionListResult(AcpResult):
    sessions: list[SessionListEntry]
    next_cursor: str | None = None


class SessionSetConfigOptionResult(AcpResult):
    config_options: list[dict[str, Any]]
