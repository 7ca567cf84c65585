"""Every frame of the ACP agent against the official JSON schema: a validator, and the record of a conversation.

``tests/clients/acp_schema.json`` is version 1 of the schema as the package ``@agentclientprotocol/sdk`` 2.4.0 ships it
(copyright Zed Industries, Apache License 2.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parents[1] / "clients" / "acp_schema.json"

# Fields and methods of the unstable schema or of older ones, which are sent on purpose.
KNOWN_EXTRAS = {
    "session/prompt": {"usage"},
    "session/new": {"models"},
    "session/load": {"models"},
    "session/resume": {"models"},
    "session/fork": {"models"},
    # Of the schema, but in its branches.
    "elicitation/create": {"mode", "sessionId", "toolCallId", "requestedSchema"},
}
UNSTABLE = {"session/fork": "NewSessionResponse"}
# Notifications among them: somebody may send one as a request, which must be answered somehow.
EXTENSION_METHODS = {"session/set_model", "session/cancel", "$/cancel_request"}


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return whole


@lru_cache(maxsize=64)
def validator(definition: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema()["$defs"]})


@lru_cache(maxsize=64)
def definition_for(method: str, part: str) -> str:
    """The definition of a method's ``Request``, ``Response`` or ``Notification``."""
    if part == "Response" and method in UNSTABLE:
        return UNSTABLE[method]
    for name, body in schema()["$defs"].items():
        if body.get("x-method") == method and name.endswith(part):
            return str(name)
    raise AssertionError(f"the schema knows no {part} of {method}")


def check(definition: str, value: Any, extras: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """The value is valid, and its top level has only members that the schema names."""
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator(definition).iter_errors(value)]
    assert not errors, f"{definition}: {errors[:5]} in {json.dumps(value)[:800]}"
    known = schema()["$defs"][definition].get("properties")
    if known is not None and isinstance(value, Mapping):
        unknown = value.keys() - known.keys() - extras
        assert not unknown, f"{definition} has no {unknown}"


def check_update(update: Mapping[str, Any]) -> None:
    """One update: its kind is of the stable schema and it has no member its kind does not know."""
    kinds = {
        branch["properties"]["sessionUpdate"]["const"]: branch["allOf"][0]["$ref"].rpartition("/")[2]
        for branch in schema()["$defs"]["SessionUpdate"]["oneOf"]
        if "const" in branch["properties"].get("sessionUpdate", {})
    }
    kind = update["sessionUpdate"]
    assert kind in kinds, f"{kind} is not of the stable schema"
    check(kinds[kind], {key: value for key, value in update.items() if key != "sessionUpdate"})


class CheckedConversation:
    """What was asked, so that answers can be checked by their method."""

    def __init__(self) -> None:
        self.methods: dict[str, str] = {}

    def client_sent(self, frame: Mapping[str, Any]) -> None:
        if "method" in frame and "id" in frame:
            self.methods[json.dumps(frame["id"])] = frame["method"]

    def agent_sent(self, frame: Mapping[str, Any]) -> None:
        """Raises AssertionError when the frame is not what the schema allows."""
        assert frame.get("jsonrpc") == "2.0", frame
        if "method" in frame:
            self._call(frame)
        elif "error" in frame:
            check("Error", frame["error"])
        else:
            method = self.methods.get(json.dumps(frame["id"]))
            assert method is not None, f"an answer to nothing: {frame}"
            if method not in EXTENSION_METHODS:
                check(definition_for(method, "Response"), frame["result"], KNOWN_EXTRAS.get(method, set()))

    def _call(self, frame: Mapping[str, Any]) -> None:
        method, params = frame["method"], frame["params"]
        if "id" in frame:
            check(definition_for(method, "Request"), params, KNOWN_EXTRAS.get(method, set()))
            return
        check(definition_for(method, "Notification"), params)
        if method == "session/update":
            check_update(params["update"])


class CheckedTraffic:
    """The bytes to an agent and the frames from it. What the schema does not allow is kept until the test asks."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._conversation = CheckedConversation()
        self._pieces: list[bytes] = []

    def to_agent(self, data: bytes) -> None:
        """Lines that are no requests are the test's business."""
        self._pieces.append(data)
        if b"\n" not in data:
            return
        *lines, rest = b"".join(self._pieces).split(b"\n")
        self._pieces = [rest]
        for line in lines:
            try:
                frame = json.loads(line)
            except ValueError:
                continue
            if isinstance(frame, dict):
                self._conversation.client_sent(frame)

    def from_agent(self, frame: Mapping[str, Any]) -> None:
        try:
            self._conversation.agent_sent(frame)
        except AssertionError as fault:
            self.faults.append(str(fault))

    def assert_valid(self) -> None:
        assert not self.faults, f"{len(self.faults)} frames are not of the protocol: {self.faults[:3]}"
