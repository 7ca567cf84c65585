"""The official Node client and the AI SDK, unpatched, against the real server."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.client_script import SAID, USED, client_script
from tests.support.http_clients import node_problem, run_client, served

pytestmark = pytest.mark.e2e
FOLDER = Path(__file__).parent / "node"


async def ran(program: str, tmp_path: Path) -> tuple[dict[str, Any], int]:
    """What a program printed, by scenario, and how many calls of the model it left open."""
    problem = await trio.to_thread.run_sync(partial(node_problem, FOLDER))
    if problem is not None:
        pytest.skip(f"Node clients: {problem}")
    async with served(tmp_path / "home", client_script()) as run:
        node = shutil.which("node") or "node"
        done = await run_client(
            [node, str(FOLDER / program), run.base_url, run.server.key], home=tmp_path / "client", NODE_NO_WARNINGS="1"
        )
        assert done.code == 0, done.err
        return {one.pop("name"): one for one in map(json.loads, done.out.splitlines())}, run.provider.open_requests


async def test_the_node_sdk_does_all_that_it_offers(tmp_path: Path) -> None:
    outcomes, left_open = await ran("sdk.mjs", tmp_path)
    assert {name: one["error"] for name, one in outcomes.items() if "error" in one} == {}
    said = {name: one["result"] for name, one in outcomes.items()}
    assert said["models"] == {"ids": ["hermes-agent"], "one": "hermes-agent"}
    assert said["chat"] == {
        "object": "chat.completion",
        "text": SAID,
        "finish": "stop",
        "adds_up": True,
        "session": True,
    }
    assert said["chat_stream"] == {"text": SAID, "roles": ["assistant"], "ends": ["stop"], "usage": True}
    assert said["chat_helper"] == {"text": SAID, "events": True}
    tools = said["tools_are_shown"]
    assert (tools["text"].split("\n\n")[-1], tools["ends"], tools["said"]) == (USED, ["stop"], USED)
    assert [kind for kind in tools["items"] if kind != "reasoning"] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert said["image"] == {"text": SAID}
    assert said["responses"] == {"status": "completed", "text": SAID, "chained": True, "same": True, "gone": True}
    stream = said["responses_stream"]
    assert (stream["text"], stream["deltas"]) == (SAID, SAID)
    assert {"response.created", "response.content_part.added", "response.completed"} <= set(stream["types"])
    errors = said["errors"]
    assert errors["key"] == ["AuthenticationError", 401, "gateway_auth_failed"]
    assert errors["model"] == ["NotFoundError", 404, "model_not_found"]
    assert errors["empty"] == ["BadRequestError", 400, "missing_messages"]
    assert errors["response"] == ["NotFoundError", 404, "response_not_found"]
    assert errors["endpoint"] == ["NotFoundError", 404, "endpoint_not_supported"]
    assert errors["failed"][:2] == ["InternalServerError", 502]
    assert errors["failed_stream"][0] == "APIError"
    assert errors["failed_response"] == ["APIError", None, "server_error"]
    assert said["timeout"] == {"kind": "APIConnectionTimeoutError"}
    assert said["abort"] == {"status": "cancelled", "cause": "client_disconnect"}
    assert left_open == 0


async def test_the_ai_sdk_reads_a_tool_turn_without_an_error(tmp_path: Path) -> None:
    outcomes, left_open = await ran("ai_sdk.mjs", tmp_path)
    assert outcomes["generate"] == {"text": SAID, "finish": "stop"}
    stream = outcomes["stream"]
    assert (stream["errors"], stream["finish"], stream["usage"]) == ([], "stop", True)
    assert stream["text"].endswith(USED)
    assert outcomes["abort"]["ended"] in ("aborted", "AbortError")
    assert left_open == 0
