"""Log lines for what a person follows: sessions, turns, tool calls and questions, one at the start and one at the end.

The end says how it ended, why, and how long it took, in the words of the message and as fields of a JSON line. Names
only: what was said, and with which arguments a tool was called, is in the transcript and not in the log.
"""

from __future__ import annotations

import logging
from typing import Any

import trio

from hermes.logs import FACTS, log_fields
from hermes.nurseries.scopes import ReasonScope
from hermes.outcomes import CancelReason

log = logging.getLogger(__name__)

LOGGED = frozenset({"session", "turn", "tool_call", "question"})


class NodeLog:
    """Put among the ``observers`` of a tree."""

    def started(self, node: ReasonScope) -> None:
        if node.kind in LOGGED and log.isEnabledFor(logging.INFO):
            with log_fields(**_whose(node)):
                log.info("%s started", _named(node), extra={FACTS: _facts(node, "started")})

    def ended(self, node: ReasonScope, outcome: str, reason: CancelReason | None) -> None:
        if node.kind not in LOGGED or not log.isEnabledFor(logging.INFO):
            return
        seconds = round(trio.current_time() - node.started_at, 3)
        facts = _facts(node, "ended") | {"outcome": outcome, "duration_s": seconds}
        if reason is not None:
            facts |= {"cause": reason.cause.value, "reason": reason.text}
        why = "" if reason is None else f" ({reason})"
        with log_fields(**_whose(node)):
            log.info("%s ended: %s%s after %.3f s", _named(node), outcome, why, seconds, extra={FACTS: facts})


def _named(node: ReasonScope) -> str:
    # A session's name is its title, and a turn's its id, which the fields of the line hold already.
    kind = node.kind.replace("_", " ")
    return kind if node.kind in ("session", "turn") else f"{kind} {node.name}"


def _facts(node: ReasonScope, event: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"event": f"{node.kind}_{event}", "node_id": node.node_id}
    if node.kind in ("tool_call", "question"):
        facts["name"] = node.name
    return facts


def _whose(node: ReasonScope) -> dict[str, str]:
    """The fields of the line: the node may be made by a task that is not its own."""
    fields: dict[str, str] = {}
    above: ReasonScope | None = node
    while above is not None and "session" not in fields:
        if above.kind == "turn":
            fields.setdefault("turn", above.name)
        elif above.kind == "session":
            fields["session"] = str((above.details or {}).get("session", ""))
        above = above.parent
    return fields
