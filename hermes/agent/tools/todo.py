"""todo_list: the session's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.agent.ports import SessionMemory, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.tools.base import BuiltinTool, choice, failure, flag, parameters, result, text
from hermes.events import TodoUpdated

STATUSES = ("pending", "in_progress", "completed", "cancelled")
_MAX_ITEMS = 200


class TodoList(BuiltinTool):
    spec = ToolSpec(
        "todo_list",
        "Keep a list of the steps of a task. Order is priority; at most one item is in_progress. Without todos it is "
        "read. merge: true updates items by id, false replaces the list.",
        parameters(
            {
                "todos": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": text("A short stable id."),
                            "content": text("What is to be done."),
                            "status": choice("State.", *STATUSES),
                            "parent": text("Id of the item this one belongs to."),
                        },
                        "required": ["id", "content", "status"],
                    },
                },
                "merge": flag("Update by id instead of replacing."),
            }
        ),
    )
    flags = ToolFlags(toolset="planning")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        items = arguments.get("todos")
        if items is None:
            return _listing(ctx.memory, None)
        new = [_item(item) for item in items]
        merged = _merge(ctx.memory.todos, new) if arguments.get("merge") else _unique(new)
        if len(merged) > _MAX_ITEMS:
            raise failure(f"at most {_MAX_ITEMS} items")
        note = _one_in_progress(merged)
        ctx.memory.todos = merged
        ctx.memory.todo_revision += 1
        ctx.emit(TodoUpdated(ctx.turn_id, tuple(dict(item) for item in merged), ctx.memory.todo_revision))
        return _listing(ctx.memory, note)


def _item(item: Any) -> dict[str, Any]:
    if not isinstance(item, Mapping) or not str(item.get("id") or "").strip():
        raise failure("every item needs id, content and status")
    status = str(item.get("status") or "pending").replace("-", "_").replace(" ", "_")
    status = {"done": "completed", "complete": "completed", "canceled": "cancelled"}.get(status, status)
    if status not in STATUSES:
        raise failure(f"status {status!r} is not one of {', '.join(STATUSES)}")
    made = {
        "id": str(item["id"]),
        "content": str(item.get("content") or "").strip() or "(no description)",
        "status": status,
    }
    if item.get("parent"):
        made["parent"] = str(item["parent"])
    return made


def _unique(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({item["id"]: item for item in items}.values())


def _merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    merged = {item["id"]: dict(item) for item in old}
    for item in new:
        known = merged.get(item["id"], {})
        content = known["content"] if known and item["content"] == "(no description)" else item["content"]
        merged[item["id"]] = {**known, **item, "content": content}
    return list(merged.values())


def _one_in_progress(items: list[dict[str, Any]]) -> str | None:
    active = [item for item in items if item["status"] == "in_progress"]
    for item in active[1:]:
        item["status"] = "pending"
    return f"only one item can be in_progress; {len(active) - 1} set back to pending" if len(active) > 1 else None


def _listing(memory: SessionMemory, note: str | None) -> ToolOutput:
    counts = {status: sum(item["status"] == status for item in memory.todos) for status in STATUSES}
    body: dict[str, Any] = {"todos": memory.todos, "summary": {"total": len(memory.todos), **counts}}
    if note:
        body["note"] = note
    # Stored beside what the model reads, which may be cut: the list is taken from there after a resume or a rewind.
    details = {"todos": [dict(item) for item in memory.todos], "revision": memory.todo_revision}
    return result(body, summary=f"{counts['completed']} of {len(memory.todos)} done", details=details)
