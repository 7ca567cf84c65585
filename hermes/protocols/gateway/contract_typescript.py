"""The contract as TypeScript: an interface for each model, maps of methods, events and requests, and a small client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hermes.protocols.gateway import contract
from hermes.protocols.gateway.schemas_events import EVENTS
from hermes.protocols.gateway.schemas_requests import SERVER_REQUEST_TABLE

HEAD: Final = """// The Hermes gateway. Made by `hermes schema typescript`; do not edit.

export type Json = unknown;
"""
CLIENT: Final = """
export type MethodName = keyof Methods;
export type EventName = keyof Events;
export type ServerRequestName = keyof ServerRequests;

export type GatewayEvent = {
  [Name in EventName]: { type: Name; session_id?: string; seq?: number } & (Events[Name] extends undefined
    ? { payload?: undefined }
    : { payload: Events[Name] });
}[EventName];

export type ServerRequest = {
  [Name in ServerRequestName]: { id: string; method: Name; params: ServerRequests[Name]["params"] };
}[ServerRequestName];

export interface ErrorObject {
  code: number;
  message: string;
  data?: unknown;
}

export class GatewayError extends Error {
  constructor(readonly method: string, readonly error: ErrorObject) {
    super(`${method}: ${error.code} ${error.message}`);
  }
}

interface Pending {
  method: string;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

/** One conversation over any transport: `send` writes one frame, `receive` takes one that has arrived. */
export class GatewayClient {
  onEvent: (event: GatewayEvent) => void = () => {};
  /** Return the answer, or nothing to decline. */
  onRequest: (request: ServerRequest) => Promise<object | undefined> | object | undefined = () => undefined;
  private readonly pending = new Map<string, Pending>();
  private calls = 0;

  constructor(private readonly send: (frame: string) => void) {}

  call<Name extends MethodName>(
    method: Name,
    ...[params]: Partial<Record<keyof Methods[Name]["params"], never>> extends Methods[Name]["params"]
      ? [params?: Methods[Name]["params"]]
      : [params: Methods[Name]["params"]]
  ): Promise<Methods[Name]["result"]> {
    const id = `r${++this.calls}`;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { method, resolve: resolve as (result: unknown) => void, reject });
      this.send(JSON.stringify({ jsonrpc: "2.0", id, method, params: params ?? {} }));
    });
  }

  receive(frame: string): void {
    const message = JSON.parse(frame) as {
      id?: string | null;
      method?: string;
      params?: unknown;
      result?: unknown;
      error?: ErrorObject;
    };
    if (message.method === "event") {
      this.onEvent(message.params as GatewayEvent);
    } else if (message.method !== undefined && typeof message.id === "string") {
      void this.answer({ id: message.id, method: message.method, params: message.params } as ServerRequest);
    } else if (typeof message.id === "string") {
      this.settle(message.id, message.result, message.error);
    }
  }

  /** The transport is gone: everything that waits fails. */
  closed(): void {
    for (const [id, call] of this.pending) {
      this.pending.delete(id);
      call.reject(new Error(`${call.method}: the connection is closed`));
    }
  }

  private settle(id: string, result: unknown, error: ErrorObject | undefined): void {
    const call = this.pending.get(id);
    if (call === undefined) return;
    this.pending.delete(id);
    if (error === undefined) call.resolve(result);
    else call.reject(new GatewayError(call.method, error));
  }

  private async answer(request: ServerRequest): Promise<void> {
    const result = await this.onRequest(request);
    const reply = result === undefined ? { error: { code: -32601, message: "not supported here" } } : { result };
    this.send(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...reply }));
  }
}
"""


def typescript() -> str:
    """One module without imports."""
    names, definitions = contract.schemas()
    parts = [HEAD]
    parts += [_declaration(name, schema) for name, schema in definitions.items()]
    rows = [
        (method.name, f"{{ params: {names[method.params]}; result: {names[contract.result_of(method)]} }}")  # type: ignore[index]
        for method in contract.methods()
    ]
    parts.append(_map("Methods", rows))
    parts.append(
        _map(
            "Events",
            [(event.name, "undefined" if event.payload is None else names[event.payload]) for event in EVENTS],
        )
    )
    parts.append(
        _map(
            "ServerRequests",
            [
                (request.name, f"{{ params: {names[request.params]}; result: {names[request.result]} }}")
                for request in SERVER_REQUEST_TABLE
            ],
        )
    )
    return "\n".join(parts) + CLIENT


def _map(name: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"  {json.dumps(key)}: {value};\n" for key, value in rows)
    return f"export interface {name} {{\n{lines}}}\n"


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    text = _comment(schema.get("description"), "")
    if schema.get("type") != "object":
        return f"{text}export type {name} = {_type(schema)};\n"
    return f"{text}export interface {name} {{\n{''.join(_members(schema))}}}\n"


def _members(schema: Mapping[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        mark = "" if name in required else "?"
        yield f"{_comment(field.get('description'), '  ')}  {_key(name)}{mark}: {_type(field)};\n"
    if schema.get("additionalProperties") is True:
        yield "  [more: string]: unknown;\n"


def _comment(text: str | None, indent: str) -> str:
    return f"{indent}/** {' '.join(text.split())} */\n" if text else ""


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[word]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            item = _type(schema.get("items", {}))
            return f"({item})[]" if "|" in item else f"{item}[]"
        case "object":
            values = schema.get("additionalProperties", True)
            return f"Record<string, {_type(values) if isinstance(values, dict) else 'Json'}>"
        case _:
            return "Json"
