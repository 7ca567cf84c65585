"""What can be read out of stored rows: a title, the to-do list, and a turn that its process did not finish. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.messages import Row

TITLE_CHARS = 48
MAX_TITLE_CHARS = 100
TITLE_LOOK = 4000
"""Characters that are looked at for a title: a prompt may have millions, and everybody would wait for each of them."""
TODO_TOOLS = ("todo_list", "todo")
LOST_TURN = "the server stopped before this turn ended"


def clean_title(title: str) -> str:
    """A title as it is stored: control and direction characters out, white space folded, at most 100 characters."""
    begin = title.lstrip()[:TITLE_LOOK]
    kept = "".join(" " if char.isspace() else char for char in begin if char.isspace() or _printable(char))
    return " ".join(kept.split())[:MAX_TITLE_CHARS].strip()


def derive_title(text: str) -> str:
    """The instant title: the first line of the prompt, at most 48 characters (agent-core §5.7)."""
    begin = text.lstrip()[:TITLE_LOOK]
    line = next((line for line in begin.splitlines() if line.strip()), "")
    title = clean_title(line)
    return title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1].rstrip() + "…"


def latest_todos(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The to-do list as the rows leave it; empty if they say nothing of one."""
    return stored_todos(rows) or []


def stored_todos(rows: Sequence[Row]) -> list[dict[str, Any]] | None:
    """The list in the newest result of the tool, or in a summary that stands for that; None if there is neither."""
    for row in reversed(rows):
        if row.compacted_summary or (row.role == "tool" and row.tool_name in TODO_TOOLS):
            todos = (row.display_metadata or {}).get("todos")
            if todos is None and row.role == "tool":
                todos = _todos_in(row.text)
            if isinstance(todos, (list, tuple)):
                return [dict(item) for item in todos if isinstance(item, Mapping)]
    return None


def _todos_in(text: str) -> Any:
    """Results of old are stored without the list beside them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value.get("todos") if isinstance(value, Mapping) else None


def unfinished_turn(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The last turn as ``inflight`` shows it if it failed or was left open by a crash, else None (gateway §4.9)."""
    if not rows:
        return None
    last = rows[-1]
    if last.role == "assistant" and not last.tool_calls:
        if last.display_kind != "failed_turn":
            return None
        metadata = dict(last.display_metadata or {})
        if metadata.get("cause") is not None:
            return None
        error, surface = str(metadata.get("error", last.text)), metadata.get("error_surface")
    else:
        error, surface = LOST_TURN, {"layer": "server", "code": "server_restart", "retryable": True}
    prompt = next((row for row in reversed(rows) if row.role == "user" and row.display_kind != "steer"), None)
    said = []
    for row in reversed(rows):
        if row is prompt:
            break
        if row.role == "assistant" and row.display_kind is None and row.text:
            said.append(row.text)
    return {
        "user": prompt.text if prompt is not None else "",
        "assistant": "\n\n".join(reversed(said)),
        "streaming": False,
        "corrections": [],
        "correction_offsets": [],
        "error": error,
        "status": "error",
        "recoverable": bool((surface or {}).get("retryable", True)),
        "error_surface": surface,
    }


def lost_delegations(rows: Sequence[Row]) -> list[str]:
    """Delegations that were dispatched in the background and of whose end nothing is stored (DG-1): with no process
    that works on them they are lost."""
    dispatched: dict[str, None] = {}
    for row in rows:
        told = (row.display_metadata or {}).get("delegation_id")
        if row.role == "user" and isinstance(told, str):
            dispatched.pop(told, None)
        elif row.role == "tool" and '"delegation_id"' in row.text:
            delegation_id = _dispatched_in(row.text)
            if delegation_id is not None:
                dispatched[delegation_id] = None
    return list(dispatched)


def _dispatched_in(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("status") != "dispatched":
        return None
    delegation_id = value.get("delegation_id")
    return delegation_id if isinstance(delegation_id, str) else None


def _printable(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
