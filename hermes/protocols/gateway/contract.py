"""The whole contract as data: methods, events and server requests with their models, as OpenRPC and as JSON Schemas.

Made from the tables that the server itself serves; ``hermes schema`` prints it and the copies under ``docs/reference``
are checked against it. TypeScript is made from the same document (``contract_typescript.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from hermes import __version__
from hermes.protocols.error_table import METHOD_CODES, UNKNOWN_KEY, UNKNOWN_SESSION
from hermes.protocols.gateway import results, results_browser, results_config, results_work
from hermes.protocols.gateway.client import GatewayClient
from hermes.protocols.gateway.schemas_events import EVENTS
from hermes.protocols.gateway.schemas_requests import SERVER_REQUEST_TABLE
from hermes.protocols.gateway.surface import STDIO_TABLE, WEBSOCKET_TABLE
from hermes.protocols.rpc.method_table import Method

OPENRPC: Final = "1.3.2"
REFERENCES: Final = "#/components/schemas/{model}"
ABOUT: Final = (
    "JSON-RPC 2.0, one object per line on standard input and output, or per WebSocket message. Parameters are always "
    "by name; keys that a method does not declare are refused. Events and requests of the server are extensions of "
    "this document (x-events, x-server-requests)."
)


class _Plain(GenerateJsonSchema):
    """Without the titles that repeat the names, and without defaults of null, which say "may be left out"."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made


def methods() -> Iterator[Method[GatewayClient]]:
    """In order of name; those of WebSockets too."""
    for name in WEBSOCKET_TABLE.names():
        method = WEBSOCKET_TABLE.find(name)
        assert method is not None
        yield method


def result_of(method: Method[GatewayClient]) -> type[BaseModel]:
    """The model of a method's result. The table has only its name: serving needs no more, and starts sooner."""
    for module in (results, results_browser, results_config, results_work):
        model = getattr(module, str(method.result), None)
        if model is not None:
            return model  # type: ignore[no-any-return]
    raise LookupError(f"{method.name} declares no result: {method.result}")


def is_websocket_only(name: str) -> bool:
    return STDIO_TABLE.find(name) is None


def models() -> list[type[BaseModel]]:
    """Every model of the contract, once."""
    found: dict[type[BaseModel], None] = {}
    for method in methods():
        if method.params is not None:
            found[method.params] = None
        found[result_of(method)] = None
    for event in EVENTS:
        if event.payload is not None:
            found[event.payload] = None
    for request in SERVER_REQUEST_TABLE:
        found[request.params] = found[request.result] = None
    return list(found)


def schemas() -> tuple[dict[type[BaseModel], str], dict[str, dict[str, Any]]]:
    """The name of each model, and the schema of each name (nested ones too)."""
    # "validation" for results as well: what may be left out is then not required.
    places, whole = models_json_schema(
        [(model, "validation") for model in models()], ref_template=REFERENCES, schema_generator=_Plain
    )
    names = {model: str(places[model, "validation"]["$ref"]).rpartition("/")[2] for model in models()}
    return names, {name: _without_title(schema) for name, schema in sorted(whole["$defs"].items())}


def _without_title(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def _reference(names: Mapping[type[BaseModel], str], model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REFERENCES.format(model=names[model])}


# --- OpenRPC ---------------------------------------------------------------------------------------------------------


def openrpc() -> dict[str, Any]:
    """The OpenRPC document."""
    names, definitions = schemas()
    return {
        "openrpc": OPENRPC,
        "info": {
            "title": "Hermes gateway",
            "version": __version__,
            "description": ABOUT,
            "license": {"name": "MIT"},
        },
        "methods": [_method(method, names, definitions) for method in methods()],
        "components": {"schemas": definitions},
        "x-events": [
            {
                "name": event.name,
                "scope": event.scope,
                "description": event.text,
                "payload": None if event.payload is None else _reference(names, event.payload),
            }
            for event in EVENTS
        ],
        "x-server-requests": [
            {
                "name": request.name,
                "description": request.text,
                "params": _reference(names, request.params),
                "result": _reference(names, request.result),
            }
            for request in SERVER_REQUEST_TABLE
        ],
    }


def _method(
    method: Method[GatewayClient], names: Mapping[type[BaseModel], str], definitions: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    assert method.params is not None
    schema = definitions[names[method.params]]
    required = set(schema.get("required", ()))
    document: dict[str, Any] = {
        "name": method.name,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "required": name in required, "schema": field}
            for name, field in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required)
        ],
        "result": {"name": names[result_of(method)], "schema": _reference(names, result_of(method))},
        "errors": errors_of(method.name, takes_session="session_id" in required),
        "x-params-schema": _reference(names, method.params),
    }
    text = " ".join((inspect.getdoc(method.handler) or "").split("\n\n")[0].split())
    if text:
        document["description"] = text
    if is_websocket_only(method.name):
        document["x-transport"] = "websocket"
    return document


def errors_of(name: str, *, takes_session: bool) -> list[dict[str, Any]]:
    """The codes that are the method's own, and those that every such method has."""
    told = {UNKNOWN_KEY: "a parameter that the method does not declare"}
    if takes_session:
        told[UNKNOWN_SESSION] = "session not found"
    for kind, code in METHOD_CODES.get(name, {}).items():
        told.setdefault(code, kind.default_message or kind.__name__)
    return [{"code": code, "message": message} for code, message in sorted(told.items())]


# --- JSON Schemas ----------------------------------------------------------------------------------------------------


def json_schemas() -> dict[str, Any]:
    """One JSON Schema document: a definition for each model, and which of them each method, event and request has."""
    names, definitions = schemas()
    document: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Hermes gateway",
        "methods": {
            method.name: {"params": names[method.params], "result": names[result_of(method)]}  # type: ignore[index]
            for method in methods()
        },
        "events": {event.name: None if event.payload is None else names[event.payload] for event in EVENTS},
        "serverRequests": {
            request.name: {"params": names[request.params], "result": names[request.result]}
            for request in SERVER_REQUEST_TABLE
        },
        "$defs": _moved(definitions),
    }
    return document


def _moved(value: Any) -> Any:
    """References of the OpenRPC document as those of a document of definitions."""
    match value:
        case dict():
            return {key: _moved(item) for key, item in value.items()}
        case list():
            return [_moved(item) for item in value]
        case str():
            return value.replace("#/components/schemas/", "#/$defs/")
        case _:
            return value
