"""Makes a new session ready in the background: its model, its tools, its place; then tells everybody (gateway §3.2).

A failure leaves the session as it was; the next prompt tries again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.errors import HermesError
from hermes.events import SessionFailed
from hermes.nurseries.containment import contained
from hermes.nurseries.pinned import tool_set
from hermes.nurseries.turn_end import REFUSAL_CODES
from hermes.nurseries.turn_start import resolve_model

if TYPE_CHECKING:
    from hermes.agent.ports import ToolSet
    from hermes.nurseries.session import Session


def start_getting_ready(session: Session) -> None:
    """Begin in the session's own nursery; returns at once."""
    session.start_soon(_contained, session, name=f"ready {session.key}")


async def _contained(session: Session) -> None:
    await contained(f"ready {session.key}", get_ready, session)


async def get_ready(session: Session) -> None:
    """Resolve the model, list the tools, look for the branch; ends with ``session.info`` or an ``error`` event."""
    session.memory.extras["branch"] = current_branch(session.memory.cwd)
    try:
        resolved = await resolve_model(session, None, None)
        session.services.models.provider_for(resolved)
    except HermesError as error:
        session.emit(SessionFailed(error.message, REFUSAL_CODES.get(type(error).__name__)))
        return
    list_tools(session)
    session.announce_info()


def session_tool_set(session: Session) -> ToolSet:
    """The tools that the session's next turn will have."""
    return tool_set(session, allow_clarify=True)


def list_tools(session: Session) -> None:
    """Names of the session's tools by toolset, for hosts."""
    tools = session_tool_set(session)
    toolsets: dict[str, list[str]] = {}
    for name in tools.names():
        tool = tools.find(name)
        if tool is not None:
            toolsets.setdefault(tool.flags.toolset, []).append(name)
    session.memory.extras["toolsets"] = toolsets


def current_branch(cwd: str) -> str | None:
    """The checked-out git branch of the directory, read from its files; None outside a repository."""
    try:
        for folder in (Path(cwd), *Path(cwd).parents):
            head = folder / ".git" / "HEAD"
            if head.is_file():
                text = head.read_text(encoding="utf-8").strip()
                return text.removeprefix("ref: refs/heads/") if text.startswith("ref:") else text[:12]
    except (OSError, ValueError):
        return None
    return None
