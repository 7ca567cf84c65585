"""What informational commands print: plain text about one session. Reads only."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hermes import __version__
from hermes.agent.history import visible_rows
from hermes.agent.ports import ProcessRequest
from hermes.messages import Row
from hermes.nurseries.host_config import sections
from hermes.nurseries.session_history import context_breakdown
from hermes.nurseries.session_history import usage as numbers_of
from hermes.nurseries.session_ready import list_tools

if TYPE_CHECKING:
    from hermes.nurseries.services import Services
    from hermes.nurseries.session import Session

HISTORY_CHARS = 48_000
ROW_CHARS = 2_000
DIFF_CHARS = 48_000
DIFF_WITHIN = 10.0
NO_REPOSITORY = 129
"""What ``git diff`` ends with where there is none: it prints its usage."""
NOTE_FILES = ("MEMORY.md", "USER.md")
INSIGHT_SESSIONS = 10_000


def numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def status_text(session: Session) -> str:
    """One ``Label: value`` per line below a title line (gateway §3.9)."""
    info = session.info()
    model = f"{info.model} ({info.provider})" if info.provider else info.model
    waiting = len(session.slot.queued)
    return "\n".join(
        (
            "Session status",
            f"Session ID: {session.key}",
            f"Path: {info.cwd}",
            f"Title: {info.title or ''}",
            f"Model: {model}",
            f"Created: {moment(session.stored.started_at or session.created_at)}",
            f"Last Activity: {moment(session.last_active)}",
            f"Tokens: {info.usage.total_tokens}",
            f"Agent Running: {'Yes' if info.running else 'No'}",
            *([f"Queued Prompts: {waiting}"] if waiting else []),
        )
    )


def history_text(rows: Sequence[Row]) -> str:
    parts = []
    for row in visible_rows(rows):
        if row.text.strip():
            name = row.tool_name if row.role == "tool" else row.role
            text = row.text if len(row.text) <= ROW_CHARS else f"{row.text[:ROW_CHARS]} […]"
            parts.append(f"[{name}] {text}")
    whole = "\n\n".join(parts)
    return whole[-HISTORY_CHARS:] if whole else "nothing has been said yet"


def usage_text(session: Session) -> str:
    numbers = numbers_of(session)
    used = numbers.usage
    lines = [
        f"Model: {numbers.model}",
        f"Input tokens: {used.input_tokens}",
        f"Output tokens: {used.output_tokens}",
        f"Total tokens: {used.total_tokens}",
        f"Model calls: {used.calls}",
    ]
    if used.cost_usd is not None:
        lines.append(f"Cost: ${used.cost_usd:.4f}{' (estimated)' if used.estimated else ''}")
    if numbers.context_percent is not None:
        lines.append(f"Context: {numbers.context_used} of {numbers.context_max} ({numbers.context_percent} %)")
    return "\n".join(lines)


def context_text(session: Session) -> str:
    parts = context_breakdown(session)
    lines = [f"{part.label}: about {part.tokens} tokens" for part in parts.categories if part.tokens]
    whole = f"{parts.context_used} of {parts.context_max}" if parts.context_max else str(parts.context_used)
    lines.append(f"In all: {whole} tokens{' (estimated)' if parts.estimated else ''}")
    return "\n".join(lines)


def agents_text(session: Session) -> str:
    lines = [f"{child.subagent_id} [{child.status}] {child.goal[:120]}" for child in session.children.walk()]
    lines += [f"{info.process_id} [{info.status}] {info.command[:120]}" for info in session.processes.list()]
    lines += [f"{task_id} [running] background" for task_id in session.side_work if task_id.startswith(("bg", "btw"))]
    return "\n".join(lines) or "nothing runs beside the conversation"


def profile_text(session: Session) -> str:
    return f"profile: default\nhome: {session.services.home}"


def whoami_text(session: Session) -> str:
    return session.stored.principal or "the owner of this server"


def version_text() -> str:
    return f"Hermes {__version__}"


def debug_text(session: Session) -> str:
    """The live tree of the session, one node per line."""
    lines: list[str] = []
    _tree_lines(session.scope.snapshot(), 0, lines)
    return "\n".join(lines)


def _tree_lines(node: Mapping[str, Any], depth: int, lines: list[str]) -> None:
    lines.append(f"{'  ' * depth}{node['node_id']} {node['kind']} {node['name']} [{node['state']}] {node['age_s']} s")
    for child in node["children"]:
        _tree_lines(child, depth + 1, lines)


def config_text(session: Session) -> str:
    parts = []
    for section in sections(session.services, session, lambda: sorted(toolsets(session))):
        rows = "\n".join(f"  {label}: {value}" for label, value in section["rows"])
        parts.append(f"{section['title']}\n{rows}")
    return "\n".join(parts)


def toolsets(session: Session) -> Mapping[str, Sequence[str]]:
    """Tool names by toolset, as the next turn would have them."""
    list_tools(session)
    return session.info().tools


def tools_text(session: Session) -> str:
    groups = toolsets(session)
    return "\n".join(f"{name}: {', '.join(tools)}" for name, tools in groups.items()) or "no tools"


def toolsets_text(session: Session) -> str:
    groups = toolsets(session)
    return "\n".join(f"{name} ({len(tools)} tools)" for name, tools in groups.items()) or "no toolsets"


def models_text(menu: Mapping[str, Any]) -> str:
    lines = []
    for row in menu["providers"]:
        mark = "*" if row.get("is_current") else " "
        lines.append(f"{mark} {row['slug']}: {', '.join(list(row.get('models') or ())[:12])}")
    return "\n".join(lines) or "no provider is configured"


async def memory_text(session: Session) -> str:
    folder = trio.Path(session.services.home) / "memories"
    parts = []
    for name in NOTE_FILES:
        path = folder / name
        if await path.is_file():
            parts.append(f"{name}\n{(await path.read_text(encoding='utf-8')).strip()}")
    return "\n\n".join(parts) or "no notes yet"


async def diff_text(session: Session, arg: str) -> str:
    """``git diff`` of the session's directory, as a child process of the session."""
    argv = ["git", "--no-pager", "diff", "--no-color", "--no-ext-diff"]
    argv += ["--cached"] if "staged" in arg else []
    argv += ["--stat"] if "--stat" in arg else []
    request = ProcessRequest(
        argv=tuple(argv),
        cwd=session.memory.cwd,
        env={"PATH": os.defpath, "HOME": str(session.services.home), "GIT_OPTIONAL_LOCKS": "0", "GIT_PAGER": "cat"},
        timeout=DIFF_WITHIN,
        max_output_bytes=DIFF_CHARS,
    )
    try:
        outcome = await session.processes.run_foreground(request, lambda _chunk: None, turn_id="", node=session.scope)
    except OSError:
        return "git could not be run here"
    if outcome.exit_code == NO_REPOSITORY:
        return "this directory is not in a git repository"
    return outcome.output.decode("utf-8", "replace").strip() or "no changes"


async def used_lately(services: Services, days: int) -> tuple[int, int]:
    """How many sessions were used in the last days, and how many messages they have."""
    since = services.clock() - days * 86_400
    stored = await services.store.list_sessions(limit=INSIGHT_SESSIONS)
    recent = [one for one in stored if one.last_activity_at >= since]
    return len(recent), sum(one.message_count for one in recent)
