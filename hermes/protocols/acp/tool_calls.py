"""Tool calls as editors render them: title, kind, places, readable content, diffs; the plan out of a to-do list. Pure.

One set of functions for the live call, the permission request and the replay, so that all three look the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hermes.agent.tool_display import is_formatted, result_text, start_text, tool_kind, tool_locations, tool_title
from hermes.messages import FileDiff, ToolResult
from hermes.protocols.acp.content import image_block, text_block

EDIT_TOOLS: Final = frozenset({"write_file", "patch"})
MAX_RAW_TEXT: Final = 20_000


def started_call(
    call_id: str, name: str, arguments: Mapping[str, Any], cwd: str, *, shows_edit: bool, status: str = "pending"
) -> dict[str, Any]:
    """The ``tool_call`` update. ``shows_edit``: an edit will be shown by the question whether to make it."""
    call: dict[str, Any] = {
        "sessionUpdate": "tool_call",
        "toolCallId": call_id,
        "title": tool_title(name, arguments),
        "name": name,
        "kind": tool_kind(name),
        "status": status,
        "rawInput": dict(arguments),
    }
    content = start_content(name, arguments, shows_edit=shows_edit)
    if content:
        call["content"] = content
    places = locations(tool_locations(name, arguments), cwd)
    if places:
        call["locations"] = places
    return call


def start_content(name: str, arguments: Mapping[str, Any], *, shows_edit: bool) -> list[dict[str, Any]]:
    if name in EDIT_TOOLS and not shows_edit:
        return []
    text = start_text(name, arguments)
    return [as_content(text)] if text else []


def in_terminal(call_id: str, terminal: str) -> dict[str, Any]:
    """The call runs in a terminal of the client, which shows it."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": [terminal_content(terminal)]}


def terminal_content(terminal: str) -> dict[str, Any]:
    return {"type": "terminal", "terminalId": terminal}


def progress(call_id: str, name: str, arguments: Mapping[str, Any], preview: str) -> dict[str, Any]:
    """Output of a running call, below what was shown at its start."""
    content = start_content(name, arguments, shows_edit=False)
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "content": [*content, as_content(preview)],
    }


def status_change(call_id: str, status: str) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}


def ended_call(call_id: str, name: str, arguments: Mapping[str, Any], result: ToolResult, cwd: str) -> dict[str, Any]:
    """The last ``tool_call_update`` of a call: final status and content."""
    update = status_change(call_id, "failed" if has_failed(result) else "completed")
    content: list[dict[str, Any]] = [diff_content(diff, cwd) for diff in result.diffs]
    shown = result_text(name, arguments, result.content)
    if shown and not (result.diffs and update["status"] == "completed"):
        content.append(as_content(shown))
    content += [{"type": "content", "content": image_block(image)} for image in result.images]
    update["content"] = content
    if result.diffs:
        update["locations"] = locations(tool_locations(name, arguments, result.diffs), cwd)
    if not is_formatted(name):
        update["rawOutput"] = _raw(result.content)
    return update


def has_failed(result: ToolResult) -> bool:
    """The executor says so, or its content does: an exit code, ``success: false``, an error and nothing else."""
    if result.is_error or result.status != "ok" or result.disposition is not None:
        return True
    value = _json_object(result.content)
    if value is None:
        return False
    code = value.get("exit_code")
    if isinstance(code, int) and code != 0:
        return True
    if value.get("success") is False or value.get("ok") is False:
        return True
    return bool(value.get("error")) and not any(value.get(key) for key in ("content", "output", "result"))


def _json_object(text: str) -> Mapping[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return value if isinstance(value, Mapping) else None


def _raw(text: str) -> Any:
    if len(text) > MAX_RAW_TEXT:
        return text[:MAX_RAW_TEXT]
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": text_block(text)}


def diff_content(diff: FileDiff, cwd: str) -> dict[str, Any]:
    """A deleted file is a diff to the empty text: the protocol has no other form for it."""
    content: dict[str, Any] = {"type": "diff", "path": absolute(diff.path, cwd), "newText": diff.new_text or ""}
    if diff.old_text is not None:
        content["oldText"] = diff.old_text
    return content


def stored_diffs(metadata: Mapping[str, Any] | None) -> tuple[FileDiff, ...]:
    """The diffs a row or a question carries as JSON; those whose texts were left out are not among them."""
    found = (metadata or {}).get("diffs")
    if not isinstance(found, list | tuple):
        return ()
    return tuple(
        FileDiff(str(diff["path"]), diff.get("old_text"), diff.get("new_text"))
        for diff in found
        if isinstance(diff, Mapping) and "path" in diff and not diff.get("omitted")
    )


def absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def locations(places: Iterable[tuple[str, int | None]], cwd: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path, line in places:
        place: dict[str, Any] = {"path": absolute(path, cwd)}
        if line is not None and line > 0:
            place["line"] = line
        found.append(place)
    return found


def plan(todos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole list; the protocol knows no cancelled entry, so those are done and say so."""
    return {"sessionUpdate": "plan", "entries": [_entry(item) for item in todos]}


def _entry(item: Mapping[str, Any]) -> dict[str, Any]:
    text, status = str(item.get("content", "")), str(item.get("status", "pending"))
    if status == "cancelled":
        text, status = f"[cancelled] {text}", "completed"
    if status not in ("pending", "in_progress", "completed"):
        status = "pending"
    return {"content": text, "priority": "medium", "status": status}
