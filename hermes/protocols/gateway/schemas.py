"""Parameters of the session, live, prompt and control methods, named after the methods (gateway §3 to §7).

Undeclared parameters are refused (§1.6 row 8). Values whose meaning a handler has to judge (truncation targets,
content) are ``Any`` here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, Strict

from hermes.outcomes import CancelReason, Cause
from hermes.protocols.rpc.method_table import StrictParams

Json = Any

# A word or a number that could be read as yes is no consent.
Flag = Annotated[bool, Strict()]


def _known_profile(name: str | None) -> str | None:
    if name not in (None, "", "default"):
        raise ValueError("unknown profile")
    return name


Key = Annotated[str | None, Field(min_length=1, max_length=200)]


class GatewayParams(StrictParams):
    """What every method tolerates."""

    profile: Annotated[str | None, AfterValidator(_known_profile)] = None


class KeyedParams(GatewayParams):
    """Of methods that change something: a repeat under the same key gets the first answer (``keyed.py``)."""

    request_key: Key = None
    idempotency_key: Key = None


class EmptyParams(GatewayParams):
    pass


class EmptyKeyedParams(KeyedParams):
    pass


class SessionParams(GatewayParams):
    session_id: str


class KeyedSessionParams(KeyedParams):
    session_id: str


class OptionalSessionParams(GatewayParams):
    session_id: str | None = None


Words = Annotated[str, Field(max_length=200)]
Reason = Words | None


class StopReason(StrictParams):
    """Who stopped it, and why: a person, or the host on its own account."""

    source: Literal["user", "host"] = "user"
    text: Reason = None


AnyReason = StopReason | Words | None


def cancel_reason(reason: AnyReason) -> CancelReason:
    """Without a word of the source it is a person's; a stop of the host's own is not told as the user's wish."""
    if not isinstance(reason, StopReason):
        return CancelReason(Cause.USER_INTERRUPT, reason)
    return CancelReason(Cause.RUN_STOP if reason.source == "host" else Cause.USER_INTERRUPT, reason.text)


# --- live (methods_live.py) ------------------------------------------------------------------------------------------


class ClientCapabilitiesParams(GatewayParams):
    server_requests: Flag | None = None
    legacy_requests: Flag | None = None
    tool_progress: Flag | None = None
    steers: Flag | None = None
    turn_ids: Flag | None = None


class SessionActivateParams(SessionParams):
    cols: int | None = None
    omit_messages: Flag = False


class SessionActiveListParams(GatewayParams):
    current_session_id: str | None = None


class SessionCloseParams(KeyedSessionParams):
    reason: Reason = None


class SessionEventsSinceParams(SessionParams):
    last_seen: Annotated[int, Field(strict=True)] = 0


class TerminalResizeParams(SessionParams):
    cols: Annotated[int | None, Field(ge=1, le=10_000)] = None
    rows: Annotated[int | None, Field(ge=1, le=10_000)] = None


# --- sessions (methods_session.py) -----------------------------------------------------------------------------------


class SeedMessage(GatewayParams):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant", "system"]
    content: str | None = None
    text: str | None = None
    display_kind: str | None = None


class SessionCreateParams(KeyedParams):
    cols: int | None = None
    source: str = "tui"
    cwd: str | None = None
    cwd_explicit: Flag = False
    messages: list[SeedMessage] | None = None
    parent_session_id: str | None = None
    title: str | None = None
    model: str | None = None
    provider: str | None = None
    reasoning_effort: str | None = None
    fast: Flag | None = None
    service_tier: str | None = None
    close_on_disconnect: Flag = False
    hidden: Flag = False
    follow_profile_config: Flag = False
    room_plumbing: Flag | None = None


class SessionListParams(GatewayParams):
    title: str | None = None
    limit: int = Field(200, ge=1, le=10_000)
    include_hidden: Flag = False


class SessionResumeParams(GatewayParams):
    session_id: str
    cols: int | None = None
    source: str | None = None
    lazy: Flag = False
    defer_history: Flag = False
    omit_messages: Flag = False
    eager_build: Flag = False
    close_on_disconnect: Flag = False
    inline_images: Flag = True


class SessionTitleParams(KeyedSessionParams):
    title: str | None = None


# --- prompts (methods_prompt.py) -------------------------------------------------------------------------------------


class PromptSubmitParams(KeyedSessionParams):
    text: Json = None
    display_kind: str | None = None
    interrupted: Flag | None = None
    queued: Flag = False
    surface: str | None = None
    voice_context: Annotated[str | None, Field(max_length=6000)] = None
    voice_turn: Flag | None = None
    title_preview: Annotated[str | None, Field(max_length=1000)] = None
    client_message_id: Annotated[str | None, Field(max_length=200)] = None
    truncate_before_user_ordinal: Json = None
    truncate_before_row_id: Json = None
    truncate_before_message_id: Json = None
    confirm_truncate: Json = None
    confirm_empty_truncate: Json = None
    confirm_deep_truncate: Json = None
    rebind_survivor_row_ids: list[int] | None = None
    deadline_s: Annotated[float | None, Field(gt=0)] = None
    max_iterations: Annotated[int | None, Field(gt=0)] = None
    max_tokens_total: Annotated[int | None, Field(gt=0)] = None
    max_cost_usd: Annotated[float | None, Field(gt=0)] = None


# --- control (methods_control.py) ------------------------------------------------------------------------------------


class SessionInterruptParams(KeyedSessionParams):
    expected_hosted_task_id: str | None = None
    reason: AnyReason = None
    clear_queue: Flag = True


class SessionTextParams(KeyedParams):
    """``text`` is judged before the session (§4.5)."""

    text: str
    session_id: str


class ApprovalRespondParams(KeyedParams):
    session_id: str | None = None
    choice: Json = "deny"
    all: Flag = False
    request_id: str | None = None


class ApprovalReceivedParams(SessionParams):
    request_id: str


class ClarifyLockParams(KeyedParams):
    request_id: str
    question_id: str
    answer: Json = None


class RequestAnswerParams(KeyedParams):
    id: str
    result: dict[str, Json]


class ClarifyRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    answer: str = ""


class SudoRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    password: str = ""


class SecretRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    value: str = ""


class TerminalReadRespondParams(KeyedParams):
    session_id: str | None = None
    request_id: str
    text: str = ""


class ScopeCancelParams(KeyedParams):
    node_id: str
    reason: Reason = None


class TreeGetParams(GatewayParams):
    node_id: str | None = None


class TreeSubscribeParams(GatewayParams):
    subscribed: Flag = True
