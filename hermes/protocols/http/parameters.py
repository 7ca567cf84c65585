"""What the routes read beside their bodies: query members and headers, as data. The OpenAPI document is made of these.

Handlers check what they read themselves; a row here says the same to people and to code generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from hermes.protocols.http.sessions import MAX_MESSAGES
from hermes.records import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query member or a header. Whatever is left out has its default."""

    where: Literal["query", "header"]
    name: str
    schema: Mapping[str, Any]
    text: str


TEXT: Final[Mapping[str, Any]] = {"type": "string"}
LABEL: Final[Mapping[str, Any]] = {"type": "string", "maxLength": 256}
SWITCH: Final[Mapping[str, Any]] = {"type": "boolean"}


def _query(name: str, schema: Mapping[str, Any], text: str) -> Parameter:
    return Parameter("query", name, schema, text)


def _header(name: str, schema: Mapping[str, Any], text: str) -> Parameter:
    return Parameter("header", name, schema, text)


def _number(default: int, least: int, most: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "default": default, "minimum": least}
    return schema if most is None else {**schema, "maximum": most}


SESSION_ID = _header("X-Hermes-Session-Id", LABEL, "Go on with this stored session.")
SESSION_KEY = _header("X-Hermes-Session-Key", LABEL, "The name of a long-lived conversation.")
ONCE = _header(
    "Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 255}, "A retry with the same key starts nothing."
)
LEAVING = _header(
    "X-Hermes-On-Disconnect",
    {"type": "string", "enum": ["cancel", "continue"]},
    "What becomes of the turn when the client goes away.",
)
LAST_EVENT = _header("Last-Event-ID", TEXT, "The number of the last event that the reader has.")

PARAMETERS: Final[Mapping[tuple[str, str], Sequence[Parameter]]] = {
    ("POST", "/v1/chat/completions"): (SESSION_ID, SESSION_KEY, ONCE, LEAVING),
    ("POST", "/v1/responses"): (SESSION_KEY, ONCE, LEAVING),
    ("POST", "/v1/runs"): (SESSION_ID, SESSION_KEY, ONCE, LEAVING),
    ("POST", "/api/sessions/{session_id}/chat"): (SESSION_KEY, LEAVING),
    ("POST", "/api/sessions/{session_id}/chat/stream"): (SESSION_KEY, LEAVING),
    ("GET", "/v1/runs/{run_id}/events"): (
        LAST_EVENT,
        _query("after", TEXT, "The same as Last-Event-ID, which wins."),
        _query("last_seq", TEXT, "An older name of `after`."),
        _query("named", SWITCH, "Events with an `event:` line."),
        LEAVING,
    ),
    ("GET", "/v1/responses/{response_id}/input_items"): (
        _query("limit", _number(20, 1, 100), "Items of a page."),
        _query("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "By their place in the input."),
        _query("after", TEXT, "The id of the last item of the page before."),
    ),
    ("GET", "/v1/tree"): (_query("stream", SWITCH, "A stream of snapshots instead of one."),),
    ("DELETE", "/v1/tree/{node_id}"): (_query("reason", TEXT, "Your words, when there is no body."),),
    ("GET", "/api/model/options"): (
        _query("refresh", SWITCH, "Ask the providers instead of the memory."),
        _query("include_unconfigured", SWITCH, "Also providers without a key, and how to set them up."),
        _query("explicit_only", SWITCH, "Only what the user has set up."),
    ),
    ("GET", "/api/sessions"): (
        _query("limit", _number(50, 1, 200), "Sessions of a page."),
        _query("offset", _number(0, 0), "How many to leave out."),
        _query("source", TEXT, "Only those that were made there."),
        _query("title", TEXT, "Only those of exactly this title."),
        _query("include_children", SWITCH, "Also those that belong to others."),
        _query("include_hidden", SWITCH, "Together with `title`: also hidden ones."),
    ),
    ("GET", "/api/sessions/{session_id}/messages"): (
        _query("limit", {"type": "integer", "minimum": 0, "maximum": MAX_MESSAGES}, "Messages of a page."),
        _query("offset", _number(0, 0), "How many to leave out, from where `order` begins."),
        _query("order", {"type": "string", "enum": ["oldest", "latest"]}, "From which end pages are counted."),
        _query("include_compacted", {**SWITCH, "default": True}, "Also what a summary stands for."),
    ),
    ("POST", "/v1/artifacts/upload"): (
        _header("X-Artifact-Filename", {"type": "string", "maxLength": 160}, "Its name, for display only. Required."),
    ),
}
