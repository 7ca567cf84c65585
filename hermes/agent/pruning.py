"""The first step of a compression, which needs no model: old tool results become one line, old images a note.

Only what the model reads changes (``api_content``). The rows stay as they were said: people, searches and a later
summary have them in full, ids and places are the same, and every call keeps a result. Pure: ``plan_pruning`` says what
is to be read of which row; storing it, once, is the caller's work, so the next requests are the same bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hermes.agent.stored_views import TODO_TOOLS
from hermes.agent.tokens import row_tokens
from hermes.messages import Content, ImagePart, Row, TextPart, ToolCall, has_images
from hermes.records import dataclass

ENOUGH_SHARE: Final = 0.75
"""Of the threshold: less room would be used up soon, and the provider's cache be lost again."""
GIST_CHARS: Final = 120
IMAGE_LEFT_OUT: Final = "[an image was left out to save room]"
_STOPPED: Final[Mapping[str, str]] = {"none": "it never started", "unknown": "its outcome is not known"}


@dataclass(frozen=True, slots=True)
class Pruning:
    """What the model is to read of these rows (by id) from now on, and about how many tokens that saves."""

    contents: Mapping[int, Content]
    saved: int

    def is_enough(self, size: int, threshold: int) -> bool:
        """For a request of ``size`` tokens: no summary is needed."""
        return bool(self.contents) and size - self.saved <= min(size, threshold) * ENOUGH_SHARE


def plan_pruning(rows: Sequence[Row], tail: int) -> Pruning:
    """What can be left out of the rows before the place ``tail``. Results that are short anyway stay."""
    contents: dict[int, Content] = {}
    saved = 0
    for row, content in _shorter(rows, tail):
        less = row_tokens(row) - row_tokens(replace(row, api_content=content))
        # A placeholder that is hardly shorter is worth neither the loss nor the change.
        if row.row_id is not None and 2 * less >= row_tokens(row):
            contents[row.row_id] = content
            saved += less
    return Pruning(contents, saved)


def _shorter(rows: Sequence[Row], tail: int) -> Iterator[tuple[Row, Content]]:
    newest_prompt = max((at for at, row in enumerate(rows) if row.is_user_prompt), default=-1)
    newest_todos = max(
        (at for at, row in enumerate(rows) if row.role == "tool" and row.tool_name in TODO_TOOLS), default=-1
    )
    newest_calls = {(call.name, call.arguments): call.id for row in rows for call in row.tool_calls}
    calls: dict[str, ToolCall] = {}
    for at, row in enumerate(rows[:tail]):
        calls |= {call.id: call for call in row.tool_calls}
        if at in (newest_prompt, newest_todos):
            # The task in force and the plan that is being worked off.
            continue
        if row.role == "tool":
            call = calls.get(row.tool_call_id or "")
            again = call is not None and newest_calls[call.name, call.arguments] != call.id
            yield row, placeholder(row, call, again=again)
        elif row.role == "user" and has_images(_read(row)):
            yield row, _without_images(_read(row))


def placeholder(row: Row, call: ToolCall | None, *, again: bool) -> str:
    """One line for a result: tool, gist of the arguments, size, outcome. ``again``: the same call was made later."""
    name = row.tool_name or "a tool"
    gist = "" if call is None else " ".join(call.arguments.split())
    if len(gist) > GIST_CHARS:
        gist = f"{gist[:GIST_CHARS]}…"
    said = [f"{name} {gist}".strip(), f"{len(row.text)} characters", _outcome(row)]
    if again:
        said.append("the same call was made again later")
    return f"[result left out to save room: {'; '.join(said)}]"


def _outcome(row: Row) -> str:
    if row.effect_disposition is not None:
        return _STOPPED[row.effect_disposition]
    code = _exit_code(row.text)
    if code is not None:
        return f"exit code {code}"
    return "it failed" if (row.display_metadata or {}).get("failed") else "it succeeded"


def _exit_code(text: str) -> int | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    code = value.get("exit_code") if isinstance(value, dict) else None
    return code if isinstance(code, int) else None


def _read(row: Row) -> Content:
    """What the model reads of it so far."""
    return row.content if row.api_content is None else row.api_content


def _without_images(content: Content) -> Content:
    if content is None or isinstance(content, str):
        return content
    return tuple(TextPart(IMAGE_LEFT_OUT) if isinstance(part, ImagePart) else part for part in content)
