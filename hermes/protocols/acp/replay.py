"""A stored conversation as the updates that would have told it live. Pure.

Hidden rows are left out, a damaged entry is skipped, a call without a result is closed as failed, and what a
compression has put in place of messages is marked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes.messages import PROMPT_KINDS, ImagePart, Row, ToolCall, ToolResult
from hermes.protocols.acp import tool_calls
from hermes.protocols.acp.content import content_blocks, text_block
from hermes.protocols.acp.updates import MESSAGE, THOUGHT, USER, message_id, update_frame

logger = logging.getLogger(__name__)


def replay_frames(
    session_id: str, rows: Sequence[Row], todos: Sequence[Mapping[str, Any]], *, cwd: str, running: bool
) -> Iterator[bytes]:
    """``running``: the last calls without a result may still get one, from the live stream."""
    replay = _Replay(session_id, cwd)
    for row in rows:
        try:
            updates = list(replay.updates(row))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("session %s: row %s cannot be shown: %s", session_id, row.row_id, error)
            continue
        for update in updates:
            yield update_frame(session_id, update)
    if not running:
        for call_id in replay.open_calls:
            yield update_frame(session_id, tool_calls.status_change(call_id, "failed"))
    if todos:
        yield update_frame(session_id, tool_calls.plan(todos))


class _Replay:
    def __init__(self, session_id: str, cwd: str) -> None:
        self._session_id = session_id
        self._cwd = cwd
        self.open_calls: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def updates(self, row: Row) -> Iterator[dict[str, Any]]:
        match row.role:
            case "user":
                yield from self._user(row)
            case "assistant":
                yield from self._assistant(row)
            case "tool":
                yield from self._result(row)
            case "system":
                return

    def _user(self, row: Row) -> Iterator[dict[str, Any]]:
        metadata = row.display_metadata or {}
        if row.compacted_summary:
            mark = "containsCompactionSummary" if metadata.get("holds_prompt") else "compactionSummary"
            yield from self._chunks(USER, row, {mark: True})
        elif "display_text" in metadata:
            yield self._chunk(USER, row, text_block(str(metadata["display_text"])), None)
        elif row.display_kind in PROMPT_KINDS or row.display_kind == "steer":
            yield from self._chunks(USER, row, None)

    def _assistant(self, row: Row) -> Iterator[dict[str, Any]]:
        if row.compacted_summary:
            yield from self._chunks(MESSAGE, row, {"compactionSummary": True})
            return
        if row.display_kind in ("hidden", "internal_notification", "failed_turn"):
            return
        reasoning = row.reasoning or row.reasoning_content
        if reasoning:
            yield self._chunk(THOUGHT, row, text_block(reasoning), None)
        yield from self._chunks(MESSAGE, row, None)
        for call in row.tool_calls:
            yield self._call(call)

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments = read_arguments(call.arguments)
        self.open_calls[call.id] = (call.name, arguments)
        return tool_calls.started_call(call.id, call.name, arguments, self._cwd, shows_edit=False)

    def _result(self, row: Row) -> Iterator[dict[str, Any]]:
        call_id = row.tool_call_id or ""
        known = self.open_calls.pop(call_id, None)
        if known is None:
            return
        name, arguments = known
        metadata, parts = row.display_metadata or {}, row.content if isinstance(row.content, tuple) else ()
        result = ToolResult(
            call_id,
            name,
            row.text,
            is_error=metadata.get("failed") is True,
            disposition=row.effect_disposition,
            diffs=tool_calls.stored_diffs(metadata),
            images=tuple(part for part in parts if isinstance(part, ImagePart)),
        )
        yield tool_calls.ended_call(call_id, name, arguments, result, self._cwd)

    def _chunks(self, kind: str, row: Row, marks: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
        for block in content_blocks(row.content):
            yield self._chunk(kind, row, block, marks)

    def _chunk(self, kind: str, row: Row, block: Mapping[str, Any], marks: Mapping[str, Any] | None) -> dict[str, Any]:
        update: dict[str, Any] = {
            "sessionUpdate": kind,
            "messageId": message_id(self._session_id, "row", row.row_id, kind),
            "content": block,
        }
        if marks:
            update["_meta"] = {"hermes": dict(marks)}
        return update


def read_arguments(text: str) -> Mapping[str, Any]:
    """The arguments of a stored call; what is no JSON object is shown as it is."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError:
        value = text
    return value if isinstance(value, Mapping) else {"arguments": value}
