"""session_search: find, read and scroll earlier conversations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hermes.agent.ports import ParallelClass, StoredSession, ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, choice, failure, number, parameters, result, text
from hermes.errors import HermesError
from hermes.messages import Row

_MAX_ROW = 2000
_MAX_ROWS = 60


class SessionSearch(BuiltinTool):
    spec = ToolSpec(
        "session_search",
        "Search earlier conversations. query finds sessions; session_id reads one; with around_message_id it scrolls "
        "in it; without arguments the recent sessions are listed.",
        parameters(
            {
                "query": text("Words, or an FTS5 expression."),
                "limit": number("Number of sessions (at most 10).", minimum=1, maximum=10, default=3),
                "sort": choice("Order.", "newest", "oldest"),
                "detail": choice("How much of each session.", "adaptive", "full", default="adaptive"),
                "after": text("Only what is younger than this ISO date or Unix time."),
                "before": text("Only what is older."),
                "exclude_session_ids": {"type": "array", "items": {"type": "string"}},
                "role_filter": text("Only rows of this role: user, assistant or tool."),
                "session_id": text("A session to read."),
                "around_message_id": number("A message id in it."),
                "window": number("Messages before and after.", minimum=1, maximum=30, default=5),
            }
        ),
    )
    flags = ToolFlags(ParallelClass.FREE, read_only=True, toolset="memory")

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        try:
            if arguments.get("query"):
                return await self._discover(ctx, arguments)
            if arguments.get("session_id"):
                return await self._read(ctx, arguments)
            return await self._recent(ctx, arguments)
        except HermesError as error:
            raise failure(error.message) from None

    async def _discover(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        limit = min(max(1, int(arguments.get("limit") or 3)), 10)
        found = await ctx.store.search(str(arguments["query"]), limit=200)
        hidden = await self._excluded(ctx, arguments)
        role, after, before = (
            arguments.get("role_filter"),
            _time(arguments.get("after")),
            _time(arguments.get("before")),
        )
        sessions: dict[str, dict[str, Any]] = {}
        for hit in found:
            key, at = str(hit["session_key"]), float(hit.get("timestamp") or 0.0)
            if key in hidden or (role and hit.get("role") != role):
                continue
            if (after is not None and at < after) or (before is not None and at > before):
                continue
            session = sessions.setdefault(
                key, {"session_id": key, "title": hit.get("title"), "date": at, "matches": []}
            )
            session["date"] = max(session["date"], at)
            if len(session["matches"]) < (20 if arguments.get("detail") == "full" else 5):
                snippet = redact(str(hit.get("snippet") or ""))[:500]
                session["matches"].append(
                    {"message_id": hit.get("row_id"), "role": hit.get("role"), "snippet": snippet}
                )
        chosen = list(sessions.values())
        if arguments.get("sort"):
            chosen.sort(key=lambda session: session["date"], reverse=arguments["sort"] == "newest")
        return result({"sessions": chosen[:limit], "total": len(chosen)}, summary=f"{len(chosen)} sessions")

    async def _excluded(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> set[str]:
        """The current session with its ancestors, and what the call leaves out."""
        excluded = {str(key) for key in arguments.get("exclude_session_ids") or ()}
        key: str | None = ctx.session_key
        for _ in range(20):
            if key is None or key in excluded:
                break
            excluded.add(key)
            session = await ctx.store.get_session(key)
            key = session.parent_key if session is not None else None
        return excluded

    async def _read(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        key = str(arguments["session_id"])
        session = await ctx.store.get_session(key)
        if session is None or (session.hidden and not await self._is_own_child(ctx, session)):
            raise failure(f"no session {key!r}")
        rows = [row for row in await ctx.store.load_transcript(key) if row.display_kind != "hidden"]
        around = arguments.get("around_message_id")
        start, shown = 0, rows
        if around is not None:
            index = next((at for at, row in enumerate(rows) if row.row_id == around), None)
            if index is None:
                raise failure(f"no message {around} in this session")
            window = min(max(1, int(arguments.get("window") or 5)), 30)
            start = max(0, index - window)
            shown = rows[start : index + window + 1]
        messages = [_message(row) for row in shown[:_MAX_ROWS]]
        body: dict[str, Any] = {"session_id": key, "title": session.title, "messages": messages, "total": len(rows)}
        if len(shown) > _MAX_ROWS:
            body["truncated"] = True
            body["hint"] = f"go on with around_message_id {shown[_MAX_ROWS].row_id}"
        return result(body, summary=f"{len(messages)} messages")

    async def _is_own_child(self, ctx: ToolContext, session: StoredSession) -> bool:
        """Whether a hidden session works for the current one: whoever has children may read what they do."""
        above: StoredSession | None = session
        for _ in range(20):
            if above is None or above.parent_key is None or not above.hidden:
                return False
            if above.parent_key == ctx.session_key:
                return True
            above = await ctx.store.get_session(above.parent_key)
        return False

    async def _recent(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        limit = min(max(1, int(arguments.get("limit") or 3)), 10)
        hidden = await self._excluded(ctx, arguments)
        sessions = await ctx.store.list_sessions(limit=limit + len(hidden))
        shown = [
            {
                "session_id": one.key,
                "title": one.title,
                "date": one.last_activity_at,
                "messages": one.message_count,
                "preview": redact(one.preview)[:200],
            }
            for one in sessions
            if one.key not in hidden
        ]
        return result({"sessions": shown[:limit]}, summary=f"{len(shown[:limit])} sessions")


def _message(row: Row) -> dict[str, Any]:
    shown = redact(row.text)
    message: dict[str, Any] = {"message_id": row.row_id, "role": row.role, "content": shown[:_MAX_ROW]}
    if len(shown) > _MAX_ROW:
        message["left_out"] = len(shown) - _MAX_ROW
    if row.tool_calls:
        message["tools"] = [call.name for call in row.tool_calls]
    return message


def _time(value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise failure(f"{value!r} is neither an ISO date nor a Unix time") from None
