"""Frames made from the schemas of both JSON-RPC protocols, right and nearly right: each is answered once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hermes.protocols.gateway.contract import openrpc
from tests.fuzz.blocking_server import BlockingServer, blocking_server, check_form
from tests.fuzz.from_schema import JSON, from_schema
from tests.support.acp_schema import check, definition_for, schema

pytestmark = pytest.mark.e2e
EXAMPLES = 3000 if os.environ.get("PROOF") else 150
# Not shrunk: an example that fails names its method, and each try costs real frames.
QUIET = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=(Phase.generate,),
)
LEFT_OUT = ("shell.exec", "cli.exec", "model.save_key", "model.disconnect", "config.set", "session.cwd.set")
"""These would run what chance writes, or change which model and which folder the rest of the examples use."""
CONTRACT = openrpc()
METHODS = {method["name"]: method for method in CONTRACT["methods"] if method["name"] not in LEFT_OUT}
ASKED = {
    body["x-method"]: name
    for name, body in schema()["$defs"].items()
    if body.get("x-side") == "agent" and name.endswith("Request")
}


def bent(params: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """As they are, or with one member replaced, left out or added, or no object at all."""

    def bend(data: tuple[Any, str, str, Any]) -> Any:
        given_params, how, name, value = data
        if not isinstance(given_params, dict) or how == "as it is":
            return given_params
        names = sorted(given_params) or [name]
        chosen = names[hash(name) % len(names)] if how != "added" else name
        return {k: v for k, v in given_params.items() if k != chosen} | ({} if how == "left out" else {chosen: value})

    ways = st.sampled_from(["as it is", "as it is", "replaced", "left out", "added"])
    return st.one_of(st.tuples(params, ways, st.text(max_size=8), JSON).map(bend), JSON)


def gateway_params(name: str) -> st.SearchStrategy[Any]:
    members = {one["name"]: from_schema(one["schema"], CONTRACT) for one in METHODS[name]["params"]}
    required = {one["name"] for one in METHODS[name]["params"] if one.get("required")}
    return st.fixed_dictionaries(
        {key: value for key, value in members.items() if key in required},
        optional={key: value for key, value in members.items() if key not in required},
    )


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingServer]:
    with blocking_server(tmp_path_factory.mktemp("fuzz") / "home", "gateway") as server:
        yield server


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingServer]:
    with blocking_server(tmp_path_factory.mktemp("fuzz") / "home", "acp") as server:
        server.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        yield server


@QUIET
@given(data=st.data())
def test_the_gateway_answers_every_frame_of_its_description_once(gateway: BlockingServer, data: st.DataObject) -> None:
    session = gateway.ask("session.create", {})["result"]["session_id"]
    for _ in range(3):
        name = data.draw(st.sampled_from(sorted(METHODS)))
        params = data.draw(bent(gateway_params(name)))
        if isinstance(params, dict) and "session_id" in params and data.draw(st.booleans()):
            params["session_id"] = session
        gateway.ask(name, params)
    gateway.ask("session.close", {"session_id": session})
    assert gateway.ask("ping", {})["result"] == {"pong": True}


@QUIET
@given(data=st.data())
def test_the_editor_protocol_answers_every_frame_of_its_schema_once(
    editor: BlockingServer, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.getbasetemp())
    session = editor.ask("session/new", {"cwd": folder, "mcpServers": []})["result"]["sessionId"]
    for _ in range(2):
        method = data.draw(st.sampled_from(sorted(ASKED)))
        params = data.draw(bent(from_schema(schema()["$defs"][ASKED[method]], schema())))
        if isinstance(params, dict) and "sessionId" in params and data.draw(st.booleans()):
            params["sessionId"] = session
        if isinstance(params, dict) and "mcpServers" in params:
            # Programs that chance has named are not started.
            params["mcpServers"] = []
        answer = editor.ask(method, params)
        if "result" in answer and method not in ("session/prompt", "session/new", "session/load", "session/resume"):
            check(definition_for(method, "Response"), answer["result"])
    editor.ask("session/close", {"sessionId": session})


@QUIET
@given(lines=st.lists(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), max_size=6))
def test_lines_that_are_no_frames_cost_only_themselves(gateway: BlockingServer, lines: list[bytes]) -> None:
    gateway.write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines))
    gateway.write({"jsonrpc": "2.0", "id": "behind", "method": "ping", "params": {}})
    while (answer := gateway.next_answer()).get("id") != "behind":
        check_form(answer)
        assert "error" in answer
    gateway.answered.clear()
