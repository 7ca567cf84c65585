"""Parameters of history changes, side work, subagents, archives, attachments (gateway §3, §4.7, §9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from hermes.protocols.gateway.schemas import (
    AnyReason,
    Flag,
    GatewayParams,
    KeyedParams,
    KeyedSessionParams,
    SessionParams,
)

Json = Any

# --- history (methods_history.py) ------------------------------------------------------------------------------------


class SessionBranchParams(KeyedSessionParams):
    name: str | None = None
    count: int | None = None


class SessionBranchWholeParams(KeyedSessionParams):
    name: str | None = None


class SessionBranchStoredParams(KeyedParams):
    parent_session_id: str
    cols: int | None = None
    source: str | None = None
    cwd: str | None = None


class SessionUndoParams(KeyedSessionParams):
    intent: Literal["retry", "undo"] | None = None
    count: Annotated[int, Field(ge=1, le=1000)] = 1


class SessionCompressParams(KeyedSessionParams):
    focus_topic: str | None = None


class SessionArchiveParams(KeyedParams):
    session_id: str | None = None
    session_key: str | None = None
    archived: Flag = True


class SessionSetHiddenParams(KeyedSessionParams):
    hidden: Flag


class SessionCwdSetParams(KeyedSessionParams):
    cwd: str


# --- side agents, processes (methods_work.py) ------------------------------------------------------------------------


class PromptBackgroundParams(KeyedSessionParams):
    text: str


class ProcessStopParams(KeyedParams):
    session_id: str | None = None


class ProcessKillParams(KeyedSessionParams):
    process_id: str


class DelegationPauseParams(KeyedParams):
    paused: Flag = True


class SubagentInterruptParams(KeyedParams):
    subagent_id: str
    session_id: str | None = None
    reason: AnyReason = None


class SubagentSteerParams(KeyedParams):
    text: str
    session_id: str
    subagent_id: str


class SubagentTailParams(SessionParams):
    subagent_id: str


Moment = Annotated[float | None, Field(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the last that has a year of four digits."""


class SpawnTreeSaveParams(KeyedParams):
    subagents: list[dict[str, Json]]
    session_id: str | None = None
    started_at: Moment = None
    finished_at: Moment = None
    label: str | None = None


class SpawnTreeListParams(GatewayParams):
    session_id: str | None = None
    cross_session: Flag = False
    limit: int = Field(50, ge=1, le=1000)


class SpawnTreeLoadParams(GatewayParams):
    path: str


# --- attachments (methods_attach.py) ---------------------------------------------------------------------------------


class PathParams(KeyedSessionParams):
    path: str


class ImageAttachBytesParams(KeyedSessionParams):
    content_base64: str | None = None
    data: str | None = None
    filename: str | None = None
    ext: str | None = None


class FileAttachParams(KeyedSessionParams):
    path: str | None = None
    data_url: str | None = None
    name: str | None = None


class InputDetectDropParams(KeyedSessionParams):
    text: str = ""


class PasteCollapseParams(KeyedParams):
    text: str
