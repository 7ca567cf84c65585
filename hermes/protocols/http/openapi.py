"""The OpenAPI document of the HTTP surface, made from the route table and the models. ``hermes schema openapi``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hermes import __version__
from hermes.protocols.http.browser_control import MIME_TYPES
from hermes.protocols.http.call import Route
from hermes.protocols.http.parameters import PARAMETERS, Parameter
from hermes.protocols.http.routes import ROUTES
from hermes.protocols.http.schemas import AnyObject, ErrorEnvelope

REF = "#/components/schemas/{model}"
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
TURNS: Final = frozenset({"chat_completions", "responses", "runs", "session_chat", "session_chat_stream"})
"""Names of the routes that start a turn."""
TAGS: Final = (
    ("/v1/chat", "OpenAI"),
    ("/v1/responses", "OpenAI"),
    ("/v1/models", "OpenAI"),
    ("/v1/runs", "Runs"),
    ("/api/runs", "Runs"),
    ("/api/sessions", "Sessions"),
    ("/v1/browser", "Browser control"),
    ("/v1/artifacts", "Browser control"),
    ("", "Server"),
)
REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
    "400": ("BadRequest", "The request is not what the route takes; `code` and `param` say why."),
    "401": ("Unauthorized", "No valid key."),
    "404": ("NotFound", "It is not there, or not for this key."),
    "409": ("Conflict", "Not in this state."),
    "413": ("TooLarge", "The body is too large."),
    "429": ("TooMany", "No room for another turn, or the provider has none; see Retry-After."),
    "502": ("Failed", "The turn failed and said nothing."),
    "503": ("NotNow", "The server is ending, or its database is not usable."),
}
EVENT_STREAM: Final[Mapping[str, str]] = {"description": "Server-sent events: the whole stream, or one event of it."}
"""Of no type: before OpenAPI 3.2 some tools hold the text of a stream against its schema, others each event of it."""

TOLD: Final[Mapping[str, str]] = {
    "X-Hermes-Session-Id": "The session of the turn.",
    "X-Hermes-Session-Key": "As it was sent.",
    "X-Hermes-Model": "The model that ran.",
    "X-Hermes-Completed": "false: the turn did not complete.",
    "X-Hermes-Partial": "Whether the answer is known to be cut.",
    "X-Hermes-Error": "Why it did not complete.",
    "Idempotency-Replayed": "true: this is the answer of an earlier request.",
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1.0."""
    models: set[Any] = (
        {route.body for route in ROUTES} | {route.answer for route in ROUTES} | {ErrorEnvelope, AnyObject}
    )
    wanted: list[Any] = [
        (model, "validation") for model in sorted(models - {None}, key=lambda model: str(model.__name__))
    ]
    _, schemas = models_json_schema(wanted, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(PARAMETER.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hermes HTTP API",
            "version": __version__,
            "description": "An agent server. Turns run on the server; a stop stops; every end is told once.",
        },
        "security": [{"bearer": []}, {"session_token": []}],
        "tags": [{"name": name} for name in dict.fromkeys(tag for _, tag in TAGS)],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "responses": {name: _refusal(status, text) for status, (name, text) in REFUSALS.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session_token": {"type": "apiKey", "in": "header", "name": "X-Hermes-Session-Token"},
            },
        },
    }


def document_for_viewer() -> dict[str, Any]:
    """The same as OpenAPI 3.0.3, which is what the bundled viewer reads."""
    return {**_nullable(document()), "openapi": "3.0.3"}


def schema() -> object:
    """For ``hermes schema openapi``."""
    return document()


def markdown() -> str:
    """The routes as a table."""
    lines = ["# HTTP routes", "", "| Method | Path | What it does | Key |", "| --- | --- | --- | --- |"]
    for route in ROUTES:
        lines.append(f"| {route.method} | `{route.path}` | {route.summary} | {'no' if route.public else 'yes'} |")
    return "\n".join(lines) + "\n"


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.name or re.sub(r"\W+", "_", f"{route.method}_{route.path}").lower().strip("_"),
        "tags": [next(tag for prefix, tag in TAGS if route.path.startswith(prefix))],
        "responses": {
            str(route.status): _answer(route),
            **{status: {"$ref": f"#/components/responses/{REFUSALS[status][0]}"} for status in _refused_with(route)},
            "default": _refusal("", "An error"),
        },
    }
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in PARAMETER.findall(route.path)
    ]
    if parameters := [*named, *map(_parameter, PARAMETERS.get((route.method, route.path), ()))]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": any(member.is_required() for member in route.body.model_fields.values()),
            "content": {"application/json": {"schema": _reference(route.body)}},
        }
    elif route.name == "artifact_upload":
        operation["requestBody"] = {"required": True, "content": {kind: {} for kind in MIME_TYPES}}
    if route.public:
        operation["security"] = []
    return operation


def _answer(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    content: dict[str, Any] = {}
    if not route.path.startswith("/docs") and not route.page:
        content["application/json"] = {"schema": _reference(route.answer or AnyObject)}
    if route.streams:
        content["text/event-stream"] = {"schema": dict(EVENT_STREAM)}
    if content:
        answer["content"] = content
    if route.name in TURNS:
        answer["headers"] = {name: {"description": text, "schema": {"type": "string"}} for name, text in TOLD.items()}
    return answer


def _refused_with(route: Route) -> list[str]:
    """The statuses that tell this route's refusals apart; every other one is among the default."""
    found = set() if route.public else {"401"}
    if route.body is not None or (route.method, route.path) in PARAMETERS:
        found |= {"400"}
    if route.method in ("POST", "PATCH"):
        found |= {"413"}
    if "{" in route.path:
        found |= {"404"}
    if route.name in TURNS:
        found |= {"409", "429", "502", "503"}
    elif route.method != "GET" and "{" in route.path:
        found |= {"409"}
    return sorted(found)


def _refusal(status: str, text: str) -> dict[str, Any]:
    told: dict[str, Any] = {"description": text, "content": {"application/json": {"schema": _reference(ErrorEnvelope)}}}
    if status in ("429", "503"):
        told["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return told


def _parameter(parameter: Parameter) -> dict[str, Any]:
    told: dict[str, Any] = {"name": parameter.name, "in": parameter.where, "description": parameter.text}
    return {**told, "required": False, "schema": dict(parameter.schema)}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REF.format(model=model.__name__)}


def _nullable(value: Any) -> Any:
    """3.0 has no null type: "this or null" becomes ``nullable``."""
    if isinstance(value, list):
        return [_nullable(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {key: _nullable(item) for key, item in value.items()}
    if "exclusiveMinimum" in members:
        members["minimum"] = members["exclusiveMinimum"]
        members["exclusiveMinimum"] = True
    if "const" in members:
        members["enum"] = [members.pop("const")]
    choices = members.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del members["anyOf"]
        members["nullable"] = True
        members |= rest[0] if len(rest) == 1 and "$ref" not in rest[0] else {"anyOf": rest}
    return members
