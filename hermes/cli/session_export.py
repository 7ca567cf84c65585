"""A stored session as a document: JSON with everything, or markdown to read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from hermes.agent.history import is_visible
from hermes.agent.ports import StoredSession
from hermes.cli.tables import when
from hermes.messages import Row

FORMATS: Final = ("markdown", "json")
RESULT_LINES: Final = 40
HEADINGS: Final[Mapping[str, str]] = {"user": "User", "assistant": "Assistant", "system": "System"}


def document(stored: StoredSession, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that is stored, without what is empty."""
    messages = [{name: value for name, value in asdict(row).items() if value not in (None, (), False)} for row in rows]
    return {
        "session_id": stored.key,
        "title": stored.title,
        "source": stored.source,
        "model": stored.model,
        "provider": stored.provider,
        "cwd": stored.cwd,
        "parent_session_id": stored.parent_key,
        "started_at": stored.started_at,
        "last_activity_at": stored.last_activity_at,
        "usage": asdict(stored.usage),
        "messages": messages,
    }


def markdown(stored: StoredSession, rows: Sequence[Row]) -> str:
    """The visible conversation."""
    facts = [stored.key, when(stored.started_at), stored.model or "", stored.cwd or ""]
    parts = [f"# {stored.title or stored.preview or stored.key}", " · ".join(fact for fact in facts if fact)]
    for row in rows:
        if not is_visible(row):
            continue
        if row.role == "tool":
            parts.append(f"### Tool {row.tool_name or ''}\n\n{_fenced(row.text)}")
        elif row.text.strip():
            parts.append(f"## {HEADINGS.get(row.role, row.role)}\n\n{row.text.strip()}")
    return "\n\n".join(parts)


def _fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    lines = text.strip().splitlines()
    if len(lines) > RESULT_LINES:
        lines = [*lines[:RESULT_LINES], f"… {len(lines) - RESULT_LINES} more lines"]
    fence = "```"
    while any(line.startswith(fence) for line in lines):
        fence += "`"
    return "\n".join([fence, *lines, fence])
