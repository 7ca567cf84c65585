"""How tool calls look to a person: labels, kinds, touched places, short readable results. Pure.

Hosts get data, not pictures: the gateway's ``context``, the HTTP ``preview``, the ACP title, kind, locations and
content all come from here, so a resumed session looks as the live one did.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from hermes.agent.redaction import redact
from hermes.messages import FileDiff
from hermes.patterns import lazy_pattern

Kind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "other"]

KINDS: Mapping[str, Kind] = {
    "read_file": "read",
    "skill_view": "read",
    "skills_list": "read",
    "vision_analyze": "read",
    "write_file": "edit",
    "patch": "edit",
    "skill_manage": "edit",
    "search_files": "search",
    "terminal": "execute",
    "process_manage": "execute",
    "execute_code": "execute",
    "delegate_task": "execute",
    "preview_act": "execute",
    "browser_snapshot": "read",
    "browser_screenshot": "read",
    "browser_tabs": "read",
    "browser_vision": "read",
    "browser_get_images": "read",
    "browser_click": "execute",
    "browser_type": "execute",
    "browser_press": "execute",
    "browser_scroll": "execute",
    "browser_back": "execute",
    "browser_evaluate": "execute",
    "browser_cdp": "execute",
    "image_generate": "execute",
    "text_to_speech": "execute",
    "browser_navigate": "fetch",
    "web_search": "fetch",
    "web_extract": "fetch",
}

# The argument that says most about a call.
_MAIN_ARGUMENTS = ("command", "path", "pattern", "query", "name", "goal", "url", "urls", "action", "question", "target")
MAX_PREVIEW = 80
MAX_RESULT = 5000


def tool_kind(name: str) -> Kind:
    return KINDS.get(name, "other")


def is_formatted(name: str) -> bool:
    """Whether the result of this tool is shown as text for a person, and its raw form says nothing more."""
    return name == "todo_list" or (name in KINDS and not name.startswith("browser_"))


def one_line(text: str, limit: int = MAX_PREVIEW) -> str:
    """Newlines folded, cut with an ellipsis."""
    folded = re.sub(r"\s+", " ", text).strip()
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def tool_preview(name: str, arguments: Mapping[str, Any]) -> str:
    """The main argument of a call on one line, redacted."""
    return redact(one_line(_main_argument(name, arguments), 4 * MAX_PREVIEW))[: 2 * MAX_PREVIEW]


def tool_title(name: str, arguments: Mapping[str, Any]) -> str:
    """``name: preview``, as editors show it."""
    preview = one_line(tool_preview(name, arguments))
    return f"{name}: {preview}" if preview else name


def _main_argument(name: str, arguments: Mapping[str, Any]) -> str:
    match name:
        case "process_manage":
            return " ".join(str(arguments[key]) for key in ("action", "session_id") if arguments.get(key))
        case "todo_list":
            todos = arguments.get("todos")
            return f"{len(todos)} items" if isinstance(todos, list) else "read"
        case "clarify":
            questions = arguments.get("questions")
            first = questions[0] if isinstance(questions, list) and questions else arguments
            return str(first.get("question", "")) if isinstance(first, Mapping) else ""
        case "delegate_task":
            goals = delegate_goals(arguments)
            return "; ".join(goals) or str(arguments.get("action", ""))
        case "patch":
            return ", ".join(patch_targets(arguments))
        case "memory":
            return " ".join(str(arguments[key]) for key in ("action", "target") if arguments.get(key))
    for key in _MAIN_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return ", ".join(map(str, value))
    return next((str(value) for value in arguments.values() if isinstance(value, str | int)), "")


def delegate_goals(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    tasks = arguments.get("tasks")
    if isinstance(tasks, list):
        return tuple(str(task.get("goal", "")) for task in tasks if isinstance(task, Mapping))
    return (str(arguments["goal"]),) if arguments.get("goal") else ()


_HUNK = lazy_pattern(r"@@ (-\S+) (\+\S+) @@$")
_COMPARED = 10_000_000
"""Pairs of lines: so many are compared in a few hundredths of a second."""
_PATCH_HEADER = lazy_pattern(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.M)


def patch_targets(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The files a ``patch`` call names."""
    text = arguments.get("patch")
    if isinstance(text, str) and text:
        return tuple((found[1] or found[2]).strip() for found in _PATCH_HEADER.finditer(text))
    path = arguments.get("path")
    return (path,) if isinstance(path, str) and path else ()


def tool_locations(
    name: str, arguments: Mapping[str, Any], diffs: Sequence[FileDiff] = ()
) -> tuple[tuple[str, int | None], ...]:
    """(path, line) of what a call touches; paths as the model wrote them, or as the edit resolved them."""
    if diffs:
        return tuple((diff.path, first_changed_line(diff)) for diff in diffs)
    if name == "patch":
        return tuple((path, None) for path in patch_targets(arguments))
    if name in ("read_file", "write_file", "search_files"):
        path = arguments.get("path")
        offset = arguments.get("offset") if name == "read_file" else None
        return ((path, offset if isinstance(offset, int) else None),) if isinstance(path, str) and path else ()
    return ()


def first_changed_line(diff: FileDiff) -> int | None:
    """1-based line of the new text where the change begins, or None for new and deleted files."""
    if diff.old_text is None or diff.new_text is None:
        return None
    for number, (old, new) in enumerate(zip(diff.old_text.splitlines(), diff.new_text.splitlines(), strict=False), 1):
        if old != new:
            return number
    return min(len(diff.old_text.splitlines()), len(diff.new_text.splitlines())) or 1


def unified_diff(old: str | None, new: str | None, shown: str) -> str:
    """A unified diff with ``a/`` and ``b/`` headers; ``shown`` is a relative path or an absolute one."""
    label = shown.lstrip("/")
    headers = ("/dev/null" if old is None else f"a/{label}", "/dev/null" if new is None else f"b/{label}")
    lines = _compared(_lines(old or ""), _lines(new or ""), headers)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Only a newline ends a line here: a form feed or a line separator is part of one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _compared(before: list[str], after: list[str], headers: tuple[str, str]) -> Iterator[str]:
    """The lines of a diff. Where too many lines differ to be compared, all of them are shown as replaced."""
    shorter = min(len(before), len(after))
    first = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    behind = next((at for at in range(shorter - first) if before[-1 - at] != after[-1 - at]), shorter - first)
    if (len(before) - first - behind) * (len(after) - first - behind) > _COMPARED:
        yield from (f"--- {headers[0]}\n", f"+++ {headers[1]}\n")
        begin, end = max(first - 3, 0), max(behind - 3, 0)
        changed = before[begin : len(before) - end], after[begin : len(after) - end]
        yield f"@@ -{begin + 1},{len(changed[0])} +{begin + 1},{len(changed[1])} @@\n"
        yield from (f" {line}" for line in before[begin:first])
        yield from (f"-{line}" for line in before[first : len(before) - behind])
        yield from (f"+{line}" for line in after[first : len(after) - behind])
        yield from (f" {line}" for line in before[len(before) - behind : len(before) - end])
        return
    # Without the equal lines round the change, of which the diff shows three.
    skipped, left = max(first - 3, 0), max(behind - 3, 0)
    parts = before[skipped : len(before) - left], after[skipped : len(after) - left]
    for line in difflib.unified_diff(*parts, *headers):
        found = _HUNK.match(line)
        yield line if found is None else f"@@ {_moved(found[1], skipped)} {_moved(found[2], skipped)} @@\n"


def _moved(span: str, by: int) -> str:
    """``-3,4`` begins so many lines further down."""
    start, comma, length = span[1:].partition(",")
    return f"{span[0]}{int(start) + by}{comma}{length}"


def inline_diff(diffs: Sequence[FileDiff], *, max_files: int = 6, max_lines: int = 80) -> str:
    """A bounded unified diff of several files, for a terminal."""
    parts: list[str] = []
    for diff in diffs[:max_files]:
        lines = unified_diff(diff.old_text, diff.new_text, diff.name or diff.path).removesuffix("\n").split("\n")
        if len(lines) > max_lines:
            lines = [*lines[:max_lines], f"… {len(lines) - max_lines} more lines"]
        parts.append("\n".join(lines))
    if len(diffs) > max_files:
        parts.append(f"… {len(diffs) - max_files} more files")
    return "\n".join(parts)


def bounded_diffs(diffs: Sequence[FileDiff], *, limit: int = 60_000) -> list[dict[str, Any]]:
    """Diffs as JSON for a stored row; texts beyond the limit are left out and marked."""
    stored: list[dict[str, Any]] = []
    left = limit
    for diff in diffs:
        size = len(diff.old_text or "") + len(diff.new_text or "")
        if size <= left:
            stored.append({"path": diff.path, "old_text": diff.old_text, "new_text": diff.new_text})
            left -= size
        else:
            stored.append({"path": diff.path, "omitted": True})
    return stored


def start_text(name: str, arguments: Mapping[str, Any]) -> str | None:
    """What an editor shows when a call begins, or None where title and location say enough."""
    match name:
        case "terminal":
            return redact(f"$ {arguments.get('command', '')}")
        case "execute_code":
            return f"```python\n{str(arguments.get('code', ''))[:1200]}\n```"
        case "read_file" | "web_extract":
            return None
        case "search_files" | "web_search":
            return f"Looking for {tool_preview(name, arguments)}"
        case "write_file" | "patch":
            return "The approval shows the change."
        case "delegate_task":
            return "\n".join(f"- {goal}" for goal in delegate_goals(arguments)) or None
    return redact(json.dumps(dict(arguments), ensure_ascii=False, indent=2, default=str))[:MAX_RESULT]


def result_text(name: str, arguments: Mapping[str, Any], content: str) -> str:
    """A result for a person: readable text for known tools, the content itself otherwise; bounded."""
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    shown = _readable(name, arguments, value) if isinstance(value, Mapping) else None
    shown = content if shown is None else shown
    if len(shown) > MAX_RESULT:
        shown = f"{shown[:MAX_RESULT]}\n… {len(shown) - MAX_RESULT} more characters"
    return shown


def _readable(name: str, arguments: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    if value.get("error") and name != "terminal":
        return str(value["error"])
    match name:
        case "terminal":
            output = str(value.get("output") or "").rstrip()
            error = f"\n{value['error']}" if value.get("error") else ""
            return f"{output}{error}\nexit code {value.get('exit_code')}".strip()
        case "read_file":
            content = str(value.get("content", ""))
            first = int(arguments.get("offset") or 1)
            last = first + max(content.count("\n"), 0)
            return f"lines {first}-{last} of {value.get('total_lines')}\n```\n{content}\n```"
        case "search_files":
            return _search_text(value)
        case "write_file":
            return f"Wrote {value.get('resolved_path') or arguments.get('path')} ({value.get('bytes_written')} bytes)"
        case "patch":
            files = [*value.get("files_modified", ()), *value.get("files_created", ()), *value.get("files_deleted", ())]
            times = f", {value['replacements']} replacements" if value.get("replacements") else ""
            return f"Changed {', '.join(map(str, files)) or 'nothing'}{times}"
        case "todo_list":
            marks = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}
            items = value.get("todos", ())
            return (
                "\n".join(f"{marks.get(item.get('status'), '[ ]')} {item.get('content')}" for item in items)
                or "No items"
            )
        case "skill_view":
            return f"Skill {value.get('name')}: {value.get('description', '')}"
        case "skills_list":
            return f"{len(value.get('skills', ()))} skills"
    return None


def _search_text(value: Mapping[str, Any]) -> str:
    total = value.get("total_count", 0)
    if "files" in value:
        files = list(map(str, value["files"]))
        more = f"\n… {len(files) - 20} more" if len(files) > 20 else ""
        return f"{total} files\n" + "\n".join(files[:20]) + more
    if "counts" in value:
        return f"{total} matches\n" + "\n".join(f"{path}: {count}" for path, count in value["counts"].items())
    matches = value.get("matches", ())
    lines = [f"{m.get('path')}:{m.get('line')}: {m.get('content')}" for m in matches[:12] if isinstance(m, Mapping)]
    if isinstance(value.get("text"), str):
        lines = value["text"].splitlines()[:24]
    return f"{total} matches\n" + "\n".join(lines)
