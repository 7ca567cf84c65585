"""What the model may do to children that exist already: list, steer and stop them (agent-core §7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hermes.errors import InvalidParams, NotFound
from hermes.nurseries.child_results import shown_goal
from hermes.nurseries.children import Child
from hermes.outcomes import CancelReason, Cause

if TYPE_CHECKING:
    from hermes.nurseries.session import Session


def control(session: Session, action: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """``list``, ``steer`` and ``stop`` of the delegate tool. Raises ``NotFound`` or ``InvalidParams``."""
    if action == "list":
        return {"subagents": [describe(child) for child in session.children.walk()]}
    subagent_id = str(request.get("subagent_id") or "")
    child = session.children.find(subagent_id)
    if child is None:
        raise NotFound(f"no child agent {subagent_id}")
    if action == "stop":
        stopped = child.cancel(CancelReason(Cause.NODE_CANCEL, "stopped by the agent that started it"))
        return {"subagent_id": subagent_id, "stopped": stopped}
    message = str(request.get("message") or "").strip()
    if not message:
        raise InvalidParams("steer needs a message")
    return {"subagent_id": subagent_id, "status": "queued" if child.steer(message) else "rejected"}


def describe(child: Child) -> dict[str, Any]:
    """One child for ``subagent.list`` and ``delegation.status`` (gateway §9.5)."""
    shape: dict[str, Any] = {
        "subagent_id": child.subagent_id,
        "parent_id": child.parent_id,
        "depth": child.depth,
        "goal": shown_goal(child.goal),
        "delegation_id": child.delegation_id,
        "model": child.model,
        "started_at": child.started_at,
        "status": child.status,
        "tool_count": child.tool_count,
        "last_tool": child.last_tool,
        "accepting_steer": child.accepting_steer,
    }
    return {name: value for name, value in shape.items() if value is not None}
