"""What is said: transcript rows, content parts, tool calls and results, prompts, and questions to a human.

All data here is frozen. A row's ``row_id`` is None until the store has numbered it. Rows are never edited afterwards;
only what the model reads of one (``api_content``) may be shortened by a compression.
The grammar of a stored history is agent-core §1.3 (TL-5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from hermes.records import dataclass

Role = Literal["user", "assistant", "tool", "system"]
Disposition = Literal["none", "unknown"]

# display_kind values of rows that are real user prompts for rewind ordinals, undo and retry (gateway §5.4). A steer
# row counts for undo only.
PROMPT_KINDS: frozenset[str | None] = frozenset({None, "skill_invocation"})


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, either inline (base64 ``data`` with ``mime_type``) or by ``url``."""

    mime_type: str
    data: str | None = None
    url: str | None = None


ContentPart = TextPart | ImagePart
Content = str | tuple[ContentPart, ...] | None


def content_text(content: Content) -> str:
    """The text of a content, images left out."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def has_images(content: Content) -> bool:
    return isinstance(content, tuple) and any(isinstance(part, ImagePart) for part in content)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asked for. ``arguments`` is a JSON text, exactly as it is stored and replayed."""

    id: str
    name: str
    arguments: str
    call_id: str | None = None
    response_item_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileDiff:
    """An edit for hosts to render. ``old_text`` is None for a new file, ``new_text`` None for a deleted one; ``name``
    is the path as it is shown to people."""

    path: str
    old_text: str | None
    new_text: str | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one tool call gave back: always exactly one per call, also when it was cancelled or skipped.

    ``content`` is what the model reads (usually JSON text). ``disposition`` is None for a normal result, ``none`` if
    the call never started, ``unknown`` if it started and its effect is not known. ``status`` says how it ended.
    """

    call_id: str
    name: str
    content: str
    is_error: bool = False
    disposition: Disposition | None = None
    status: Literal["ok", "error", "cancelled", "skipped", "blocked"] = "ok"
    summary: str | None = None
    diffs: tuple[FileDiff, ...] = ()
    images: tuple[ImagePart, ...] = ()
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a transcript (agent-core §1.3)."""

    role: Role
    content: Content
    timestamp: float = 0.0
    row_id: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    effect_disposition: Disposition | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: Sequence[Any] | None = None
    replay_items: Sequence[Any] | None = None
    finish_reason: str | None = None
    api_content: Content = None
    display_kind: str | None = None
    display_metadata: Mapping[str, Any] | None = None
    token_count: int | None = None
    platform_message_id: str | None = None
    compacted_summary: bool = False
    compacted: bool = False
    """A summary stands for it in the context: it is shown and searched, and no rewind can name it."""

    @property
    def text(self) -> str:
        return content_text(self.content)

    @property
    def is_user_prompt(self) -> bool:
        """Counted by rewind ordinals (gateway §5.4)."""
        return self.role == "user" and self.display_kind in PROMPT_KINDS

    def with_id(self, row_id: int) -> Row:
        return replace(self, row_id=row_id)


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits the caller set on the request; None means none of the caller's."""

    deadline_s: float | None = None
    max_iterations: int | None = None
    max_tokens_total: int | None = None
    max_cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user submission, or one turn that the server starts by itself.

    ``content`` is shown and stored; ``api_content`` is what the model reads when that differs. ``unattended`` turns
    never wait for a human: approvals follow ``approvals.unattended_mode``, clarify is not offered. ``system_extra`` is
    added at request time only and never stored. ``model`` / ``provider`` override the session's for this turn only.
    ``history`` replaces the stored transcript as context for this turn only (HTTP ``conversation_history``).
    ``owns_processes``: a stop of this turn also ends the background processes that it started (run stop, client gone).
    """

    content: Content
    source: str = "api"
    api_content: Content = None
    display_kind: str | None = None
    display_metadata: Mapping[str, Any] | None = None
    client_message_id: str | None = None
    title_text: str | None = None
    unattended: bool = False
    allow_clarify: bool = True
    system_extra: str | None = None
    model: str | None = None
    provider: str | None = None
    model_options: Mapping[str, Any] | None = None
    history: tuple[Row, ...] | None = None
    limits: TurnLimits = TurnLimits()
    owns_processes: bool = False
    exact_model: bool = False
    """This turn runs with its model or fails: no fallback takes its place."""
    load_api_content: Callable[[], Awaitable[Content]] | None = None
    """Reads ``api_content`` when the turn begins (files the prompt names): so no surface and no cancel waits."""
    asks_here: bool = False
    """This submitter itself can answer questions through its own channel (an HTTP run); others rely on attachments."""
    guest_tools: Callable[[], Sequence[Any]] | None = None
    """Tools of whoever submitted it, asked when the turn begins: the browser that is attached to this conversation."""

    @property
    def text(self) -> str:
        return content_text(self.content)


@dataclass(frozen=True, slots=True)
class RewindIntent:
    """A confirmed wish to cut the history before a user row. Shapes are already checked, targets are not."""

    row_id: int | None = None
    ordinal: int | None = None
    message_id: str | None = None
    confirm_empty: bool = False


# --- questions to a human (gateway §7.2) -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a human. ``method`` is its name on the gateway, ``params`` its redacted payload without session id.

    ``choices`` are the answers that may be given to an approval; ``timeout`` seconds or None for no limit.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    timeout: float | None = None
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """``value`` is the result object: ``{"choice"}``, ``{"answers"}``, ``{"value"}`` …; ``by`` names the surface."""

    value: Mapping[str, Any]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Declined:
    """Every client that could show it said that it does not show this conversation (gateway 4404)."""

    message: str = "no window shows this conversation"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The client answered with an error: it cannot show such a question."""


@dataclass(frozen=True, slots=True)
class NoClient:
    """Clients are attached and none of them answers questions: nobody was asked."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """``partial`` holds answers that were locked before the time was over."""

    partial: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """``reason``: ``interrupted``, ``session_closed``, ``shutdown``, ``resolved`` (the words of ``request.cancel``)."""

    reason: str
    partial: Mapping[str, Any] | None = None


ClientAnswer = Answered | Declined | Unsupported | NoClient | TimedOut | Withdrawn
