"""The Anthropic messages format: request bodies with cache markers and signed thinking, and the stream parser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from hermes.agent.model_catalog import anthropic_thinking, max_output_tokens
from hermes.agent.ports import DeltaKind, DeltaSink, ModelFinished, ModelRequest, ToolSpec
from hermes.agent.providers.encoded_rows import conversation
from hermes.agent.providers.wire_format import (
    FINISHING,
    SETTLED,
    Endpoint,
    ErrorContext,
    StreamParser,
    active_cycle_start,
    arguments_object,
    canonical_arguments,
    count,
    made_up_call_id,
    parts_of,
    replay_entry,
    replay_of,
    wire_content,
)
from hermes.messages import ImagePart, Row, TextPart, ToolCall, content_text, has_images
from hermes.outcomes import Usage
from hermes.patterns import lazy_pattern
from hermes.records import dataclass

API_VERSION: Final = "2023-06-01"
STOP_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    # Both are "go on": the loop continues an answer that was cut for length.
    "pause_turn": "length",
    "model_context_window_exceeded": "length",
}
_ID_CHARACTERS: Final = lazy_pattern(r"[^a-zA-Z0-9_-]")


class MessagesFormat:
    """``POST {base}/v1/messages``."""

    def url(self, endpoint: Endpoint) -> str:
        base = endpoint.base_url.rstrip("/")
        if base.endswith("/messages"):
            return base
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def headers(self, request: ModelRequest, endpoint: Endpoint) -> list[tuple[str, str]]:
        headers = [("anthropic-version", API_VERSION)]
        betas: list[str] = []
        if endpoint.api_key:
            if endpoint.bearer or endpoint.api_key.startswith("sk-ant-oat"):
                headers.append(("Authorization", f"Bearer {endpoint.api_key}"))
                betas += ["oauth-2025-04-20"] if endpoint.api_key.startswith("sk-ant-oat") else []
            else:
                headers.append(("x-api-key", endpoint.api_key))
        thinking = anthropic_thinking(request.model, request.reasoning_effort)
        betas += thinking.betas if thinking is not None else ()
        return [*headers, ("anthropic-beta", ",".join(betas))] if betas else headers

    def body(self, request: ModelRequest, endpoint: Endpoint, without: frozenset[str]) -> dict[str, Any]:
        thinking = anthropic_thinking(request.model, request.reasoning_effort)
        if thinking is not None and (
            request.tool_choice == "required" or (thinking.budget and _cycle_lacks_thinking(request, endpoint))
        ):
            # The server refuses both: a forced call while thinking, and an open tool cycle that began without it.
            thinking = None
        ceiling = max_output_tokens(request.model)
        max_tokens = min(request.max_output_tokens or ceiling, ceiling)
        body: dict[str, Any] = {"model": request.model}
        if thinking is not None and thinking.budget:
            max_tokens = max(max_tokens, thinking.budget + 4096)
            body["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget}
        elif thinking is not None:
            if thinking.adaptive:
                body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": thinking.effort}
        body["max_tokens"] = max_tokens
        if request.temperature is not None and thinking is None:
            body["temperature"] = request.temperature
        if request.stream:
            body["stream"] = True
        body |= endpoint.extra_body
        body |= request.extra_body
        for name in without:
            body.pop(name, None)
        if request.tools:
            body["tools"] = [_tool(spec) for spec in request.tools]
            if request.tool_choice != "auto":
                body["tool_choice"] = {"type": "any" if request.tool_choice == "required" else "none"}
        marker: dict[str, Any] = {"type": "ephemeral"}
        if endpoint.cache_ttl == "1h":
            marker["ttl"] = "1h"
        tiers = [tier for tier in request.system if tier]
        if tiers:
            body["system"] = _system(tiers, marker)
        rows = _MessageRows(request, endpoint, marker, marked=2 if len(tiers) > 1 else 3)
        body["messages"] = conversation(request, (endpoint, request.model), rows)
        return body

    def parser(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> StreamParser:
        return MessagesParser(request, endpoint, on_delta)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)}


def _system(tiers: Sequence[str], marker: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = [tiers[0], "\n\n".join(tiers[1:])] if len(tiers) > 1 else [tiers[0]]
    return [{"type": "text", "text": text, "cache_control": dict(marker)} for text in blocks]


def _mark(message: Mapping[str, Any], marker: Mapping[str, Any]) -> None:
    for block in reversed(message["content"]):
        if block["type"] not in ("thinking", "redacted_thinking"):
            block["cache_control"] = dict(marker)
            return


def _cycle_lacks_thinking(request: ModelRequest, endpoint: Endpoint) -> bool:
    issuer = endpoint.issuer(request.model)
    rows = request.messages[active_cycle_start(request.messages) :]
    return any(row.role == "assistant" and row.tool_calls and not replay_of(row, issuer, signed=True) for row in rows)


class _MessageRows:
    """Rows as messages: alternating roles, the first a user's; tool results stand first in their message; orphans are
    left out. See ``RowsFormat``.

    What a user prompt closes is final; the tool cycle behind it still holds signed thinking, which goes out later.
    """

    def __init__(self, request: ModelRequest, endpoint: Endpoint, marker: Mapping[str, Any], *, marked: int) -> None:
        self._issuer = endpoint.issuer(request.model)
        self._marker = marker
        self._marked = marked
        self.final_to = active_cycle_start(request.messages)

    def head(self) -> list[dict[str, Any]]:
        return []

    def encode(self, rows: Sequence[Row], first: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        waiting: set[str] = set()
        for index, row in enumerate(rows, first):
            if row.role == "assistant":
                role, blocks = "assistant", _assistant_blocks(row, self._issuer if index >= self.final_to else "")
                waiting = {_wire_id(call.id) for call in row.tool_calls}
            elif row.role == "tool":
                call_id = _wire_id(row.tool_call_id or "")
                if call_id not in waiting:
                    continue
                waiting.discard(call_id)
                role, blocks = "user", [_tool_result(row, call_id)]
            else:
                role, blocks = "user", _user_blocks(row)
            if not blocks:
                continue
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        if not first and (not messages or messages[0]["role"] != "user"):
            messages.insert(0, {"role": "user", "content": [{"type": "text", "text": "(continuing)"}]})
        return messages

    def begins(self, before: Row, row: Row) -> bool:
        """A prompt that says something behind an answer that does: neither melts into what stands around it."""
        answered = before.role == "assistant" and not before.tool_calls and bool(_assistant_blocks(before, ""))
        return answered and row.role == "user" and bool(_user_blocks(row))

    def finish(self, messages: list[dict[str, Any]], *, newest: bool) -> None:
        for message in messages[-self._marked :] if newest else ():
            _mark(message, self._marker)


def _assistant_blocks(row: Row, issuer: str) -> list[dict[str, Any]]:
    blocks = [dict(item) for item in replay_of(row, issuer, signed=True)] if issuer else []
    text = content_text(wire_content(row))
    if text.strip():
        # The server refuses white space at the end of a last assistant text.
        blocks.append({"type": "text", "text": text.rstrip()})
    blocks += [
        {"type": "tool_use", "id": _wire_id(call.id), "name": call.name, "input": _input(call)}
        for call in row.tool_calls
    ]
    return blocks


def _input(call: ToolCall) -> dict[str, Any]:
    return arguments_object(canonical_arguments(call.arguments))


def _tool_result(row: Row, call_id: str) -> dict[str, Any]:
    content = wire_content(row)
    shown = [_part(part) for part in parts_of(content)] if has_images(content) else content_text(content)
    return {"type": "tool_result", "tool_use_id": call_id, "content": shown}


def _user_blocks(row: Row) -> list[dict[str, Any]]:
    parts = parts_of(wire_content(row))
    return [_part(part) for part in parts if isinstance(part, ImagePart) or part.text.strip()]


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.data is None:
        return {"type": "image", "source": {"type": "url", "url": part.url or ""}}
    return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}


def _wire_id(call_id: str) -> str:
    return _ID_CHARACTERS.sub("_", call_id) or "call"


# --- the answer ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    kind: str
    opened: Mapping[str, Any]
    pieces: list[str] = field(default_factory=list)
    signature: str = ""

    def replay_item(self) -> dict[str, Any] | None:
        if self.kind == "redacted_thinking":
            return {"type": "redacted_thinking", "data": self.opened.get("data", "")}
        if self.kind == "thinking" and self.signature:
            return {"type": "thinking", "thinking": "".join(self.pieces), "signature": self.signature}
        return None

    def tool_call(self, request_id: str, position: int) -> ToolCall:
        arguments = "".join(self.pieces) or json.dumps(self.opened.get("input") or {}, ensure_ascii=False)
        call_id = str(self.opened.get("id") or "") or made_up_call_id(request_id, position)
        return ToolCall(id=call_id, name=str(self.opened.get("name") or ""), arguments=arguments)


class MessagesParser:
    """Events of a message stream in, deltas and one ``ModelFinished`` out."""

    def __init__(self, request: ModelRequest, endpoint: Endpoint, on_delta: DeltaSink) -> None:
        self.ended = False
        self._issuer = endpoint.issuer(request.model)
        self._request_id = request.request_id
        self._on_delta = on_delta
        self._errors = ErrorContext(endpoint, request)
        self._blocks: dict[int, _Block] = {}
        self._stop_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._id: str | None = None

    def event(self, data: bytes) -> float | None:
        event = self._errors.decode(data)
        if event is not None:
            kind = event.get("type")
            if kind == "content_block_delta":
                self._delta(event.get("index", 0), event["delta"])
            elif kind == "content_block_start":
                self._open(event.get("index", 0), event["content_block"])
            elif kind == "message_start":
                self._begin(event["message"])
            elif kind == "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._add_usage(event.get("usage"))
            elif kind == "message_stop":
                self.ended = True
            elif kind == "error" or event.get("error"):
                raise self._errors.from_payload(event)
        if self.ended:
            return SETTLED
        return None if self._stop_reason is None else FINISHING

    def whole(self, answer: Mapping[str, Any]) -> None:
        if answer.get("type") == "error" or answer.get("error") or "content" not in answer:
            raise self._errors.from_payload(answer)
        self._begin(answer)
        for index, block in enumerate(answer["content"]):
            self._open(index, block)
        self._stop_reason = answer.get("stop_reason")
        self.ended = True

    def finish(self) -> ModelFinished:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = [block for block in blocks if block.kind == "tool_use"]
        items = [item for block in blocks if (item := block.replay_item()) is not None]
        reason = None if self._stop_reason is None else STOP_REASONS.get(self._stop_reason, "stop")
        if reason is None and self.ended:
            reason = "stop"
        return ModelFinished(
            text="".join(piece for block in blocks if block.kind == "text" for piece in block.pieces),
            reasoning="".join(piece for block in blocks if block.kind == "thinking" for piece in block.pieces),
            tool_calls=tuple(block.tool_call(self._request_id, place) for place, block in enumerate(calls)),
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            usage=messages_usage(self._usage) if self._usage else None,
            reasoning_details=items or None,
            replay_items=replay_entry(self._issuer, items),
            served_model=self._model,
            response_id=self._id,
        )

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._model = message.get("model") or None
        self._id = message.get("id") or None
        self._add_usage(message.get("usage"))

    def _add_usage(self, usage: Mapping[str, Any] | None) -> None:
        """Counts are cumulative; a later zero or null does not undo an earlier count."""
        for key, value in (usage or {}).items():
            if value or key not in self._usage:
                self._usage[key] = value

    def _open(self, index: int, content: Mapping[str, Any]) -> None:
        kind = str(content.get("type", ""))
        block = self._blocks[index] = _Block(kind, content, signature=str(content.get("signature") or ""))
        if kind == "text" and content.get("text"):
            self._say(block, DeltaKind.TEXT, content["text"])
        elif kind == "thinking" and content.get("thinking"):
            self._say(block, DeltaKind.REASONING, content["thinking"])
        elif kind == "tool_use" and content.get("name"):
            self._on_delta(DeltaKind.TOOL_NAME, str(content["name"]))

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.get(index)
        kind = delta.get("type")
        if block is None:
            # Some proxies leave the opening event out for text.
            block = self._blocks[index] = _Block("thinking" if kind == "thinking_delta" else "text", {})
        if kind == "text_delta":
            self._say(block, DeltaKind.TEXT, delta.get("text"))
        elif kind == "input_json_delta":
            block.pieces.append(delta.get("partial_json") or "")
        elif kind == "thinking_delta":
            self._say(block, DeltaKind.REASONING, delta.get("thinking"))
        elif kind == "signature_delta":
            block.signature += delta.get("signature") or ""

    def _say(self, block: _Block, kind: DeltaKind, text: str | None) -> None:
        if text:
            block.pieces.append(text)
            self._on_delta(kind, text)


def messages_usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=count(usage, "cache_read_input_tokens"),
        cache_write_tokens=count(usage, "cache_creation_input_tokens"),
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
        calls=1,
    )
