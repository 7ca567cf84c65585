"""The public Python client, driven by lines of JSON: ``python acp_bridge_program.py COMMAND…``.

In: ``{id, method, params}`` calls the agent, ``{notify, params}`` tells it, ``{key, result}`` answers a question.
Out: ``{id, result}`` or ``{id, error}``, ``{event: "update", params}``, ``{event: "question", key, method, params}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import acp
from acp import schema

REQUESTS: dict[str, tuple[str, Any]] = {
    "session/new": ("new_session", schema.NewSessionRequest),
    "session/load": ("load_session", schema.LoadSessionRequest),
    "session/resume": ("resume_session", schema.ResumeSessionRequest),
    "session/fork": ("fork_session", schema.ForkSessionRequest),
    "session/list": ("list_sessions", schema.ListSessionsRequest),
    "session/close": ("close_session", schema.CloseSessionRequest),
    "session/prompt": ("prompt", schema.PromptRequest),
    "session/set_mode": ("set_session_mode", schema.SetSessionModeRequest),
    "initialize": ("initialize", schema.InitializeRequest),
}


def say(frame: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


class Client:
    def __init__(self) -> None:
        self.open: dict[int, asyncio.Future[Any]] = {}

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        shown = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        say({"event": "update", "params": {"sessionId": session_id, "update": shown}})

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **kwargs: Any) -> Any:
        key = len(self.open) + 1
        self.open[key] = asyncio.get_running_loop().create_future()
        shown = [option.model_dump(mode="json", by_alias=True, exclude_none=True) for option in options]
        params = {"sessionId": session_id, "toolCall": {"toolCallId": tool_call.tool_call_id}, "options": shown}
        say({"event": "question", "key": key, "method": "session/request_permission", "params": params})
        answer = await self.open[key]
        try:
            return schema.RequestPermissionResponse.model_validate(answer)
        except ValueError:
            return answer


async def call(connection: Any, frame: dict[str, Any]) -> None:
    method, params = frame["method"], frame["params"]
    try:
        if method == "session/set_config_option":
            names = {"config_id": params["configId"], "session_id": params["sessionId"], "value": params["value"]}
            result = await connection.set_config_option(**names)
        else:
            name, model = REQUESTS[method]
            request = model.model_validate(params)
            members = {field: getattr(request, field) for field in request.model_fields_set}
            result = await getattr(connection, name)(**members)
    except acp.RequestError as error:
        say({"id": frame["id"], "error": {"code": error.code, "message": str(error)}})
    else:
        dumped = {} if result is None else result.model_dump(mode="json", by_alias=True, exclude_none=True)
        say({"id": frame["id"], "result": dumped})


async def main() -> None:
    client: Any = Client()
    lines = asyncio.StreamReader(limit=1 << 28)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    running = set()
    command, *arguments = sys.argv[1:]
    async with acp.spawn_agent_process(lambda _agent: client, command, *arguments, env=dict(os.environ)) as (agent, _):
        while line := await lines.readline():
            frame = json.loads(line)
            if "key" in frame:
                client.open[frame["key"]].set_result(frame["result"])
            elif "notify" in frame:
                await agent.cancel(session_id=frame["params"]["sessionId"])
            else:
                task = asyncio.create_task(call(agent, frame))
                running.add(task)
                task.add_done_callback(running.discard)
                # In the order in which they were said.
                await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main())
