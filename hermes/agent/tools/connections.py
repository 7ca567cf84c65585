"""manage_connections: show the user what a task needs to be connected to, and connect what they agree to.

What the user types for a connection is stored as a variable and never told to the model.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.agent.ports import ToolContext, ToolFlags, ToolOutput, ToolSpec
from hermes.agent.redaction import redact
from hermes.agent.tools.base import BuiltinTool, failure, parameters, result, text
from hermes.agent.tools.services import ConnectionTarget
from hermes.agent.tools.stored_secrets import store_secrets
from hermes.messages import Answered, Declined, Question, TimedOut

TIMEOUT = 300.0
CONNECT_WITHIN = 30.0
_SETTLED_BY = ("all_resolved", "continue", "deadline", "interrupt")


class ManageConnections(BuiltinTool):
    spec = ToolSpec(
        "manage_connections",
        "Show the user the connections (MCP servers) that a task needs, so that they can connect them and give what is "
        "missing. Without targets: all that are not connected.",
        parameters(
            {
                "targets": {"type": "array", "items": {"type": "string"}, "description": "Names of connections."},
                "reason": text("Why they are needed."),
            }
        ),
    )
    flags = ToolFlags(interactive=True, toolset="client")
    answered_by = "connection"

    async def run(self, ctx: ToolContext, arguments: Mapping[str, Any]) -> ToolOutput:
        chosen = self._chosen(arguments.get("targets"))
        open_ones = [target for target in chosen if target.state != "connected"]
        if not open_ones:
            return result({"targets": [{"name": one.name, "state": "connected"} for one in chosen]})
        params = {
            "op_id": f"op_{uuid.uuid4().hex[:12]}",
            "timeout_seconds": TIMEOUT,
            "targets": [_shown(target) for target in open_ones],
            "reason": redact(str(arguments.get("reason") or ""))[:2000],
        }
        answer = await ctx.ask(Question("connection", params, (), TIMEOUT, ctx.call_id))
        match answer:
            case Answered(value=value):
                return await self._settle(ctx, open_ones, value)
            case TimedOut():
                return _told("deadline", [{"name": one.name, "state": "expired"} for one in open_ones])
            case Declined(message=message):
                raise failure(message)
            case _:
                raise failure("not available: no attached client shows connections")

    def _chosen(self, names: object) -> list[ConnectionTarget]:
        connections = self.services.connections
        known = {target.name: target for target in (() if connections is None else connections.targets())}
        wanted = [str(name) for name in names] if isinstance(names, list) and names else list(known)
        if unknown := [name for name in wanted if name not in known]:
            raise failure(f"no connection {unknown[0]!r} is configured", known=list(known))
        return [known[name] for name in dict.fromkeys(wanted)]

    async def _settle(
        self, ctx: ToolContext, asked: Sequence[ConnectionTarget], value: Mapping[str, Any]
    ) -> ToolOutput:
        given = value.get("targets")
        outcomes = {
            str(one.get("name")): one for one in (given if isinstance(given, list) else []) if isinstance(one, Mapping)
        }
        states = [await self._connect(ctx, target, outcomes.get(target.name, {})) for target in asked]
        settled_by = value.get("settled_by")
        return _told(settled_by if settled_by in _SETTLED_BY else "continue", states)

    async def _connect(self, ctx: ToolContext, target: ConnectionTarget, outcome: Mapping[str, Any]) -> dict[str, Any]:
        if outcome.get("status") != "approved":
            return {"name": target.name, "state": "skipped" if outcome.get("status") == "skipped" else "not_connected"}
        env = outcome.get("env")
        values = {
            name: text
            for name, text in (env.items() if isinstance(env, Mapping) else ())
            if name in target.required and isinstance(text, str) and text
        }
        if values and self.services.variables is not None:
            await store_secrets(self.services, ctx.memory, values)
        assert self.services.connections is not None
        problem = await self.services.connections.connect(target.name, CONNECT_WITHIN)
        if problem is None:
            return {"name": target.name, "state": "connected"}
        return {"name": target.name, "state": "failed", "detail": redact(problem)[:500]}


def _shown(target: ConnectionTarget) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": target.name,
        "kind": target.kind,
        "action": "connect",
        "state": "failed" if target.state == "failed" else "not_connected",
    }
    if target.required:
        shown["required_env"] = list(target.required)
    return shown


def _told(settled_by: str, states: Sequence[Mapping[str, Any]]) -> ToolOutput:
    body: dict[str, Any] = {"settled_by": settled_by, "targets": list(states)}
    if any(state["state"] == "connected" for state in states):
        body["note"] = "The tools of a new connection are offered after /reload-mcp, or in the next session."
    return result(body)
