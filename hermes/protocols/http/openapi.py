"""The OpenAPI document of the HTTP surface, made from the route table and the models. ``hermes schema openapi``."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hermes import __version__
from hermes.protocols.http.call import Route
from hermes.protocols.http.routes import ROUTES
from hermes.protocols.http.schemas import AnyObject, ErrorEnvelope

REF = "#/components/schemas/{model}"
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def document() -> dict[str, Any]:
    """OpenAPI 3.0.3 (the version that the bundled viewer reads)."""
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
        "openapi": "3.0.3",
        "info": {
            "title": "Hermes HTTP API",
            "version": __version__,
            "description": "An agent server. Turns run on the server; a stop stops; every end is told once.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": _nullable(schemas["$defs"]),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def schema() -> object:
    """For ``hermes schema openapi --format json``."""
    return document()


def markdown() -> str:
    """The routes as a table."""
    lines = ["# HTTP routes", "", "| Method | Path | What it does | Key |", "| --- | --- | --- | --- |"]
    for route in ROUTES:
        lines.append(f"| {route.method} | `{route.path}` | {route.summary} | {'no' if route.public else 'yes'} |")
    return "\n".join(lines) + "\n"


def _operation(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    content: dict[str, Any] = {}
    if not route.path.startswith("/docs") and not route.page:
        content["application/json"] = {"schema": _reference(route.answer or AnyObject)}
    if route.streams:
        content["text/event-stream"] = {}
    if content:
        answer["content"] = content
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.name or re.sub(r"\W+", "_", f"{route.method}_{route.path}").lower().strip("_"),
        "responses": {
            str(route.status): answer,
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": _reference(ErrorEnvelope)}},
            },
        },
    }
    names = PARAMETER.findall(route.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": _reference(route.body)}}}
    if route.public:
        operation["security"] = []
    return operation


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
