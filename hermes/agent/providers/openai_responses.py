"""The OpenAI Responses format: request bodies with encrypted reasoning, and the stream parser."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hermes.agent.model_catalog import fit_effort, model_facts
from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.encoded_rows import conversation
from hermes.agent.providers.wire_format import (
    SETTLED,
    Endpoint,
    ErrorContext,
    StreamParser,
    canonical_arguments,
    count,
    dump_body,
    image_url,
    made_up_call_id,
    parts_of,
    replay_entry,
    replay_of,
    wire_content,
)
from hermes.messages import ImagePart, Row, ToolCall, content_text, has_images
from hermes.outcomes import Usage

_MAX_CALL_ID: Final = 64


class ResponsesFormat:
    """``POST {base}/responses``."""

    def url(self, endpoint: Endpoint) -> str:
        base = endpoint.base_url.rstrip("/")
        return base if base.endswith("/responses") else f"{base}/responses"

    def headers(self, request: ModelRequest, endpoint: Endpoint) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {endpoint.api_key}")] if endpoint.api_key else []

    def body(self, request: ModelRequest, endpoint: Endpoint, without: frozenset[str]) -> dict[str, Any]:
        instructions = "\n\n".join(tier for tier in request.system if tier)
        tools = [_tool(spec) for spec in request.tools]
        body: dict[str, Any] = {"model": request.model, "store": False}
        if request.stream:
            body["stream"] = True
        facts = model_facts(request.model)
        effort = fit_effort(request.model, request.reasoning_effort)
        if effort is not None:
            body["reasoning"] = {"effort": effort, "summary": "auto"}
        elif facts.reasons:
            body["reasoning"] = {"summary": "auto"}
        if facts.reasons:
            body["include"] = ["reasoning.encrypted_content"]
        if request.max_output_tokens:
            body["max_output_tokens"] = request.max_output_tokens
        if request.temperature is not None and not facts.reasons:
            body["temperature"] = request.temperature
        body["prompt_cache_key"] = _cache_key(request, instructions, tools)
        body |= endpoint.extra_body
        body |= request.extra_body
        if tools:
            body["parallel_tool_calls"] = True
        for name in without:
            body.pop(name, None)
        if instructions:
            body["instructions"] = instructions
        if tools:
            body["tools"] = tools
            if request.tool_choice != "auto":
                body["tool_choice"] = request.tool_choice
        body["input"] = conversation(request, (endpoint, request.model), _ResponsesRows(request, endpoint))
        return body

    def parser(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> StreamParser:
        return ResponsesParser(request, endpoint, on_delta)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": dict(spec.parameters),
        "strict": False,
    }


def _cache_key(request: ModelRequest, instructions: str, tools: list[dict[str, Any]]) -> str:
    seed = dump_body({"scope": request.session_key, "instructions": instructions, "tools": tools})
    return hashlib.sha256(seed).hexdigest()[:32]


class _ResponsesRows:
    """Rows as input items; see ``RowsFormat``."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint) -> None:
        self._issuer = endpoint.issuer(request.model)
        self.final_to = len(request.messages)

    def head(self) -> list[dict[str, Any]]:
        return []

    def encode(self, rows: Sequence[Row], first: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        call_ids: dict[str, str] = {}
        for row in rows:
            content = wire_content(row)
            if row.role == "assistant":
                items += _assistant_items(row, self._issuer, call_ids)
            elif row.role == "tool":
                call_id = call_ids.get(row.tool_call_id or "", _wire_id(row.tool_call_id or ""))
                output: Any = _parts(row) if has_images(content) else content_text(content)
                items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            else:
                items.append({"role": "user", "content": _parts(row)})
        return items

    def begins(self, before: Row, row: Row) -> bool:
        return row.role != "tool"

    def finish(self, messages: list[dict[str, Any]], *, newest: bool) -> None:
        """Nothing is marked."""


def _assistant_items(row: Row, issuer: str, call_ids: dict[str, str]) -> list[dict[str, Any]]:
    reasoning = [dict(item) for item in replay_of(row, issuer, signed=False)]
    items = reasoning[:]
    text = content_text(wire_content(row))
    if text:
        items.append({"role": "assistant", "content": [{"type": "output_text", "text": text}]})
    for call in row.tool_calls:
        call_id = call_ids[call.id] = _wire_id(call.call_id or call.id)
        item = {"type": "function_call", "call_id": call_id, "name": call.name}
        item["arguments"] = canonical_arguments(call.arguments)
        if reasoning and call.response_item_id:
            # An item id without the reasoning item that made it is refused.
            item["id"] = call.response_item_id
        items.append(item)
    return items


def _parts(row: Row) -> list[dict[str, Any]]:
    return [
        {"type": "input_image", "image_url": image_url(part)}
        if isinstance(part, ImagePart)
        else {"type": "input_text", "text": part.text}
        for part in parts_of(wire_content(row))
    ]


def _wire_id(call_id: str) -> str:
    return call_id if len(call_id) <= _MAX_CALL_ID else "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:32]


# --- the answer ------------------------------------------------------------------------------------------------------


class ResponsesParser:
    """Events of a response stream in, deltas and one ``ModelFinished`` out."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> None:
        self.ended = False
        self._issuer = endpoint.issuer(request.model)
        self._request_id = request.request_id
        self._on_delta = on_delta
        self._errors = ErrorContext(endpoint, request)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._spoken: set[tuple[str, Any]] = set()
        self._arguments: dict[Any, list[str]] = {}
        self._items: dict[Any, dict[str, Any]] = {}
        self._finish_reason: str | None = None
        self._incomplete = False
        self._usage: Mapping[str, Any] | None = None
        self._model: str | None = None
        self._id: str | None = None

    def event(self, data: bytes) -> float | None:
        event = self._errors.decode(data)
        if event is not None:
            self._read(str(event.get("type", "")), event)
        return SETTLED if self.ended else None

    def whole(self, answer: Mapping[str, Any]) -> None:
        if answer.get("error") or "output" not in answer:
            raise self._errors.from_payload(answer)
        self._end(str(answer.get("status") or "completed"), answer)

    def finish(self) -> ModelFinished:
        items = [self._items[key] for key in sorted(self._items, key=_place)]
        calls = [(key, self._items[key]) for key in sorted(self._items, key=_place)]
        calls = [(key, item) for key, item in calls if item.get("type") == "function_call"]
        reasoning_items = [_replayable(item) for item in items if item.get("type") == "reasoning"]
        kept = [item for item in reasoning_items if item is not None]
        reason = self._finish_reason
        return ModelFinished(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            tool_calls=tuple(self._call(key, item, place) for place, (key, item) in enumerate(calls)),
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            usage=None if self._usage is None else responses_usage(self._usage),
            refusal="".join(self._refusal) or None,
            reasoning_details=kept or None,
            replay_items=replay_entry(self._issuer, kept),
            served_model=self._model,
            response_id=self._id,
            incomplete=self._incomplete,
        )

    def _read(self, kind: str, event: Mapping[str, Any]) -> None:
        key = event.get("output_index", event.get("item_id"))
        match kind:
            case "response.output_text.delta":
                self._say(self._text, DeltaKind.TEXT, event.get("delta"))
                self._spoken.add(("message", key))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._say(self._reasoning, DeltaKind.REASONING, event.get("delta"))
                self._spoken.add(("reasoning", key))
            case "response.function_call_arguments.delta":
                self._arguments.setdefault(key, []).append(event.get("delta") or "")
            case "response.function_call_arguments.done":
                if isinstance(event.get("arguments"), str):
                    self._arguments[key] = [event["arguments"]]
            case "response.reasoning_summary_part.added":
                if self._reasoning:
                    self._say(self._reasoning, DeltaKind.REASONING, "\n\n")
            case "response.refusal.delta":
                self._refusal.append(event.get("delta") or "")
                self._spoken.add(("refusal", key))
            case "response.output_item.added":
                self._items[key] = dict(event["item"])
                self._announce(key, event["item"])
            case "response.output_item.done":
                self._done(key, event["item"])
            case "response.created" | "response.in_progress":
                self._about(event.get("response") or {})
            case "response.completed" | "response.done" | "response.incomplete" | "response.failed":
                response = event.get("response") or {}
                self._end(str(response.get("status") or kind.rpartition(".")[2]), response)
            case "error":
                raise self._errors.from_payload(event)
            case _ if event.get("error"):
                raise self._errors.from_payload(event)

    def _about(self, response: Mapping[str, Any]) -> None:
        self._model = response.get("model") or self._model
        self._id = response.get("id") or self._id
        self._usage = response.get("usage") or self._usage

    def _end(self, status: str, response: Mapping[str, Any]) -> None:
        self._about(response)
        if status in ("failed", "cancelled"):
            raise self._errors.from_payload(response.get("error") or {"message": "the response failed", "code": 500})
        for position, item in enumerate(response.get("output") or ()):
            if not self._known(item):
                self._done(position, item)
        if status == "incomplete":
            why = (response.get("incomplete_details") or {}).get("reason")
            self._finish_reason = "content_filter" if why == "content_filter" else "length"
            self._incomplete = why != "content_filter"
        else:
            self._finish_reason = "stop"
        self.ended = True

    def _known(self, item: Mapping[str, Any]) -> bool:
        """The items of the stream win: the list at the end repeats them, or is empty, or shorter."""
        return any(
            known.get("id") == item.get("id") and known.get("type") == item.get("type")
            for known in self._items.values()
        )

    def _announce(self, key: Any, item: Mapping[str, Any]) -> None:
        if item.get("type") == "function_call" and item.get("name") and ("name", key) not in self._spoken:
            self._spoken.add(("name", key))
            self._on_delta(DeltaKind.TOOL_NAME, str(item["name"]))

    def _done(self, key: Any, item: Mapping[str, Any]) -> None:
        """A whole item. What it says is told only if no delta has told it."""
        self._items[key] = dict(item)
        self._announce(key, item)
        if item.get("type") == "message":
            for part in item.get("content") or ():
                if part.get("type") == "output_text" and ("message", key) not in self._spoken:
                    self._say(self._text, DeltaKind.TEXT, part.get("text"))
                elif part.get("type") == "refusal" and ("refusal", key) not in self._spoken:
                    self._refusal.append(part.get("refusal") or "")
        elif item.get("type") == "reasoning" and ("reasoning", key) not in self._spoken:
            texts = [part.get("text") or "" for part in item.get("summary") or ()]
            self._say(self._reasoning, DeltaKind.REASONING, "\n\n".join(texts))

    def _say(self, into: list[str], kind: DeltaKind, text: str | None) -> None:
        if text:
            into.append(text)
            self._on_delta(kind, text)

    def _call(self, key: Any, item: Mapping[str, Any], position: int) -> ToolCall:
        call_id = str(item.get("call_id") or item.get("id") or "") or made_up_call_id(self._request_id, position)
        arguments = item.get("arguments") or "".join(self._arguments.get(key, ())) or "{}"
        return ToolCall(
            id=call_id,
            name=str(item.get("name") or ""),
            arguments=arguments if isinstance(arguments, str) else dump_body(arguments).decode(),
            call_id=call_id,
            response_item_id=item.get("id"),
        )


def _place(key: Any) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else (1 << 30, str(key))


def _replayable(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Nothing is stored at the server, so only an item with its encrypted content can be given back."""
    if not item.get("encrypted_content"):
        return None
    kept = ("type", "id", "summary", "encrypted_content")
    return {key: item[key] for key in kept if item.get(key) is not None}


def responses_usage(usage: Mapping[str, Any]) -> Usage:
    read = count(usage, "input_tokens_details", "cached_tokens")
    return Usage(
        input_tokens=max(0, count(usage, "input_tokens") - read),
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=read,
        reasoning_tokens=count(usage, "output_tokens_details", "reasoning_tokens"),
        calls=1,
    )
