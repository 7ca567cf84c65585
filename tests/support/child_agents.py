"""A model that answers children by their goal, and a plain tool that delegates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hermes.agent.ports import DeltaSink, ModelFinished, ModelRequest, ToolContext
from hermes.errors import Overloaded, Unavailable, Unsupported
from tests.support.core import PlainTool, Reply, ScriptedModel, call, say


class ModelByTask(ScriptedModel):
    """Answers a child by its goal, everybody else in order."""

    def __init__(self, *replies: Reply, **children: Reply) -> None:
        super().__init__(*replies)
        self.children = children

    async def call(self, request: ModelRequest, on_delta: DeltaSink) -> ModelFinished:
        goal = request.messages[0].text.split("\n")[0].split(" ")[0]
        reply = self.children.get(goal)
        if reply is None:
            return await super().call(request, on_delta)
        self.requests.append(request)
        self.open += 1
        try:
            return await reply(request, on_delta)
        finally:
            self.open -= 1


async def _delegate(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
    try:
        done = await ctx.delegate(arguments["tasks"], background=bool(arguments.get("background")))
    except (Unavailable, Unsupported, Overloaded) as error:
        return f"refused: {error.message}"
    return json.dumps(done)


DELEGATE = PlainTool("delegate", _delegate)


def ask_for(*goals: str, background: bool = False, **task: Any) -> Reply:
    tasks = [{"goal": goal, **task} for goal in goals]
    return say("", calls=[call("delegate", tasks=tasks, background=background)])
